//! Process 1 of a pod: keeps its namespaces, reaps its processes, ends at SIGTERM.
//!
//! It waits for signals without handlers, and so uses no processor time and only a few pages of
//! memory.

#![forbid(unsafe_code)]

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

fn main() -> Result<(), Errno> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGCHLD);
    // A blocked signal stays pending; process 1 ignores signals without a handler.
    signals.thread_block()?;

    loop {
        // Before the first wait, too: the program before `exec` may have left children.
        reap();
        match signals.wait() {
            Ok(Signal::SIGCHLD) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Reaps all children that have ended, since one SIGCHLD may stand for several.
fn reap() {
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            return;
        }
    }
}
