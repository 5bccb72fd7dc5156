//! Checks of the way to each remote cluster's nodes and back, as a state machine without IO.
//!
//! The owner feeds input (`handle_*`), then drains `poll_transmit`, reads `poll_change` and
//! waits until `poll_timeout`; it alone owns the socket and the clock.
//!
//! ```text
//!  a question goes the way of every packet: rule, route, nexthop group, overlay, gateway,
//!  tunnel, remote gateway, remote overlay, to a node of the gateway's choice; the answer back
//!
//!  Unknown --answer--> Whole --`MISSES_MAX` in a row unanswered--> Lost --answer--> Whole
//!      `---------------------- the same ------------------------->'
//! ```
//! A question that is unanswered for [`ANSWER_TIMEOUT`] is repeated at once, so that a broken
//! way is known within [`INTERVAL`] and three timeouts, 2.2 s. One that was never answered is asked
//! ever more rarely: the cluster's software may be another.

use message::Token;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

pub(crate) mod message;

/// Between two questions to a cluster that answers.
const INTERVAL: Duration = Duration::from_secs(1);

/// Between two to one that has never answered.
const RARE_INTERVAL: Duration = Duration::from_secs(10);

/// Questions to one that has never answered before they become rare.
const EAGER_QUESTIONS: u32 = 8;

/// How long to wait before a question is repeated; its answer may come later still.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(400);

/// Unanswered questions in a row that make a way lost.
const MISSES_MAX: u8 = 3;

/// Questions of one cluster whose answers are still waited for: ways of 1.6 s are whole, too.
const OUTSTANDING_MAX: usize = 4;

/// Between two questions to whomever: 50 a second, at most 1 % of a core. With more than
/// fifty clusters they take turns.
const GAP: Duration = Duration::from_millis(20);

/// The way to a cluster's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not checked long enough.
    Unknown,
    /// Questions are answered.
    Whole,
    /// They are not.
    Lost,
}

/// What is known of the way to one cluster, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// Whether questions are answered.
    pub(crate) phase: Phase,
    /// Whether one ever was.
    pub(crate) was_answered: bool,
    /// Round-trip time of the last answer.
    pub(crate) rtt: Option<Duration>,
}

/// A question to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transmit {
    /// The cluster's address that stands for any of its nodes.
    pub(crate) to: Ipv4Addr,
    /// The payload.
    pub(crate) payload: [u8; message::LEN],
}

/// The state machine.
#[derive(Debug)]
pub(crate) struct Paths {
    /// Nobody can guess it; each question's is another.
    token: u64,
    clusters: BTreeMap<String, Way>,
    /// When the next question may be sent, to whomever.
    next: Instant,
    transmits: VecDeque<Transmit>,
    has_changed: bool,
}

#[derive(Debug)]
struct Way {
    target: Ipv4Addr,
    phase: Phase,
    /// Unanswered questions, oldest first.
    outstanding: VecDeque<(Token, Instant)>,
    misses: u8,
    asked: u32,
    was_answered: bool,
    due: Instant,
    rtt: Option<Duration>,
}

impl Paths {
    /// Creates a machine without clusters, whose questions bear numbers from `token` on.
    pub(crate) fn new(token: u64, now: Instant) -> Self {
        Self {
            token,
            clusters: BTreeMap::new(),
            next: now,
            transmits: VecDeque::new(),
            has_changed: false,
        }
    }

    /// Sets the clusters that gateways reach, and the address to check at each.
    ///
    /// One that is new, or reached again, begins anew.
    pub(crate) fn set_targets(&mut self, targets: &BTreeMap<String, Ipv4Addr>, now: Instant) {
        let before = self.lost();
        self.clusters
            .retain(|id, way| targets.get(id) == Some(&way.target));
        for (id, target) in targets {
            self.clusters
                .entry(id.clone())
                .or_insert_with(|| Way::new(*target, now));
        }
        self.has_changed |= before != self.lost();
    }

    /// Handles an answer that came from `from`.
    pub(crate) fn handle_answer(&mut self, from: Ipv4Addr, token: Token, now: Instant) {
        let mut ways = self.clusters.values_mut();
        if let Some(way) = ways.find(|way| way.target == from) {
            self.has_changed |= way.handle_answer(token, now);
        }
    }

    /// Advances time to `now`.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while self.next <= now {
            let ways = self.clusters.values_mut().filter(|way| way.due <= now);
            let Some(way) = ways.min_by_key(|way| way.due) else {
                return;
            };
            self.has_changed |= way.handle_silence();
            self.token = self.token.wrapping_add(1);
            let token = Token::new(self.token);
            way.handle_sent(token, now);
            self.transmits.push_back(Transmit {
                to: way.target,
                payload: message::question(token),
            });
            // After a pause no burst.
            self.next = now + GAP;
        }
    }

    /// Returns when [`Paths::handle_timeout`] is next due; `None` without clusters.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.clusters.values().map(|way| way.due).min()?;
        Some(due.max(self.next))
    }

    /// Returns the next question to send.
    pub(crate) fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Tells whether some way was lost or is whole again since the last call.
    pub(crate) fn poll_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Returns the clusters whose nodes are not reached.
    pub(crate) fn lost(&self) -> BTreeSet<String> {
        let ways = self.clusters.iter();
        ways.filter(|(_, way)| way.phase == Phase::Lost)
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Returns what is known of the way to a cluster, if it is checked.
    pub(crate) fn report(&self, cluster_id: &str) -> Option<Report> {
        let way = self.clusters.get(cluster_id)?;

        Some(Report {
            phase: way.phase,
            was_answered: way.was_answered,
            rtt: way.rtt,
        })
    }
}

impl Way {
    fn new(target: Ipv4Addr, now: Instant) -> Self {
        Self {
            target,
            phase: Phase::Unknown,
            outstanding: VecDeque::new(),
            misses: 0,
            asked: 0,
            was_answered: false,
            due: now,
            rtt: None,
        }
    }

    /// Notes an answer; returns whether that changes the phase.
    fn handle_answer(&mut self, token: Token, now: Instant) -> bool {
        let position = self.outstanding.iter().position(|(it, _)| *it == token);
        let answered = position.and_then(|it| self.outstanding.drain(..=it).next_back());
        let Some((_, sent)) = answered else {
            return false; // Forged, repeated or too late.
        };

        let has_changed = self.phase != Phase::Whole;
        self.phase = Phase::Whole;
        self.was_answered = true;
        self.misses = 0;
        self.rtt = Some(now.saturating_duration_since(sent));
        if self.outstanding.is_empty() {
            self.due = sent + INTERVAL;
        }

        has_changed
    }

    /// Counts the last question as unanswered, if it is; returns whether that changes the phase.
    fn handle_silence(&mut self) -> bool {
        if self.outstanding.is_empty() {
            return false;
        }
        self.misses = self.misses.saturating_add(1);
        if self.misses < MISSES_MAX || self.phase == Phase::Lost {
            return false;
        }

        self.phase = Phase::Lost;
        self.rtt = None;
        true
    }

    fn handle_sent(&mut self, token: Token, now: Instant) {
        if self.outstanding.len() >= OUTSTANDING_MAX {
            self.outstanding.pop_front();
        }
        self.outstanding.push_back((token, now));
        self.asked = self.asked.saturating_add(1);
        let wait = match self.phase {
            Phase::Unknown | Phase::Whole => ANSWER_TIMEOUT,
            Phase::Lost if !self.was_answered && self.asked >= EAGER_QUESTIONS => RARE_INTERVAL,
            Phase::Lost => INTERVAL,
        };
        self.due = now + wait;
    }
}

#[cfg(test)]
mod tests;
