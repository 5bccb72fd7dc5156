//! The identity of the pod in which this program runs.

use std::{env, fs};

/// The kernel's host name. In a pod, the host name is the pod's name.
const HOSTNAME: &str = "/proc/sys/kernel/hostname";

/// The identity of the pod. A field is empty if its environment variable is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The value of `POD_NAME`, or the host name if the variable is not set.
    pub(crate) pod: String,
    /// The value of `NODE_NAME`.
    pub(crate) node: String,
    /// The value of `POD_IP`.
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
