//! Process 1 of a pod. It keeps the pod's namespaces, reaps the pod's processes, and ends at
//! SIGTERM.
//!
//! The process waits for signals without handlers, so it uses no processor time and only a few
//! pages of memory.

#![forbid(unsafe_code)]

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

fn main() -> Result<(), Errno> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGCHLD);
    // A blocked signal stays pending until the wait below. Process 1 ignores an unblocked signal
    // without a handler.
    signals.thread_block()?;

    loop {
        // A shell may have started children before `exec` replaced it by this program. The first
        // iteration reaps children that ended before SIGCHLD was blocked.
        reap();
        match signals.wait() {
            Ok(Signal::SIGCHLD) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Reaps all children that have ended. One SIGCHLD may stand for several children.
fn reap() {
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            return;
        }
    }
}
