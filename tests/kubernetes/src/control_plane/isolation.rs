//! Namespaces that keep a control plane apart from the machine.

use crate::host;
use anyhow::{Context as _, Result};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// The folder that gets a private tmpfs.
pub(super) const FOLDER: &str = "/dev/shm";

/// Gives this process a network namespace with only a loopback device, and a private tmpfs on
/// `/dev/shm`. Both end with the last process in them, so even a killed process leaves nothing on
/// the machine.
///
/// Other threads of the process stay in the namespaces of the machine, so `main` calls this
/// function before it starts threads.
///
/// # Errors
///
/// Returns an error if the process lacks `CAP_SYS_ADMIN`, or if `ip` fails.
pub fn isolate() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .context("failed to create namespaces: run this as root")?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .context("failed to make the mounts private")?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), FOLDER, Some("tmpfs"), flags, none)
        .with_context(|| format!("failed to mount a tmpfs on {FOLDER}"))?;

    host::ip(None, &["link set lo up"])
}
