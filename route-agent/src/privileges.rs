//! Drops all capabilities but NET_ADMIN.

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;

/// The agent and its child process `nft` need this one only.
const NEEDED: Capability = Capability::CAP_NET_ADMIN;

/// The capabilities cannot be reduced to the needed one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The process lacks NET_ADMIN.
    #[error("the capability NET_ADMIN is missing: run as root, or grant it")]
    Missing,

    /// The kernel refused to read or drop capabilities.
    #[error("failed to drop capabilities")]
    Kept(#[source] caps::errors::CapsError),

    /// `PR_SET_NO_NEW_PRIVS` failed.
    #[error("failed to set no_new_privs")]
    NewPrivileges(#[source] nix::Error),
}

/// Drops all capabilities but NET_ADMIN, for child processes too.
///
/// Capabilities belong to threads: must be called before the first thread is started.
///
/// # Errors
///
/// Returns [`Error::Missing`] without NET_ADMIN, else [`Error`] if the kernel refuses.
pub(crate) fn drop_capabilities() -> Result<(), Error> {
    let needed = CapsHashSet::from([NEEDED]);
    if !caps::has_cap(None, CapSet::Effective, NEEDED).map_err(Error::Kept)? {
        return Err(Error::Missing);
    }

    prctl::set_no_new_privs().map_err(Error::NewPrivileges)?;
    // The bounding set can be narrowed with SETPCAP only; a container's is narrow already.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).map_err(Error::Kept)? {
        for capability in caps::all().into_iter().filter(|it| *it != NEEDED) {
            // Fails for capabilities that this kernel does not have.
            if let Err(error) = caps::drop(None, CapSet::Bounding, capability) {
                tracing::debug!(%error, %capability, "failed to drop from the bounding set");
            }
        }
    }
    caps::set(None, CapSet::Effective, &needed).map_err(Error::Kept)?;
    caps::set(None, CapSet::Permitted, &needed).map_err(Error::Kept)?;
    caps::set(None, CapSet::Inheritable, &needed).map_err(Error::Kept)?;
    // Passes it on to `nft` if the agent is not root.
    caps::set(None, CapSet::Ambient, &needed).map_err(Error::Kept)
}
