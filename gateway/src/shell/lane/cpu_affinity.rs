//! Sets the CPUs on which a worker may run.
//!
//! The kernel wakes a sleeping thread on an idle CPU if there is one. Waking an idle CPU takes much
//! longer than all other processing of a single packet. The CPU that received the packet is awake
//! already. Therefore a worker is pinned to its own CPUs while packets arrive one at a time.
//!
//! The worker may run on any CPU in two cases:
//!
//! - The load is high. Then the other CPUs are awake, and parallel processing increases the
//!   throughput.
//! - The worker often waits for its own CPUs, because other threads use them.

mod policy;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use policy::{Decision, Policy};
use std::fs;
use std::time::{Duration, Instant};

pub(super) use policy::Work;

/// The CPU affinity of a worker's thread.
pub(super) struct CpuAffinity {
    /// The CPUs on which the process may run.
    allowed: CpuSet,
    /// The worker's own CPUs. The worker handles the packets that these CPUs receive.
    own: CpuSet,
    policy: Policy,
}

impl CpuAffinity {
    /// Pins the calling thread to the CPUs `own`; returns `None` if its affinity cannot be read.
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

    /// Pins or unpins the calling thread after a wake-up that did `work`.
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

/// Returns the total time that this thread has waited for a CPU since it started.
///
/// Returns `None` if the kernel lacks `CONFIG_SCHED_INFO`
/// (Documentation/scheduler/sched-stats.rst).
fn cpu_wait() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds = text.split(' ').nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}
