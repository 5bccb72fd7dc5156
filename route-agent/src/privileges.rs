//! Drops all capabilities but NET_ADMIN.

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;

/// The only capability that the agent and its child process `nft` need.
const NEEDED: Capability = Capability::CAP_NET_ADMIN;

/// The process cannot drop its other capabilities, or lacks NET_ADMIN.
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

/// Drops all capabilities but NET_ADMIN for this thread, and for the threads and processes that it
/// starts.
///
/// Each thread has its own capabilities. Call this function before the process starts threads.
///
/// # Errors
///
/// Returns [`Error::Missing`] if the process lacks NET_ADMIN. Returns another [`Error`] if the
/// kernel refuses a request.
pub(crate) fn drop_capabilities() -> Result<(), Error> {
    let needed = CapsHashSet::from([NEEDED]);
    if !caps::has_cap(None, CapSet::Effective, NEEDED).map_err(Error::Kept)? {
        return Err(Error::Missing);
    }

    prctl::set_no_new_privs().map_err(Error::NewPrivileges)?;
    // Reducing the bounding set needs SETPCAP. A container without SETPCAP has a reduced set
    // already.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).map_err(Error::Kept)? {
        for capability in caps::all().into_iter().filter(|it| *it != NEEDED) {
            // `drop` fails for capabilities that the running kernel does not have, which is
            // harmless.
            if let Err(error) = caps::drop(None, CapSet::Bounding, capability) {
                tracing::debug!(%error, %capability, "failed to drop from the bounding set");
            }
        }
    }
    caps::set(None, CapSet::Effective, &needed).map_err(Error::Kept)?;
    caps::set(None, CapSet::Permitted, &needed).map_err(Error::Kept)?;
    caps::set(None, CapSet::Inheritable, &needed).map_err(Error::Kept)?;
    // If the agent is not root, `nft` gets NET_ADMIN from the ambient set.
    caps::set(None, CapSet::Ambient, &needed).map_err(Error::Kept)
}
