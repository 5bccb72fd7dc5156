//! Which pod this is.

use std::{env, fs};

/// The kernel's name of this host, which in a pod is the pod's name.
const HOSTNAME: &str = "/proc/sys/kernel/hostname";

/// What a pod knows of itself; empty where it was told nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its name, or the host's.
    pub(crate) pod: String,
    /// Where it runs.
    pub(crate) node: String,
    /// Its address, as its cluster knows it.
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
