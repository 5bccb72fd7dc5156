//! Capabilities of set-up and of a running gateway, and access to its memory.

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};

/// Kept: netlink, sizes of socket buffers.
const KEPT: Capability = Capability::CAP_NET_ADMIN;

/// Dropped after set-up: loading programs and creating maps (BPF), the verifier's trust in them
/// (PERFMON), creating and entering the namespace (SYS_ADMIN).
///
/// Maps and programs are used by descriptor from then on, which needs no capability.
const SET_UP: [Capability; 3] = [
    Capability::CAP_BPF,
    Capability::CAP_PERFMON,
    Capability::CAP_SYS_ADMIN,
];

/// Capabilities are missing or cannot be dropped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Some are missing.
    #[error(
        "missing privileges: {0}; run as root, or give the container these capabilities (all but NET_ADMIN are dropped after set-up)"
    )]
    Missing(String),

    /// The capabilities of set-up cannot be dropped.
    #[error("failed to drop privileges")]
    Drop(#[source] caps::errors::CapsError),

    /// An executed program could gain capabilities again.
    #[error("failed to set no_new_privs")]
    NoNewPrivs(#[source] nix::errno::Errno),

    /// Core dumps could still contain keys.
    #[error("failed to make the process not dumpable")]
    Dumpable(#[source] nix::errno::Errno),
}

/// Keeps private keys in this process: no core dump holds them, and only a process with CAP_SYS_PTRACE,
/// or since Linux 6.16 CAP_PERFMON, reads its memory.
///
/// # Errors
///
/// Returns [`Error::Dumpable`] if the kernel refuses.
pub(crate) fn protect_memory() -> Result<(), Error> {
    prctl::set_dumpable(false).map_err(Error::Dumpable)?;
    // Also if a debugger makes the process dumpable.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(Error::Dumpable)
}

/// Checks for the capabilities of set-up; the error lists all that are missing.
///
/// # Errors
///
/// Returns [`Error::Missing`].
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

/// Drops all capabilities but those that a running gateway needs, for the calling thread and
/// those that it starts from now on.
///
/// # Errors
///
/// Returns [`Error`] if the kernel refuses.
pub(crate) fn drop_set_up() -> Result<(), Error> {
    let mut kept = CapsHashSet::from([KEPT]);
    if ebpf::map_access_needs_cap_bpf() {
        kept.insert(Capability::CAP_BPF);
    }
    // Needs CAP_SETPCAP; without it the bounding set stays, which no_new_privs makes harmless.
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
