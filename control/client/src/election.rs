//! Leader election by a Lease: the rules, without clock and API server.
//!
//! ```text
//!            Lease free, own or expired             renewed
//! Candidate ----------------------------> Leader <-----------+
//!     ^  |                                  |  |             |
//!     |  +--- wait until it expires         |  +--- renew ---+
//!     |                                     v
//!     +---------------- Lost: another holds it, or no renewal succeeded for too long
//! ```
//!
//! Clocks of replicas are not compared: a Lease has expired when this replica has not seen it change
//! for as long as the Lease says.

use nix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

mod holder;

pub use holder::{Candidate, ElectionEvent};

/// A time of `CLOCK_BOOTTIME`, which continues while the machine is suspended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct BootTime(Duration);

impl BootTime {
    /// Returns the present time.
    fn now() -> Self {
        // The clock exists since Linux 2.6.39; without it no time would be right.
        let time = clock_gettime(ClockId::CLOCK_BOOTTIME);
        Self(time.map(Duration::from).unwrap_or_default())
    }

    fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::ops::Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

/// Durations of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Validity of a Lease after its last renewal.
    pub lease_duration: Duration,
    /// Time without renewal after which a leader starts no write. Shorter than the validity.
    pub renew_deadline: Duration,
    /// Interval of renewals.
    pub renew_period: Duration,
    /// Delay from the start of a failed attempt to the next one.
    pub retry_period: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            renew_period: Duration::from_secs(5),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// A Lease, and the durations of its election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Durations of the election.
    pub timing: Timing,
}

/// The right to send the writes of a leader, from when a Lease is acquired until it is lost. Clones
/// share the state. A write that was planned in one period is not sent in a later one.
///
/// A [`Transport`](crate::transport::Transport) does not send a request that has a leadership among its
/// extensions once the leadership has ended.
#[derive(Clone, Debug, Default)]
pub struct Leadership {
    /// End of the right to start writes, in nanoseconds of [`BootTime`]; 0 for a standby.
    deadline: Arc<AtomicU64>,
}

impl Leadership {
    /// Returns the leadership of a process without election: it never ends.
    pub fn permanent() -> Self {
        let leadership = Self::default();
        leadership.deadline.store(u64::MAX, Ordering::Release);
        leadership
    }

    /// Returns whether a write of the leader may start now.
    pub fn may_write(&self) -> bool {
        !self.left().is_zero()
    }

    /// Waits until no write of the leader may start.
    pub(crate) async fn ended(&self) {
        loop {
            let left = self.left();
            if left.is_zero() {
                return;
            }
            // A renewal may move the deadline meanwhile.
            tokio::time::sleep(left).await;
        }
    }

    /// Returns a leadership that ends after `duration`, unless it is extended.
    #[cfg(test)]
    pub(crate) fn lasting(duration: Duration) -> Self {
        let leadership = Self::default();
        leadership.extend(duration);
        leadership
    }

    /// Lets the leadership end `duration` from now.
    #[cfg(test)]
    pub(crate) fn extend(&self, duration: Duration) {
        self.set(Some(BootTime::now() + duration));
    }

    /// Returns how long writes of the leader may still start.
    fn left(&self) -> Duration {
        let deadline = Duration::from_nanos(self.deadline.load(Ordering::Acquire));
        BootTime(deadline).since(BootTime::now())
    }

    /// Sets the end of the right to start writes. Returns whether the right has lasted until now.
    fn set(&self, deadline: Option<BootTime>) -> bool {
        let nanos = deadline.map_or(0, |at| u64::try_from(at.0.as_nanos()).unwrap_or(u64::MAX));
        let previous = self.deadline.swap(nanos, Ordering::AcqRel);
        let now = u64::try_from(BootTime::now().0.as_nanos()).unwrap_or(u64::MAX);
        now < previous
    }
}

/// Content of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    /// Identity of the holder; empty if there is none.
    holder: String,
    /// Resource version: changes with each renewal.
    version: String,
    duration: Duration,
}

/// Next step of the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Write the Lease, to acquire or renew it.
    Write,
    /// Wait this long, or for a change of the Lease.
    Wait(Duration),
    /// Stop writing: the Lease is lost.
    Lost,
}

/// One replica's part in an election.
#[derive(Clone, Debug)]
struct Election {
    identity: String,
    timing: Timing,
    /// The Lease, and since when it is known to be unchanged.
    seen: Option<(Record, BootTime)>,
    /// Start of the last renewal that succeeded; the replica leads if there is one.
    renewed_at: Option<BootTime>,
    /// Start of the last attempt that failed.
    failed_at: Option<BootTime>,
}

impl Election {
    fn new(identity: &str, timing: Timing) -> Self {
        Self {
            identity: identity.to_owned(),
            timing,
            seen: None,
            renewed_at: None,
            failed_at: None,
        }
    }

    /// Notes what the Lease contains; `None` if there is no Lease.
    fn observe(&mut self, record: Option<Record>, now: BootTime) {
        let is_known = match (&self.seen, &record) {
            (Some((seen, _)), Some(record)) => seen == record,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !is_known {
            self.seen = record.map(|record| (record, now));
        }
    }

    /// Notes that a write succeeded that began at `began_at`.
    fn written(&mut self, record: Record, began_at: BootTime) {
        self.seen = Some((record, began_at));
        self.renewed_at = Some(began_at);
        self.failed_at = None;
    }

    /// Notes that a read or write of the Lease failed that began at `began_at`. The delay before the next
    /// attempt counts from then: a request that times out leaves too little time for another delay.
    fn failed(&mut self, began_at: BootTime) {
        self.failed_at = Some(began_at);
    }

    /// Makes the replica a candidate again.
    fn step_down(&mut self) {
        self.renewed_at = None;
        self.failed_at = None;
    }

    /// Returns until when the leader may start writes.
    fn deadline(&self) -> Option<BootTime> {
        self.renewed_at.map(|at| at + self.timing.renew_deadline)
    }

    fn step(&self, now: BootTime) -> Step {
        let next_try = (self.failed_at)
            .map(|at| (at + self.timing.retry_period).since(now))
            .unwrap_or_default();
        let Some(renewed_at) = self.renewed_at else {
            return wait_or_write(next_try.max(self.until_free(now)));
        };
        let left = (renewed_at + self.timing.renew_deadline).since(now);
        let holder = self.seen.as_ref().map(|(record, _)| record.holder.as_str());
        if left.is_zero() || holder.is_some_and(|holder| holder != self.identity) {
            return Step::Lost;
        }
        let until_renewal = (renewed_at + self.timing.renew_period).since(now);

        wait_or_write(next_try.max(until_renewal).min(left))
    }

    /// Returns how long another replica holds the Lease at most.
    fn until_free(&self, now: BootTime) -> Duration {
        let Some((record, since)) = &self.seen else {
            return Duration::ZERO;
        };
        if record.holder.is_empty() || record.holder == self.identity {
            return Duration::ZERO;
        }

        (*since + record.duration).since(now)
    }
}

fn wait_or_write(time: Duration) -> Step {
    if time.is_zero() {
        Step::Write
    } else {
        Step::Wait(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> BootTime {
        BootTime(Duration::from_secs(1_000 + seconds))
    }

    fn record(holder: &str, version: u32) -> Record {
        Record {
            holder: holder.into(),
            version: version.to_string(),
            duration: SECOND * 15,
        }
    }

    fn election() -> Election {
        Election::new("a", Timing::default())
    }

    #[test]
    fn a_free_lease_is_written_at_once() {
        let mut election = election();
        assert_eq!(election.step(at(0)), Step::Write);
        election.observe(Some(record("", 1)), at(0));
        assert_eq!(election.step(at(0)), Step::Write);
        election.observe(Some(record("a", 2)), at(0));
        assert_eq!(election.step(at(0)), Step::Write);
    }

    #[test]
    fn a_standby_writes_when_the_last_renewal_that_it_saw_has_expired() {
        let mut election = election();
        election.observe(Some(record("b", 1)), at(0));
        assert_eq!(election.step(at(5)), Step::Wait(SECOND * 10));
        election.observe(Some(record("b", 1)), at(7));
        assert_eq!(election.step(at(7)), Step::Wait(SECOND * 8));
        election.observe(Some(record("b", 2)), at(10));
        assert_eq!(election.step(at(15)), Step::Wait(SECOND * 10));
        assert_eq!(election.step(at(25)), Step::Write);
    }

    #[test]
    fn a_leader_renews_retries_and_stops_before_the_lease_expires() {
        let mut election = election();
        election.written(record("a", 1), at(0));
        assert_eq!(election.deadline(), Some(at(10)));
        assert_eq!(election.step(at(1)), Step::Wait(SECOND * 4));
        assert_eq!(election.step(at(5)), Step::Write);
        election.failed(at(5));
        assert_eq!(election.step(at(5)), Step::Wait(SECOND * 2));
        assert_eq!(election.step(at(7)), Step::Write);
        election.failed(at(9));
        assert_eq!(election.step(at(9)), Step::Wait(SECOND));
        assert_eq!(election.step(at(10)), Step::Lost);
    }

    /// The server is dead on the connection of the first attempt, and replies on the next connection.
    #[test]
    fn a_leader_whose_renewal_times_out_repeats_it_before_the_renew_deadline() {
        let mut election = election();
        election.written(record("a", 1), at(0));
        assert_eq!(election.step(at(5)), Step::Write);
        let ended_at = at(5) + crate::transport::Kind::Lease.deadline();

        election.failed(at(5));

        assert_eq!(election.step(ended_at), Step::Write);
    }

    #[test]
    fn a_leader_has_lost_a_lease_that_another_holds() {
        let mut election = election();
        election.written(record("a", 1), at(0));
        election.observe(Some(record("b", 2)), at(1));
        assert_eq!(election.step(at(1)), Step::Lost);
        election.step_down();
        assert_eq!(election.step(at(1)), Step::Wait(SECOND * 15));
    }

    #[test]
    fn writes_are_allowed_until_the_deadline_only() {
        let leadership = Leadership::default();
        assert!(!leadership.may_write());
        assert!(!leadership.set(Some(BootTime::now() + SECOND * 60)));
        assert!(leadership.may_write());
        assert!(leadership.set(Some(BootTime::now())));
        assert!(!leadership.may_write());
        assert!(!leadership.set(Some(BootTime::now() + SECOND)));
        assert!(Leadership::permanent().may_write());
    }
}
