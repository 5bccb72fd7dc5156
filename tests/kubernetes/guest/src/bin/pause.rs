//! Process 1 of a pod: keeps its namespaces, buries its dead, ends when asked to.
//!
//! It handles no signal but waits for one, so that it takes neither time nor, per
//! pod, more than a few pages of memory.

#![forbid(unsafe_code)]

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

fn main() -> Result<(), Errno> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGCHLD);
    // A blocked signal waits until it is taken; process 1 would lose any other.
    signals.thread_block()?;

    loop {
        // Before the first wait too: what ran here before may have left children.
        bury();
        match signals.wait() {
            Ok(Signal::SIGCHLD) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Takes the status of all children that have ended: one signal may stand for many.
fn bury() {
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            return;
        }
    }
}
