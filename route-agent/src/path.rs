//! Health of the path from this node to the nodes of each remote cluster and back, as a state
//! machine without IO.
//!
//! The owner feeds input (`handle_*`), then drains `poll_transmit`, reads `poll_change` and
//! waits until `poll_timeout`; it alone owns the socket and the clock.
//!
//! ```text
//!  An echo request takes the path of every packet: rule, route, nexthop group, overlay, gateway,
//!  tunnel, remote gateway, remote overlay, to a node of the remote gateway's choice; the reply
//!  returns.
//!
//!  Unknown --reply--> Up --`MISSES_MAX` consecutive misses--> Down --reply--> Up
//!      `---------- `MISSES_MAX` consecutive misses ---------->'
//! ```
//! A request without a reply within [`REPLY_TIMEOUT`] is a miss, and the next one is sent at once; so
//! a failure is detected within [`INTERVAL`] and three timeouts, 2.2 s. A cluster that has never
//! replied gets fewer requests: its software may have no echo responder.

use message::Token;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

pub(crate) mod message;

/// Between two requests to a cluster that replies.
const INTERVAL: Duration = Duration::from_secs(1);

/// Between two requests to a cluster that has never replied.
const SILENT_INTERVAL: Duration = Duration::from_secs(10);

/// Requests to a cluster that has never replied before [`SILENT_INTERVAL`] applies.
const INITIAL_REQUESTS: u32 = 8;

/// After it the next request is sent; a later reply still counts.
const REPLY_TIMEOUT: Duration = Duration::from_millis(400);

/// Consecutive misses after which a path is down.
const MISSES_MAX: u8 = 3;

/// Requests per cluster whose replies are accepted: allows round-trip times up to 1.6 s.
const OUTSTANDING_MAX: usize = 4;

/// Between any two requests: 50 per second, at most 1 % of a core. With more than
/// fifty clusters the interval per cluster grows.
const GAP: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Fewer than [`MISSES_MAX`] requests, and no reply.
    Unknown,
    /// Replies arrive.
    Up,
    /// [`MISSES_MAX`] consecutive misses.
    Down,
}

/// State of the path to one cluster, for status and log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) phase: Phase,
    /// Whether a reply ever arrived.
    pub(crate) has_replied: bool,
    /// Round-trip time of the last reply.
    pub(crate) rtt: Option<Duration>,
}

/// A request to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transmit {
    /// The cluster's echo address, which leads to any of its nodes.
    pub(crate) to: Ipv4Addr,
    pub(crate) payload: [u8; message::LEN],
}

/// The state machine.
#[derive(Debug)]
pub(crate) struct Paths {
    /// Token of the last request; starts at a random number, so that tokens are unpredictable.
    token: u64,
    clusters: BTreeMap<String, Path>,
    /// When the next request may be sent to any cluster.
    next: Instant,
    transmits: VecDeque<Transmit>,
    has_changed: bool,
}

#[derive(Debug)]
struct Path {
    target: Ipv4Addr,
    phase: Phase,
    /// Requests without reply, oldest first.
    outstanding: VecDeque<(Token, Instant)>,
    misses: u8,
    requests: u32,
    has_replied: bool,
    due: Instant,
    rtt: Option<Duration>,
}

impl Paths {
    /// Creates a machine without clusters; tokens count from the random number `token` on.
    pub(crate) fn new(token: u64, now: Instant) -> Self {
        Self {
            token,
            clusters: BTreeMap::new(),
            next: now,
            transmits: VecDeque::new(),
            has_changed: false,
        }
    }

    /// Sets the echo addresses of the clusters that gateways reach.
    ///
    /// A cluster that is new, or reached again, starts as [`Phase::Unknown`].
    pub(crate) fn set_targets(&mut self, targets: &BTreeMap<String, Ipv4Addr>, now: Instant) {
        let before = self.down();
        self.clusters
            .retain(|id, path| targets.get(id) == Some(&path.target));
        for (id, target) in targets {
            self.clusters
                .entry(id.clone())
                .or_insert_with(|| Path::new(*target, now));
        }
        self.has_changed |= before != self.down();
    }

    /// Handles a reply that came from `from`.
    pub(crate) fn handle_reply(&mut self, from: Ipv4Addr, token: Token, now: Instant) {
        let mut paths = self.clusters.values_mut();
        if let Some(path) = paths.find(|path| path.target == from) {
            self.has_changed |= path.handle_reply(token, now);
        }
    }

    /// Advances time to `now`.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while self.next <= now {
            let due = self.clusters.values_mut().filter(|path| path.due <= now);
            let Some(path) = due.min_by_key(|path| path.due) else {
                return;
            };
            self.has_changed |= path.handle_miss();
            self.token = self.token.wrapping_add(1);
            let token = Token::new(self.token);
            path.handle_sent(token, now);
            self.transmits.push_back(Transmit {
                to: path.target,
                payload: message::request(token),
            });
            // From now, not from the last one: no burst after a pause of this process.
            self.next = now + GAP;
        }
    }

    /// Returns when [`Paths::handle_timeout`] is next due; `None` without clusters.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.clusters.values().map(|path| path.due).min()?;
        Some(due.max(self.next))
    }

    /// Returns the next request to send.
    pub(crate) fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Returns whether the phase of a path has changed since the last call.
    pub(crate) fn poll_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Returns the clusters to which the path is down.
    pub(crate) fn down(&self) -> BTreeSet<String> {
        let paths = self.clusters.iter();
        paths
            .filter(|(_, path)| path.phase == Phase::Down)
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Returns the state of the path to a cluster; `None` if no gateway reaches the cluster.
    pub(crate) fn report(&self, cluster_id: &str) -> Option<Report> {
        let path = self.clusters.get(cluster_id)?;

        Some(Report {
            phase: path.phase,
            has_replied: path.has_replied,
            rtt: path.rtt,
        })
    }
}

impl Path {
    fn new(target: Ipv4Addr, now: Instant) -> Self {
        Self {
            target,
            phase: Phase::Unknown,
            outstanding: VecDeque::new(),
            misses: 0,
            requests: 0,
            has_replied: false,
            due: now,
            rtt: None,
        }
    }

    /// Handles a reply; returns whether it changes the phase.
    fn handle_reply(&mut self, token: Token, now: Instant) -> bool {
        let position = self.outstanding.iter().position(|(it, _)| *it == token);
        let answered = position.and_then(|it| self.outstanding.drain(..=it).next_back());
        let Some((_, sent)) = answered else {
            return false; // Forged, duplicate or too late.
        };

        let has_changed = self.phase != Phase::Up;
        self.phase = Phase::Up;
        self.has_replied = true;
        self.misses = 0;
        self.rtt = Some(now.saturating_duration_since(sent));
        if self.outstanding.is_empty() {
            self.due = sent + INTERVAL;
        }

        has_changed
    }

    /// Counts a miss if a request is outstanding; returns whether it changes the phase.
    fn handle_miss(&mut self) -> bool {
        if self.outstanding.is_empty() {
            return false;
        }
        self.misses = self.misses.saturating_add(1);
        if self.misses < MISSES_MAX || self.phase == Phase::Down {
            return false;
        }

        self.phase = Phase::Down;
        self.rtt = None;
        true
    }

    fn handle_sent(&mut self, token: Token, now: Instant) {
        if self.outstanding.len() >= OUTSTANDING_MAX {
            self.outstanding.pop_front();
        }
        self.outstanding.push_back((token, now));
        self.requests = self.requests.saturating_add(1);
        let wait = match self.phase {
            Phase::Unknown | Phase::Up => REPLY_TIMEOUT,
            Phase::Down if !self.has_replied && self.requests >= INITIAL_REQUESTS => {
                SILENT_INTERVAL
            }
            Phase::Down => INTERVAL,
        };
        self.due = now + wait;
    }
}

#[cfg(test)]
mod tests;
