//! On which core the loop's thread runs while there is little to do.
//!
//! A sleeping thread is woken on an idle core where there is one, and to wake that core takes
//! far longer than all else that happens to a single packet here. The core on which the packet
//! arrived is awake already. So while packets come one by one, the thread stays on the core
//! where datagrams arrive. When there is more to do, it may run anywhere: then cores
//! are awake, and one of its own is worth more. So it may when it has to wait for its turn
//! on that core, since others want it.

mod pace;

use ebpf::Arrivals;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use pace::{Advice, Pace};
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

pub(super) use pace::Moved;

/// Keeps the calling thread near its packets.
pub(super) struct Near {
    arrivals: Arrivals,
    /// Where it may run by its owner's wish.
    allowed: CpuSet,
    pace: Pace,
}

impl Near {
    /// Starts with a thread that runs anywhere; none if the kernel does not tell where that is.
    pub(super) fn new(arrivals: Arrivals, now: Instant) -> Option<Self> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;

        Some(Self {
            arrivals,
            allowed,
            // Process numbers are the same in all pods.
            pace: Pace::new(RandomState::new().build_hasher().finish(), now),
        })
    }

    /// What sockets must be attached to for it to know.
    pub(super) fn program(&self) -> BorrowedFd<'_> {
        self.arrivals.program()
    }

    /// Learns from a wake-up; `moved` counts all since the loop began.
    pub(super) fn handle_wake_up(&mut self, moved: Moved, now: Instant) {
        match self.pace.handle_wake_up(moved, now) {
            Advice::Stay => {}
            Advice::Look => {
                let advice = self.pace.handle_look(self.arrivals.cpu(), waited(), now);
                self.follow(advice);
            }
            advice @ (Advice::Move(_) | Advice::Leave) => self.follow(advice),
        }
    }

    fn follow(&self, advice: Advice) {
        let cpus = match advice {
            Advice::Stay | Advice::Look => return,
            Advice::Leave => self.allowed,
            Advice::Move(cpu) => {
                let mut one = CpuSet::new();
                let is_allowed = usize::try_from(cpu)
                    .is_ok_and(|cpu| self.allowed.is_set(cpu) == Ok(true) && one.set(cpu).is_ok());
                if is_allowed { one } else { self.allowed }
            }
        };
        if let Err(error) = sched_setaffinity(Pid::from_raw(0), &cpus) {
            tracing::debug!(%error, "the packet loop stays where the kernel puts it");
        }
    }
}

/// How long this thread has waited for a core since it began, if the kernel tells
/// (`CONFIG_SCHED_INFO`; Documentation/scheduler/sched-stats.rst).
fn waited() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds = text.split(' ').nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}
