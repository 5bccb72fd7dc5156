//! Health of the path from this node to the nodes of each remote cluster and back, as a state
//! machine without IO.
//!
//! The caller owns the socket and the clock. It passes input to the functions `handle_*`. Then it
//! sends the requests of `poll_transmit`, reads `poll_change`, and waits until `poll_timeout`.
//!
//! An echo request takes the same path as packets of pods: policy rule, route, nexthop group,
//! overlay, gateway, tunnel, remote gateway and remote overlay. The remote gateway selects the node
//! that receives the request and replies.
//!
//! ```text
//!  Unknown --reply--> Up --`MISSES_MAX` consecutive misses--> Down --reply--> Up
//!      `---------- `MISSES_MAX` consecutive misses ---------->'
//! ```
//!
//! A request without a reply within [`REPLY_TIMEOUT`] is a miss, and the next request is sent at
//! once. A failure is thus detected within one [`INTERVAL`] and three timeouts, which is 2.2 s. A
//! cluster that has never replied gets fewer requests, because its nodes may run a version of Liqo
//! without echo responders.

use message::Token;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

pub(crate) mod message;

/// Time between two requests to a cluster that has replied.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time between two requests to a cluster that has never replied.
const SILENT_INTERVAL: Duration = Duration::from_secs(10);

/// Number of initial requests to a cluster. If the cluster has replied to none of them,
/// [`SILENT_INTERVAL`] applies from then on.
const INITIAL_REQUESTS: u32 = 8;

/// Time after which a request without a reply is a miss. A later reply still sets the path to
/// [`Phase::Up`].
const REPLY_TIMEOUT: Duration = Duration::from_millis(400);

/// Number of consecutive misses after which a path is down.
const MISSES_MAX: u8 = 3;

/// Maximum number of outstanding requests per cluster. Replies to older requests are ignored. Four
/// requests, one per [`REPLY_TIMEOUT`], allow round-trip times up to 1.6 s.
const OUTSTANDING_MAX: usize = 4;

/// Minimum time between two requests, even to different clusters. 50 requests per second take at
/// most 1 % of a core. With more than 50 clusters, each cluster gets less than one request per
/// second.
const GAP: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No reply has arrived, and fewer than [`MISSES_MAX`] requests have timed out.
    Unknown,
    /// Replies arrive.
    Up,
    /// At least [`MISSES_MAX`] consecutive requests have timed out.
    Down,
}

/// State of the path to one cluster for the status document and the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) phase: Phase,
    /// Whether the cluster has ever replied.
    pub(crate) has_replied: bool,
    /// Round-trip time of the last reply; `None` unless the path is up.
    pub(crate) rtt: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transmit {
    /// Echo address of the cluster. The cluster's gateways forward a packet with this destination
    /// to one of the cluster's live nodes.
    pub(crate) to: Ipv4Addr,
    pub(crate) payload: [u8; message::LEN],
}

/// The paths to all remote clusters that a gateway reaches.
#[derive(Debug)]
pub(crate) struct Paths {
    /// Number in the token of the last request. Each request increments it. The first number is
    /// random, so that other hosts cannot predict tokens.
    token: u64,
    clusters: BTreeMap<String, Path>,
    /// Earliest time of the next request to any cluster.
    next: Instant,
    transmits: VecDeque<Transmit>,
    has_changed: bool,
}

#[derive(Debug)]
struct Path {
    target: Ipv4Addr,
    phase: Phase,
    /// Token and sending time of requests without a reply, oldest first.
    outstanding: VecDeque<(Token, Instant)>,
    misses: u8,
    requests: u32,
    has_replied: bool,
    due: Instant,
    rtt: Option<Duration>,
}

impl Paths {
    /// Creates a state machine without clusters. `token` must be random, because tokens count
    /// upwards from this number.
    pub(crate) fn new(token: u64, now: Instant) -> Self {
        Self {
            token,
            clusters: BTreeMap::new(),
            next: now,
            transmits: VecDeque::new(),
            has_changed: false,
        }
    }

    /// Sets the echo addresses of the clusters that a gateway reaches, by cluster id.
    ///
    /// The path to a cluster that was not in the previous call starts as [`Phase::Unknown`].
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

    /// Handles a reply from the source address `from`. A reply from an address that is no target is
    /// ignored.
    pub(crate) fn handle_reply(&mut self, from: Ipv4Addr, token: Token, now: Instant) {
        let mut paths = self.clusters.values_mut();
        if let Some(path) = paths.find(|path| path.target == from) {
            self.has_changed |= path.handle_reply(token, now);
        }
    }

    /// Counts misses, and queues the requests that are due at `now`.
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
            // Counting from `now` avoids a burst of requests after a stall of this process.
            self.next = now + GAP;
        }
    }

    /// Returns the time of the next call of [`Paths::handle_timeout`], `None` without clusters.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.clusters.values().map(|path| path.due).min()?;
        Some(due.max(self.next))
    }

    /// Removes a request from the queue, and returns it.
    pub(crate) fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Returns whether the phase of a path has changed since the last call.
    pub(crate) fn poll_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Returns the ids of the clusters to which the path is down.
    pub(crate) fn down(&self) -> BTreeSet<String> {
        let paths = self.clusters.iter();
        paths
            .filter(|(_, path)| path.phase == Phase::Down)
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Returns the state of the path to a cluster, `None` if no gateway reaches the cluster.
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

    /// Handles a reply. Returns whether the phase has changed.
    fn handle_reply(&mut self, token: Token, now: Instant) -> bool {
        let position = self.outstanding.iter().position(|(it, _)| *it == token);
        let answered = position.and_then(|it| self.outstanding.drain(..=it).next_back());
        let Some((_, sent)) = answered else {
            return false; // The reply is forged, a duplicate or too late.
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

    /// Counts a miss if a request is outstanding. Returns whether the phase has changed.
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
