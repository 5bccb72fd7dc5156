//! Which of several managers acts: the rules, without clock and API server.
//!
//! ```text
//!            Lease free, own or expired             renewed
//! Candidate ----------------------------> Leader <-----------+
//!     |  ^                                  |  |             |
//!     +--+ look again                       |  +--- renew ---+
//!                                           v
//!                             Lost: another holds it, or no renewal got through for too long
//! ```
//!
//! Clocks are not compared: a Lease has expired when *this* manager has seen it unchanged for as long
//! as it says.

use std::time::{Duration, Instant};

/// How long a Lease is good for after its last renewal.
pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(15);
/// How long a leader acts on without renewal.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How long to wait after a failed attempt.
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// How often a leader renews: three times within the duration, so that one may be lost.
const RENEW_PERIOD: Duration = Duration::from_secs(5);

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
    /// Stop acting at once.
    Lost,
}

/// One manager's part in the election.
#[derive(Clone, Debug)]
pub(crate) struct Election {
    identity: String,
    /// The Lease, and since when it is known to be so.
    seen: Option<(Record, Instant)>,
    /// When this manager has last begun a renewal that succeeded; it leads, if it has.
    renewed_at: Option<Instant>,
    /// When the last attempt was made.
    tried_at: Option<Instant>,
}

impl Election {
    /// Creates a candidate.
    pub(crate) fn new(identity: impl Into<String>) -> Self {
        Self {
            identity: identity.into(),
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
        let age = now.saturating_duration_since(renewed_at);
        if holder.is_some_and(|holder| holder != self.identity) || age >= RENEW_DEADLINE {
            return Step::Lost;
        }
        let has_failed = self.tried_at > self.renewed_at;
        let left = if has_failed {
            RETRY_PERIOD.saturating_sub(since_try.unwrap_or_default())
        } else {
            RENEW_PERIOD.saturating_sub(age)
        };

        if left.is_zero() {
            Step::Write
        } else {
            Step::Wait(left.min(RENEW_DEADLINE.saturating_sub(age)))
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
            Step::Wait(left.min(RENEW_PERIOD))
        }
    }
}

#[cfg(test)]
mod tests;
