//! Rights: what set-up needs, and what is left of it afterwards.

use caps::{CapSet, Capability, CapsHashSet};

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

    nix::sys::prctl::set_no_new_privs().map_err(Error::NoNewPrivs)
}
