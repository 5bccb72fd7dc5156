//! Gives up every capability but the one that the work needs.

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;

/// What the agent and the `nft` it starts need; neither needs any other.
const NEEDED: Capability = Capability::CAP_NET_ADMIN;

/// The capabilities are not as they must be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The process lacks the one it needs.
    #[error("the capability NET_ADMIN is missing: run as root, or grant it")]
    Missing,

    /// The kernel refused to give some up.
    #[error("failed to give up capabilities")]
    Kept(#[source] caps::errors::CapsError),

    /// The kernel refused to fix them.
    #[error("failed to forbid new privileges")]
    NewPrivileges(#[source] nix::Error),
}

/// Gives up all capabilities but NET_ADMIN, also for programs started later.
///
/// Capabilities belong to threads: must be called before the first one is started.
///
/// # Errors
///
/// Returns [`Error::Missing`] without NET_ADMIN, else [`Error`] if the kernel refuses.
pub(crate) fn give_up() -> Result<(), Error> {
    let needed = CapsHashSet::from([NEEDED]);
    if !caps::has_cap(None, CapSet::Effective, NEEDED).map_err(Error::Kept)? {
        return Err(Error::Missing);
    }

    prctl::set_no_new_privs().map_err(Error::NewPrivileges)?;
    // A container's own bounding set cannot be narrowed without SETPCAP, nor need it be.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).map_err(Error::Kept)? {
        for capability in caps::all().into_iter().filter(|it| *it != NEEDED) {
            // Those that this kernel does not know cannot be dropped.
            if let Err(error) = caps::drop(None, CapSet::Bounding, capability) {
                tracing::debug!(%error, %capability, "a capability stays in the bounding set");
            }
        }
    }
    caps::set(None, CapSet::Effective, &needed).map_err(Error::Kept)?;
    caps::set(None, CapSet::Permitted, &needed).map_err(Error::Kept)?;
    caps::set(None, CapSet::Inheritable, &needed).map_err(Error::Kept)?;
    // Without it, `nft` would have none where the agent is not root.
    caps::set(None, CapSet::Ambient, &needed).map_err(Error::Kept)
}
