//! On which CPUs a worker runs.
//!
//! A sleeping thread is woken on an idle CPU where there is one, and to wake that CPU takes
//! far longer than all else that happens to a single packet here. The CPU on which the packet
//! came up is awake already. So while packets come one by one, a worker stays on the CPUs that it
//! serves. When there is more to do, it may run anywhere: then CPUs are awake, and one of its own is
//! worth more. So it may when it has to wait for its turn on its CPUs, since others want them.

mod pace;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use pace::{Advice, Pace};
use std::fs;
use std::time::{Duration, Instant};

pub(super) use pace::Moved;

/// Keeps the calling thread near its packets.
pub(super) struct Near {
    /// Where it may run by its owner's wish.
    allowed: CpuSet,
    home: CpuSet,
    pace: Pace,
}

impl Near {
    /// Starts at `home`; none if the kernel does not tell where the thread may run.
    pub(super) fn new(home: &[usize], now: Instant) -> Option<Self> {
        let mut near = Self {
            allowed: sched_getaffinity(Pid::from_raw(0)).ok()?,
            home: CpuSet::new(),
            pace: Pace::new(now),
        };
        for cpu in home {
            near.home.set(*cpu).ok()?;
        }
        run_on(&near.home);

        Some(near)
    }

    /// Returns whether the thread runs on its own CPUs only.
    pub(super) fn is_home(&self) -> bool {
        self.pace.is_home()
    }

    /// Learns what a wake-up has moved.
    pub(super) fn handle_wake_up(&mut self, moved: Moved, now: Instant) {
        let advice = match self.pace.handle_wake_up(moved, now) {
            Advice::Look => self.pace.handle_look(waited(), now),
            advice @ (Advice::Stay | Advice::Return | Advice::Leave) => advice,
        };
        match advice {
            Advice::Stay | Advice::Look => {}
            Advice::Return => run_on(&self.home),
            Advice::Leave => run_on(&self.allowed),
        }
    }
}

fn run_on(cpus: &CpuSet) {
    if let Err(error) = sched_setaffinity(Pid::from_raw(0), cpus) {
        tracing::debug!(%error, "a worker stays where the kernel puts it");
    }
}

/// How long this thread has waited for a CPU since it began, if the kernel tells
/// (`CONFIG_SCHED_INFO`; Documentation/scheduler/sched-stats.rst).
fn waited() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds = text.split(' ').nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}
