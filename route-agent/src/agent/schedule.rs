//! The time of the next observation of the kernel's state. Pure: times are arguments.

use crate::kernel::events::Touched;
use std::time::{Duration, Instant};

/// Delay from the first kernel notification to the observation of the kernel's state. A change by
/// another program causes several notifications. The delay lets one observation handle all of them.
pub(super) const DEBOUNCE: Duration = Duration::from_millis(75);

/// Minimum time between two repairs. It limits the agent's CPU time if another program keeps
/// changing the agent's kernel objects. It must be less than two seconds, because the agent must
/// repair a change within that time.
const REAPPLY_GAP: Duration = Duration::from_secs(1);

/// Minimum time between two observations of the underlay alone. Each pod that starts or ends
/// changes devices of its node, which are rarely those of the underlay.
const UNDERLAY_GAP: Duration = Duration::from_secs(1);

/// Delay from a failed change of the kernel to the next attempt.
const RETRY: Duration = Duration::from_secs(1);

/// The parts of the kernel's state that may have changed since the last observation, and when to
/// observe them.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    touched: Touched,
    /// `None` if nothing is touched.
    at: Option<Instant>,
    repaired_at: Option<Instant>,
    underlay_observed_at: Option<Instant>,
}

impl Schedule {
    /// Adds parts of which the kernel has reported a change.
    pub(super) fn add(&mut self, touched: Touched, now: Instant) {
        self.touched |= touched;
        let gap_ends = if touched.is_underlay_only() {
            self.underlay_observed_at.map(|at| at + UNDERLAY_GAP)
        } else {
            self.repaired_at.map(|at| at + REAPPLY_GAP)
        };
        let earliest = now + DEBOUNCE;
        self.observe_by(gap_ends.map_or(earliest, |it| it.max(earliest)));
    }

    /// Adds all parts, after a failed change of the kernel.
    pub(super) fn retry(&mut self, now: Instant) {
        self.touched = Touched::ALL;
        self.observe_by(now + RETRY);
    }

    /// Returns the time of the next observation; `None` if nothing has changed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.at
    }

    /// Returns the parts to observe, which are observed now.
    pub(super) fn take(&mut self, now: Instant) -> Touched {
        self.at = None;
        let touched = std::mem::take(&mut self.touched);
        if touched.underlay {
            self.underlay_observed_at = Some(now);
        }

        touched
    }

    /// Notes that the agent has repaired a change by another program.
    pub(super) fn handle_repair(&mut self, now: Instant) {
        self.repaired_at = Some(now);
    }

    fn observe_by(&mut self, at: Instant) {
        self.at = Some(self.at.map_or(at, |it| it.min(at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNDERLAY: Touched = Touched {
        netlink: false,
        filter: false,
        underlay: true,
    };
    const NETLINK: Touched = Touched {
        netlink: true,
        filter: false,
        underlay: false,
    };

    #[test]
    fn devices_of_pods_cause_one_observation_per_second() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        let mut observed = 0;
        // 10 s, in which a device changes every 5 ms.
        for step in 0..2_000 {
            let now = start + Duration::from_millis(5) * step;
            schedule.add(UNDERLAY, now);
            if schedule.due().is_some_and(|at| at <= now) {
                assert_eq!(schedule.take(now), UNDERLAY);
                observed += 1;
            }
        }

        assert_eq!(observed, 10);
    }

    #[test]
    fn objects_of_the_agent_do_not_wait_for_the_underlay() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        schedule.add(UNDERLAY, start);
        schedule.take(start + DEBOUNCE);
        let now = start + DEBOUNCE * 2;
        schedule.add(UNDERLAY, now);
        assert_eq!(schedule.due(), Some(start + DEBOUNCE + UNDERLAY_GAP));

        schedule.add(NETLINK, now);

        assert_eq!(schedule.due(), Some(now + DEBOUNCE));
        let touched = schedule.take(now + DEBOUNCE);
        assert!(touched.netlink && touched.underlay);
        assert_eq!(schedule.due(), None);
    }

    #[test]
    fn the_first_of_several_notifications_decides() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        schedule.add(NETLINK, start);
        schedule.add(NETLINK, start + DEBOUNCE / 2);
        assert_eq!(schedule.due(), Some(start + DEBOUNCE));
    }

    #[test]
    fn a_repair_delays_the_next_one() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        schedule.handle_repair(start);
        schedule.add(NETLINK, start);
        assert_eq!(schedule.due(), Some(start + REAPPLY_GAP));
    }

    #[test]
    fn after_a_failure_all_parts_are_observed() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        schedule.retry(start);
        assert_eq!(schedule.due(), Some(start + RETRY));
        assert_eq!(schedule.take(start + RETRY), Touched::ALL);
    }
}
