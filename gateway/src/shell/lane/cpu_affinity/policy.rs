//! Decides when a worker is pinned to its own CPUs.
//!
//! Light work is a wake-up with at most two packets and 2 KiB; bulk work is a wake-up with more.
//!
//! ```text
//!         bulk work, or long waits for the own CPUs
//!         +---------------------------------------+
//!         |                                       v
//!      Pinned                                  Unpinned
//!         ^                                       |
//!         +---------------------------------------+
//!            light work for a while, or no packet for a second
//! ```

use std::time::{Duration, Instant};

/// Maximum number of packets of a wake-up with light work.
const LIGHT_PACKETS_MAX: u64 = 2;

/// Maximum number of bytes of a wake-up with light work.
const LIGHT_BYTES_MAX: u64 = 2048;

/// Number and minimum duration of consecutive wake-ups with light work until the worker is pinned.
///
/// The delay limits the rate of thread migrations, which cost time.
const PIN_AFTER: (u32, Duration) = (16, Duration::from_millis(20));

/// Number and minimum duration of wake-ups with light work, after which a pinned worker checks how
/// long it has waited for its own CPUs.
const CHECK_AFTER: (u32, Duration) = (64, Duration::from_millis(100));

/// Mean time per wake-up that a pinned worker may wait for its own CPUs before it is unpinned.
const WAIT_MAX: Duration = Duration::from_micros(250);

/// Time without a packet after which the worker is pinned again.
const IDLE: Duration = Duration::from_secs(1);

/// Minimum time for which a worker stays unpinned after long waits for its CPUs.
const UNPINNED_MIN: Duration = Duration::from_secs(3);

/// The packets that a wake-up, or a lane since its start, has read from and written to the TAP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Work {
    /// Number of packets and super-packets.
    pub(in super::super) packets: u64,
    pub(in super::super) bytes: u64,
}

impl Work {
    /// Returns the difference to the earlier value `before`.
    pub(in super::super) fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
        }
    }

    fn is_light(self) -> bool {
        self.packets <= LIGHT_PACKETS_MAX && self.bytes <= LIGHT_BYTES_MAX
    }
}

/// A change of the worker's affinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The affinity does not change.
    Keep,
    /// The caller must call [`Policy::handle_wait`], which makes the decision.
    CheckWait,
    /// The worker must run on its own CPUs.
    Pin,
    /// The worker may run on any CPU.
    Unpin,
}

/// The state machine that decides when one worker is pinned.
#[derive(Debug)]
pub(super) struct Policy {
    is_pinned: bool,
    last_packet: Instant,
    /// Number of consecutive wake-ups with light work.
    light_wake_ups: u32,
    /// Start of the wake-ups that `light_wake_ups` counts.
    light_since: Instant,
    /// Total time that the worker had waited for a CPU at the last check.
    waited: Option<Duration>,
    /// Time until which the worker must not be pinned.
    unpinned_until: Option<Instant>,
}

impl Policy {
    /// Creates the state machine of a pinned worker.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            is_pinned: true,
            last_packet: now,
            light_wake_ups: 0,
            light_since: now,
            waited: None,
            unpinned_until: None,
        }
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.is_pinned
    }

    /// Decides on the affinity after a wake-up that did `work`.
    pub(super) fn handle_wake_up(&mut self, work: Work, now: Instant) -> Decision {
        if work.packets == 0 {
            // Wake-ups for timers and probes are too rare to measure the wait for a CPU.
            let is_idle = now.saturating_duration_since(self.last_packet) >= IDLE;
            return if is_idle {
                self.pin(now)
            } else {
                Decision::Keep
            };
        }
        self.last_packet = now;
        if !work.is_light() {
            self.start_over(now);
            return self.unpin();
        }

        self.light_wake_ups = self.light_wake_ups.saturating_add(1);
        let (wake_ups, duration) = if self.is_pinned {
            CHECK_AFTER
        } else {
            PIN_AFTER
        };
        if self.light_wake_ups < wake_ups
            || now.saturating_duration_since(self.light_since) < duration
        {
            return Decision::Keep;
        }
        if !self.is_pinned {
            return self.pin(now);
        }
        Decision::CheckWait
    }

    /// Decides on the affinity after [`Decision::CheckWait`].
    ///
    /// `waited` is the total time that the worker has waited for a CPU, or `None` if it is unknown.
    pub(super) fn handle_wait(&mut self, waited: Option<Duration>, now: Instant) -> Decision {
        let before = std::mem::replace(&mut self.waited, waited);
        let wake_ups = self.light_wake_ups.max(1);
        self.start_over(now);
        let (Some(before), Some(waited)) = (before, waited) else {
            return Decision::Keep;
        };
        if waited.saturating_sub(before) / wake_ups <= WAIT_MAX {
            return Decision::Keep;
        }
        self.unpinned_until = Some(now + UNPINNED_MIN);
        self.unpin()
    }

    fn unpin(&mut self) -> Decision {
        if std::mem::replace(&mut self.is_pinned, false) {
            return Decision::Unpin;
        }
        Decision::Keep
    }

    fn pin(&mut self, now: Instant) -> Decision {
        if self.is_pinned || self.unpinned_until.is_some_and(|until| now < until) {
            return Decision::Keep;
        }
        self.is_pinned = true;
        self.waited = None;
        self.start_over(now);
        Decision::Pin
    }

    fn start_over(&mut self, now: Instant) {
        self.light_wake_ups = 0;
        self.light_since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker with a simulated clock.
    struct Worker {
        policy: Policy,
        now: Instant,
        waited: Duration,
    }

    impl Worker {
        fn new() -> Self {
            let now = Instant::now();
            Self {
                policy: Policy::new(now),
                now,
                waited: Duration::ZERO,
            }
        }

        fn wakes_up_for(&mut self, packets: u64) -> Decision {
            self.now += Duration::from_millis(2);
            let work = Work {
                packets,
                bytes: packets * 84,
            };
            match self.policy.handle_wake_up(work, self.now) {
                Decision::CheckWait => self.policy.handle_wait(Some(self.waited), self.now),
                decision @ (Decision::Keep | Decision::Pin | Decision::Unpin) => decision,
            }
        }

        /// Simulates wake-ups with one packet each; returns all decisions except
        /// [`Decision::Keep`].
        fn moves_single_packets(&mut self, wake_ups: u32) -> Vec<Decision> {
            let decisions = (0..wake_ups).map(|_| self.wakes_up_for(1));
            decisions.filter(|it| *it != Decision::Keep).collect()
        }
    }

    #[test]
    fn a_worker_stays_pinned_under_light_work() {
        assert_eq!(Worker::new().moves_single_packets(10_000), []);
    }

    #[test]
    fn a_burst_unpins_at_once_and_light_work_pins_again() {
        let mut it = Worker::new();

        assert_eq!(it.wakes_up_for(LIGHT_PACKETS_MAX + 1), Decision::Unpin);
        assert_eq!(it.wakes_up_for(LIGHT_PACKETS_MAX + 1), Decision::Keep);
        assert_eq!(it.moves_single_packets(PIN_AFTER.0 - 1), []);
        assert_eq!(it.wakes_up_for(LIGHT_PACKETS_MAX + 1), Decision::Keep);
        assert_eq!(it.moves_single_packets(1000), [Decision::Pin]);
    }

    #[test]
    fn an_idle_worker_is_pinned_again() {
        let mut it = Worker::new();
        it.wakes_up_for(LIGHT_PACKETS_MAX + 1);

        let idle: Vec<_> = (0..IDLE.as_millis()).map(|_| it.wakes_up_for(0)).collect();
        assert_eq!(idle.iter().filter(|it| **it == Decision::Pin).count(), 1);
        assert_eq!(idle[0], Decision::Keep);
    }

    #[test]
    fn many_wake_ups_within_a_moment_do_not_pin() {
        let mut it = Worker::new();
        it.wakes_up_for(LIGHT_PACKETS_MAX + 1);
        let now = it.now;
        let work = Work {
            packets: 1,
            bytes: 84,
        };

        for _ in 1..10_000 {
            assert_eq!(it.policy.handle_wake_up(work, now), Decision::Keep);
        }
    }

    #[test]
    fn a_worker_that_waits_for_its_cpus_is_unpinned_for_a_while() {
        let mut it = Worker::new();
        it.moves_single_packets(1000);

        it.waited += WAIT_MAX * 4 * CHECK_AFTER.0;
        assert_eq!(it.moves_single_packets(1000), [Decision::Unpin]);
        assert_eq!(it.moves_single_packets(500), []);
        assert_eq!(it.moves_single_packets(2000), [Decision::Pin]);
    }

    #[test]
    fn an_unknown_wait_changes_nothing() {
        let mut it = Worker::new();
        let now = it.now;

        assert_eq!(it.policy.handle_wait(None, now), Decision::Keep);
        assert_eq!(it.policy.handle_wait(None, now), Decision::Keep);
    }
}
