//! Checks and drops capabilities, and protects the memory of the process.

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};

/// The capability that a running gateway keeps, for netlink and the size of socket buffers.
const KEPT: Capability = Capability::CAP_NET_ADMIN;

/// The capabilities that are dropped after set-up.
///
/// CAP_BPF and CAP_PERFMON are required to load the eBPF programs and to create their maps.
/// CAP_SYS_ADMIN is required to create and to enter the network namespace. Later, the gateway uses
/// maps and programs by descriptor, which requires no capability since Linux 5.19 (see
/// [`ebpf::map_access_needs_cap_bpf`]).
const SET_UP: [Capability; 3] = [
    Capability::CAP_BPF,
    Capability::CAP_PERFMON,
    Capability::CAP_SYS_ADMIN,
];

/// The reason why capabilities or memory cannot be set as required.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The process lacks capabilities. The string lists all missing ones.
    #[error(
        "missing privileges: {0}; run as root, or give the container these capabilities (all but NET_ADMIN are dropped after set-up)"
    )]
    Missing(String),

    /// The kernel did not drop the capabilities of set-up.
    #[error("failed to drop privileges")]
    Drop(#[source] caps::errors::CapsError),

    /// The kernel did not set no_new_privs. Without it, an executed program could gain capabilities
    /// again.
    #[error("failed to set no_new_privs")]
    NoNewPrivs(#[source] nix::errno::Errno),

    /// The kernel did not disable core dumps, which could contain private keys.
    #[error("failed to make the process not dumpable")]
    Dumpable(#[source] nix::errno::Errno),
}

/// Prevents core dumps and restricts access to the memory of the process, which holds private keys.
///
/// Afterwards another process can read the memory only with CAP_SYS_PTRACE, or since Linux 6.16
/// with CAP_PERFMON.
///
/// # Errors
///
/// Returns [`Error::Dumpable`] if the kernel rejects a request.
pub(crate) fn protect_memory() -> Result<(), Error> {
    prctl::set_dumpable(false).map_err(Error::Dumpable)?;
    // The limit also prevents core dumps after a debugger has made the process dumpable.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(Error::Dumpable)
}

/// Checks that the process has all capabilities of set-up.
///
/// # Errors
///
/// Returns [`Error::Missing`] if a capability is missing.
pub(crate) fn check() -> Result<(), Error> {
    let missing: Vec<_> = std::iter::once(KEPT)
        .chain(SET_UP)
        .filter(|capability| !caps::has_cap(None, CapSet::Effective, *capability).unwrap_or(false))
        .map(|capability| capability.to_string())
        .collect();
    if !missing.is_empty() {
        return Err(Error::Missing(missing.join(", ")));
    }

    Ok(())
}

/// Drops all capabilities that a running gateway does not need.
///
/// Affects the calling thread and all threads that it starts later.
///
/// # Errors
///
/// Returns [`Error`] if the kernel rejects a request.
pub(crate) fn drop_set_up() -> Result<(), Error> {
    let mut kept = CapsHashSet::from([KEPT]);
    if ebpf::map_access_needs_cap_bpf() {
        kept.insert(Capability::CAP_BPF);
    }
    // Changes of the bounding set require CAP_SETPCAP. Without this capability the bounding set
    // remains, but has no effect because of no_new_privs.
    for capability in caps::all() {
        if !kept.contains(&capability) {
            let _ = caps::drop(None, CapSet::Bounding, capability);
        }
    }
    let none = CapsHashSet::new();
    let _ = caps::set(None, CapSet::Ambient, &none);
    caps::set(None, CapSet::Inheritable, &none).map_err(Error::Drop)?;
    caps::set(None, CapSet::Effective, &kept).map_err(Error::Drop)?;
    caps::set(None, CapSet::Permitted, &kept).map_err(Error::Drop)?;

    prctl::set_no_new_privs().map_err(Error::NoNewPrivs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::resource::getrlimit;

    #[test]
    fn a_process_with_protected_memory_dumps_no_core() {
        protect_memory().unwrap();

        assert_eq!(prctl::get_dumpable(), Ok(false));
        assert_eq!(getrlimit(Resource::RLIMIT_CORE), Ok((0, 0)));
    }
}
