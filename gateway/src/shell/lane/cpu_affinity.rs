//! The CPUs on which a worker runs.
//!
//! The kernel wakes a sleeping thread on an idle CPU if there is one, and waking that CPU takes far
//! longer than everything else that happens to a single packet here. The CPU that received the
//! packet is awake already. So a worker is pinned to its own CPUs while packets come one by one.
//! It may run anywhere while there is more to do, because then the CPUs are awake and parallel work
//! pays, and while it has to wait for its own CPUs because other threads use them.

mod policy;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use policy::{Decision, Policy};
use std::fs;
use std::time::{Duration, Instant};

pub(super) use policy::Work;

/// Sets the CPU affinity of the calling thread.
pub(super) struct CpuAffinity {
    /// The affinity with which the process was started.
    allowed: CpuSet,
    /// The worker's own CPUs.
    own: CpuSet,
    policy: Policy,
}

impl CpuAffinity {
    /// Pins the calling thread to the CPUs `own`; `None` if its affinity is unknown.
    pub(super) fn new(own: &[usize], now: Instant) -> Option<Self> {
        let mut affinity = Self {
            allowed: sched_getaffinity(Pid::from_raw(0)).ok()?,
            own: CpuSet::new(),
            policy: Policy::new(now),
        };
        for cpu in own {
            affinity.own.set(*cpu).ok()?;
        }
        run_on(&affinity.own);

        Some(affinity)
    }

    /// Returns whether the thread is pinned to its own CPUs.
    pub(super) fn is_pinned(&self) -> bool {
        self.policy.is_pinned()
    }

    /// Adapts the affinity after a wake-up that did `work`.
    pub(super) fn handle_wake_up(&mut self, work: Work, now: Instant) {
        let decision = match self.policy.handle_wake_up(work, now) {
            Decision::CheckWait => self.policy.handle_wait(cpu_wait(), now),
            decision @ (Decision::Keep | Decision::Pin | Decision::Unpin) => decision,
        };
        match decision {
            Decision::Keep | Decision::CheckWait => {}
            Decision::Pin => run_on(&self.own),
            Decision::Unpin => run_on(&self.allowed),
        }
    }
}

fn run_on(cpus: &CpuSet) {
    if let Err(error) = sched_setaffinity(Pid::from_raw(0), cpus) {
        tracing::debug!(%error, "failed to set the CPU affinity of a worker");
    }
}

/// Returns how long this thread has waited for a CPU since it started; `None` without
/// `CONFIG_SCHED_INFO` (Documentation/scheduler/sched-stats.rst).
fn cpu_wait() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds = text.split(' ').nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}
