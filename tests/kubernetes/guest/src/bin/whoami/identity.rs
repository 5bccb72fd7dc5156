//! The identity of the pod.

use std::{env, fs};

/// The host name, which in a pod is the pod's name.
const HOSTNAME: &str = "/proc/sys/kernel/hostname";

/// The identity of the pod; fields are empty if their variable is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// `POD_NAME`, or the host name.
    pub(crate) pod: String,
    /// `NODE_NAME`.
    pub(crate) node: String,
    /// `POD_IP`.
    pub(crate) ip: String,
}

impl Identity {
    pub(crate) fn from_environment() -> Self {
        let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let hostname = || fs::read_to_string(HOSTNAME).unwrap_or_default();

        Self {
            pod: variable("POD_NAME").unwrap_or_else(|| hostname().trim().to_owned()),
            node: variable("NODE_NAME").unwrap_or_default(),
            ip: variable("POD_IP").unwrap_or_default(),
        }
    }
}
