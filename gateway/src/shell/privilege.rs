//! Privileges: what set-up needs, what a running gateway keeps, and who may read its memory.

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};

/// What a running gateway keeps: sockets' buffers and netlink, maps, and the
/// verifier's trust in our programs.
const KEPT: [Capability; 3] = [
    Capability::CAP_NET_ADMIN,
    Capability::CAP_BPF,
    Capability::CAP_PERFMON,
];

/// What set-up needs besides: creating and entering the namespace.
const SET_UP: Capability = Capability::CAP_SYS_ADMIN;

/// Rights are not as they must be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Some are missing.
    #[error(
        "missing privileges: {0}; run as root, or give the container these capabilities (SYS_ADMIN is dropped after set-up)"
    )]
    Missing(String),

    /// The rest could not be given up.
    #[error("failed to drop privileges")]
    Drop(#[source] caps::errors::CapsError),

    /// New ones could not be ruled out.
    #[error("failed to set no_new_privs")]
    NoNewPrivs(#[source] nix::errno::Errno),

    /// Keys in memory could not be protected.
    #[error("failed to make the process not dumpable")]
    Dumpable(#[source] nix::errno::Errno),
}

/// Keeps private keys in this process: no core dump holds them, and only a process with CAP_SYS_PTRACE
/// reads its memory.
///
/// # Errors
///
/// Returns [`Error::Dumpable`] if the kernel refuses.
pub(crate) fn protect_memory() -> Result<(), Error> {
    prctl::set_dumpable(false).map_err(Error::Dumpable)?;
    // Also if a debugger makes the process dumpable.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(Error::Dumpable)
}

/// Checks that everything set-up needs is there, and names all that is not.
///
/// # Errors
///
/// Returns [`Error::Missing`].
pub(crate) fn check() -> Result<(), Error> {
    let missing: Vec<_> = KEPT
        .into_iter()
        .chain([SET_UP])
        .filter(|capability| !caps::has_cap(None, CapSet::Effective, *capability).unwrap_or(false))
        .map(|capability| capability.to_string())
        .collect();
    if !missing.is_empty() {
        return Err(Error::Missing(missing.join(", ")));
    }

    Ok(())
}

/// Gives up all rights but those a running gateway needs, for the calling thread
/// and those it starts from now on.
///
/// # Errors
///
/// Returns [`Error`] if the kernel refuses.
pub(crate) fn drop_all_but_needed() -> Result<(), Error> {
    let kept = CapsHashSet::from(KEPT);
    // While SETPCAP is still there; without it the bounding set stays, which
    // no_new_privs makes harmless.
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
