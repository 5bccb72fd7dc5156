//! Which of several managers acts: the rules, without clock and API server.
//!
//! ```text
//!            Lease free, own or expired             renewed
//! Candidate ----------------------------> Leader <-----------+
//!     |  ^                                  |  |             |
//!     +--+ look again                       |  +--- renew ---+
//!                                           v
//!                             Lost: another holds it, or no renewal got through for too long;
//!                             a candidate again, once it has stopped acting
//! ```
//!
//! Clocks are not compared: a Lease has expired when *this* manager has seen it unchanged for as long
//! as it says.

use std::time::{Duration, Instant};

/// The times of an election.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// How long a Lease is good for after its last renewal.
    pub(crate) lease_duration: Duration,
    /// How long a leader acts on without renewal: less than the Lease is good for.
    pub(crate) renew_deadline: Duration,
    /// How often a leader renews: three times within the duration, so that one may be lost.
    pub(crate) renew_period: Duration,
    /// How long to wait after a failed attempt.
    pub(crate) retry_period: Duration,
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

/// What a Lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Who holds it; empty if nobody does.
    pub(crate) holder: String,
    /// Changes at each renewal.
    pub(crate) version: String,
    pub(crate) duration: Duration,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write the Lease, to take or renew it.
    Write,
    /// Look at it again after this time.
    Wait(Duration),
    /// Stop acting at once, then step down.
    Lost,
}

/// One manager's part in the election.
#[derive(Clone, Debug)]
pub(crate) struct Election {
    identity: String,
    pub(crate) timing: Timing,
    /// The Lease, and since when it is known to be so.
    seen: Option<(Record, Instant)>,
    /// When this manager has last begun a renewal that succeeded; it leads, if it has.
    renewed_at: Option<Instant>,
    /// When the last attempt was made.
    tried_at: Option<Instant>,
}

impl Election {
    /// Creates a candidate.
    pub(crate) fn new(identity: impl Into<String>, timing: Timing) -> Self {
        Self {
            identity: identity.into(),
            timing,
            seen: None,
            renewed_at: None,
            tried_at: None,
        }
    }

    /// Returns whether this manager acts.
    pub(crate) fn is_leader(&self) -> bool {
        self.renewed_at.is_some()
    }

    /// Notes what the Lease says; `None` if there is none.
    pub(crate) fn observe(&mut self, record: Option<Record>, now: Instant) {
        let unchanged = |seen: &(Record, Instant)| Some(&seen.0) == record.as_ref();
        if !self.seen.as_ref().is_some_and(unchanged) {
            self.seen = record.map(|record| (record, now));
        }
    }

    /// Notes that the Lease was written, in an attempt that began at `began_at`.
    pub(crate) fn written(&mut self, record: Record, began_at: Instant) {
        self.seen = Some((record, began_at));
        self.renewed_at = Some(began_at);
        self.tried_at = Some(began_at);
    }

    /// Notes that this manager has stopped acting, and is a candidate again.
    pub(crate) fn step_down(&mut self) {
        self.renewed_at = None;
        self.tried_at = None;
    }

    /// Returns how long a leader may go on at most if no renewal gets through.
    pub(crate) fn left(&self, now: Instant) -> Duration {
        let age = self
            .renewed_at
            .map(|at| now.saturating_duration_since(at))
            .unwrap_or_default();
        self.timing.renew_deadline.saturating_sub(age)
    }

    /// Notes that an attempt to read or write the Lease failed.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.tried_at = Some(now);
    }

    /// Returns what to do at `now`.
    pub(crate) fn step(&self, now: Instant) -> Step {
        let since_try = self.tried_at.map(|at| now.saturating_duration_since(at));
        let Some(renewed_at) = self.renewed_at else {
            return self.candidate_step(now);
        };
        let holder = self.seen.as_ref().map(|(record, _)| record.holder.as_str());
        let deadline = self.left(now);
        if holder.is_some_and(|holder| holder != self.identity) || deadline.is_zero() {
            return Step::Lost;
        }
        let has_failed = self.tried_at > self.renewed_at;
        let left = if has_failed {
            let retry_period = self.timing.retry_period;
            retry_period.saturating_sub(since_try.unwrap_or_default())
        } else {
            let age = now.saturating_duration_since(renewed_at);
            self.timing.renew_period.saturating_sub(age)
        };

        if left.is_zero() {
            Step::Write
        } else {
            Step::Wait(left.min(deadline))
        }
    }

    fn candidate_step(&self, now: Instant) -> Step {
        let Some((record, since)) = &self.seen else {
            return Step::Write;
        };
        if record.holder.is_empty() || record.holder == self.identity {
            return Step::Write;
        }
        let age = now.saturating_duration_since(*since);
        let left = record.duration.saturating_sub(age);

        if left.is_zero() {
            Step::Write
        } else {
            Step::Wait(left.min(self.timing.renew_period))
        }
    }
}

#[cfg(test)]
mod tests;
