//! Liveness of one session, by questions and answers.
//!
//! ```text
//!   PING every 250 ms (ours), 2 s (upstream)
//!   answered ---> alive
//!   ours:      asked again after two round trips, 100 ms at least;
//!              three unanswered and a grace of two round trips ---> lost
//!   upstream:  no answer, nor anything else, for 10 s            ---> lost
//!   unknown:   never lost: it may be plain WireGuard
//! ```

use super::interface::Kind;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Between our own gateways.
pub(super) const OURS_INTERVAL: Duration = Duration::from_millis(250);
/// How long an answer is waited for before the question is put again: a dead
/// gateway must be known before TCP's second retransmission, 600 ms after the first
/// loss, has been in vain too; the third comes only 800 ms later.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// Towards upstream's gateways, its own interval.
const UPSTREAM_INTERVAL: Duration = Duration::from_secs(2);
/// Upstream's own threshold: 5 intervals.
const UPSTREAM_THRESHOLD: Duration = Duration::from_secs(10);
/// Unanswered questions after which a session between our own is lost.
const MISSES_MAX: u32 = 3;
/// How long the last of them is waited for: two round trips within these bounds.
const GRACE_MIN: Duration = Duration::from_millis(50);
const GRACE_MAX: Duration = Duration::from_secs(2);
/// The same while no round trip is known.
const GRACE_UNKNOWN: Duration = Duration::from_millis(750);
/// A peer from which packets came this recently is not dead: its answers were
/// lost in a full queue, say.
const HEARD: Duration = Duration::from_millis(300);
/// But a session that only hears and is not heard is lost after this.
const ONE_WAY_MAX: Duration = Duration::from_secs(3);
/// Questions at the quick interval before an unknown peer is taken for one that
/// does not answer.
const EAGER_PINGS: u32 = 8;
/// Questions remembered: 8 s of quick ones.
const OUTSTANDING_MAX: usize = 32;

/// The state machine of one session's probe.
#[derive(Debug)]
pub(super) struct Liveness {
    started: Instant,
    next_ping: Instant,
    pings: u32,
    outstanding: VecDeque<Question>,
    /// Questions since the last answered one, without padded ones.
    unanswered: u32,
    /// When the last of the questions was asked that may stay unanswered.
    exhausted: Instant,
    last_answer: Option<Instant>,
    rtt: Option<Duration>,
}

#[derive(Debug)]
struct Question {
    /// Its time stamp, in nanoseconds since the Unix epoch.
    sent: i128,
    at: Instant,
    /// The inner packet's length, if it measures the path.
    size: Option<u16>,
}

/// What an answer tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Time since its question.
    pub(super) rtt: Duration,
    /// When its question was asked.
    pub(super) asked: Instant,
    /// The inner length that its question measured.
    pub(super) size: Option<u16>,
}

impl Liveness {
    /// Creates a machine whose first question is due at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            started: now,
            next_ping: now,
            pings: 0,
            outstanding: VecDeque::new(),
            unanswered: 0,
            exhausted: now,
            last_answer: None,
            rtt: None,
        }
    }

    /// Starts anew, after a handshake.
    pub(super) fn restart(&mut self, now: Instant) {
        let rtt = self.rtt;
        *self = Self {
            rtt,
            ..Self::new(now)
        };
    }

    /// Returns the smoothed round-trip time.
    pub(super) fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Returns whether a question was ever answered.
    pub(super) fn is_answered(&self) -> bool {
        self.last_answer.is_some()
    }

    /// Returns whether answers come, by upstream's measure: what a connection's
    /// state shows. A session may live without.
    pub(super) fn is_answering(&self, kind: Kind, now: Instant) -> bool {
        self.last_answer.is_some_and(|answered| {
            kind == Kind::Ours || now.duration_since(answered) < UPSTREAM_THRESHOLD
        })
    }

    /// Returns whether the last question was answered, or may still be.
    pub(super) fn is_healthy(&self) -> bool {
        self.is_answered() && self.unanswered <= 1
    }

    /// Makes the next question due at once.
    pub(super) fn ping_now(&mut self, now: Instant) {
        self.next_ping = now;
    }

    /// Asks with all other sessions, at a moment when each is looked at anyway: each wake-up costs
    /// more than a question. Once so, its questions stay there, [`OURS_INTERVAL`] apart.
    pub(super) fn handle_tick(&mut self, kind: Kind, now: Instant) {
        let is_due_before_next = self.next_ping <= now + OURS_INTERVAL;
        if kind == Kind::Ours && self.unanswered == 0 && is_due_before_next {
            self.next_ping = self.next_ping.min(now);
        }
    }

    /// Returns whether a question is due, and plans the next one.
    pub(super) fn poll_ping(&mut self, kind: Kind, now: Instant) -> bool {
        if now < self.next_ping {
            return false;
        }

        let interval = match kind {
            // An answer puts it off to the full interval.
            Kind::Ours => self.rtt.map_or(OURS_INTERVAL, |rtt| {
                (rtt * 2).clamp(RETRY_MIN, OURS_INTERVAL)
            }),
            Kind::Upstream => UPSTREAM_INTERVAL,
            Kind::Unknown if self.pings < EAGER_PINGS => OURS_INTERVAL,
            Kind::Unknown => UPSTREAM_INTERVAL,
        };
        // From the planned time on, so that rounding does not add up; but never a
        // burst after a pause.
        self.next_ping = (self.next_ping + interval).max(now + interval / 2);
        true
    }

    /// Notes that a question was sent.
    pub(super) fn handle_sent(&mut self, sent: i128, size: Option<u16>, now: Instant) {
        if self.outstanding.len() == OUTSTANDING_MAX {
            self.outstanding.pop_front();
        }
        self.outstanding.push_back(Question {
            sent,
            at: now,
            size,
        });
        if size.is_none() {
            self.pings = self.pings.saturating_add(1);
            self.unanswered = self.unanswered.saturating_add(1);
            if self.unanswered == MISSES_MAX {
                self.exhausted = now;
            }
        }
    }

    /// Handles the answer to the question of the time stamp `sent`; `None` if there
    /// is no such question (any more).
    pub(super) fn handle_answer(&mut self, sent: i128, now: Instant) -> Option<Answer> {
        let position = self.outstanding.iter().position(|q| q.sent == sent)?;
        let question = self.outstanding.remove(position)?;
        let rtt = now.saturating_duration_since(question.at);
        if question.size.is_none() {
            // Older ones may be measuring the path still: those stay.
            self.outstanding
                .retain(|q| q.at >= question.at || q.size.is_some());
            let later = self.outstanding.iter().filter(|q| q.size.is_none());
            self.unanswered = 0;
            for question in later {
                self.unanswered += 1;
                if self.unanswered == MISSES_MAX {
                    self.exhausted = question.at;
                }
            }
            self.last_answer = Some(now);
            self.next_ping = self.next_ping.max(question.at + OURS_INTERVAL);
            self.rtt = Some(self.rtt.map_or(rtt, |old| (old * 3 + rtt) / 4).max(rtt / 2));
        }

        Some(Answer {
            rtt,
            asked: question.at,
            size: question.size,
        })
    }

    /// Forgets the misses: this process, not the peer, was late.
    pub(super) fn forgive(&mut self) {
        self.unanswered = 0;
    }

    /// Returns when the session will be lost if nothing more is heard; `heard` is
    /// when the last authenticated message came.
    pub(super) fn lost_at(&self, kind: Kind, heard: Instant) -> Option<Instant> {
        match kind {
            Kind::Unknown => None,
            Kind::Upstream => self
                .last_answer
                .map(|answered| answered.max(heard) + UPSTREAM_THRESHOLD),
            Kind::Ours if self.unanswered < MISSES_MAX => None,
            Kind::Ours => {
                let grace = self
                    .rtt
                    .map_or(GRACE_UNKNOWN, |rtt| (rtt * 2).clamp(GRACE_MIN, GRACE_MAX));
                let missed = self.exhausted + grace;
                let one_way = self.last_answer.unwrap_or(self.started) + ONE_WAY_MAX;

                Some(missed.max((heard + HEARD).min(one_way)))
            }
        }
    }

    /// Returns whether the session is lost at `now`.
    pub(super) fn is_lost(&self, kind: Kind, heard: Instant, now: Instant) -> bool {
        self.lost_at(kind, heard).is_some_and(|at| at <= now)
    }

    /// Returns when something is due.
    pub(super) fn poll_timeout(&self, kind: Kind, heard: Instant) -> Instant {
        self.lost_at(kind, heard)
            .map_or(self.next_ping, |at| at.min(self.next_ping))
    }
}

#[cfg(test)]
mod tests;
