//! Liveness of the gateway replicas as seen from this node, as a state machine without IO.
//!
//! The owner feeds input (`handle_*`), then drains `poll_transmit`, reads `poll_change`
//! and waits until `poll_timeout`; it alone owns the socket and the clock.
//!
//! ```text
//!               reply             reply: leaving
//!        .---------------- any ---------------------.
//!        v                                          v
//!     Serving                                    Leaving
//!        |      `suspect_mult` consecutive misses      |
//!        `----------------> Suspect <---------------'
//!                              |  `dead_mult` consecutive misses
//!                              v
//!                            Dead
//! ```
//! A probe is sent every [`Config::interval`]. A probe without a reply within the reply
//! timeout is a miss, and the next one is sent at once; so three misses take one interval
//! and three timeouts. Then packets go to the other replicas. A suspect is used only if no
//! other replica reaches a cluster: an overloaded gateway that replies late is better than
//! none. A stall of this process makes no replica a suspect: a miss counts only after the
//! process has read the socket.

use crate::mutant;
use crate::view::View;
use ebpf_common::probe::{
    Body, HAS_ECHO_RESPONDER, NodeReport, PEERS_MAX, Probe, RECEIVES_REPLIES, STOPPING, digest,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Age of a replica's last reply up to which this node's probes set [`RECEIVES_REPLIES`].
const HEARD_AGE_MAX: Duration = Duration::from_secs(1);

/// Timing of the probes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// Between the probes of a replica that replies, or that is dead.
    pub(crate) interval: Duration,
    /// Lower bound of the reply timeout, which is four round trips.
    pub(crate) reply_timeout_min: Duration,
    /// Consecutive misses that make a replica a suspect.
    pub(crate) suspect_mult: u8,
    /// Consecutive misses that make it dead.
    pub(crate) dead_mult: u8,
}

impl Default for Config {
    /// Traffic leaves a replica that stops replying, as a dead process does at once, within
    /// 150 + 3 x 75 = 375 ms. That is before TCP's second retransmission, 600 ms after
    /// the first loss on a short path; the third would exceed the one second that losing a
    /// replica may cost. A replica that hangs is left half a second later.
    /// The last replica is given up after 150 + 20 x 75 = 1,650 ms: then packets are refused
    /// instead of lost.
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(150),
            reply_timeout_min: Duration::from_millis(75),
            suspect_mult: 3,
            dead_mult: 20,
        }
    }
}

/// The addresses of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The destination of its probes, which this node has assigned.
    pub(crate) probe: Ipv4Addr,
    /// That of its pod.
    pub(crate) replica: Ipv4Addr,
}

/// A probe to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transmit {
    /// The replica's probe address.
    pub(crate) to: Ipv4Addr,
    pub(crate) probe: Probe,
}

/// State of one replica, for status and log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) phase: Phase,
    /// Round-trip time of the last reply.
    pub(crate) rtt: Option<Duration>,
    /// Probes sent.
    pub(crate) sent: u64,
    /// Replies received.
    pub(crate) replies: u64,
    /// Whether it has the same remote clusters as this node; `None` before the first reply.
    pub(crate) same_clusters: Option<bool>,
}

/// Phase of a replica; the diagram of the module shows the transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// `dead_mult` consecutive misses, or no reply ever.
    Dead,
    /// Replies.
    Serving,
    /// `suspect_mult` consecutive misses.
    Suspect,
    /// Replies that it is about to stop.
    Leaving,
}

/// The state machine.
#[derive(Debug)]
pub(crate) struct Liveness {
    config: Config,
    start: Instant,
    sequence: u32,
    /// Ids of the remote clusters, sorted: the bits of a reply follow this order.
    clusters: Vec<String>,
    digest: u64,
    /// The report of every probe, without [`RECEIVES_REPLIES`].
    report: NodeReport,
    /// The clusters to which the path from this node is down.
    down_paths: BTreeSet<String>,
    replicas: BTreeMap<String, Replica>,
    transmits: VecDeque<Transmit>,
    has_changed: bool,
}

#[derive(Debug)]
struct Replica {
    target: Target,
    phase: Phase,
    /// The clusters it reaches, from its last reply with the digest of this node.
    reaches: BTreeSet<String>,
    same_clusters: Option<bool>,
    /// Probes without reply, oldest first; at most `dead_mult`.
    outstanding: VecDeque<Outstanding>,
    last_reply: Option<Instant>,
    /// When the last probe becomes a miss, or the next one is to be sent.
    due: Instant,
    rtt: Option<Duration>,
    sent: u64,
    replies: u64,
}

/// A probe whose reply may still arrive.
#[derive(Debug)]
struct Outstanding {
    sequence: u32,
    /// The probe's field `sent`.
    stamp: u64,
    sent: Instant,
}

impl Outstanding {
    /// A reply echoes both fields, so only a receiver of the probe can make it.
    fn is_answered_by(&self, reply: &Probe) -> bool {
        reply.sequence() == self.sequence && reply.sent() == self.stamp
    }
}

impl Liveness {
    /// Creates a machine without replicas. `sequence` is random, so that replies to the probes
    /// of a predecessor do not match.
    pub(crate) fn new(config: Config, sequence: u32, now: Instant) -> Self {
        Self {
            config,
            start: now,
            sequence,
            clusters: Vec::new(),
            digest: digest([]),
            report: NodeReport::new(0, digest([]), []),
            down_paths: BTreeSet::new(),
            replicas: BTreeMap::new(),
            transmits: VecDeque::new(),
            has_changed: false,
        }
    }

    /// Sets the ids of the remote clusters, sorted.
    ///
    /// The clusters that a replica reaches stay those of its last reply.
    pub(crate) fn set_clusters(&mut self, clusters: Vec<String>) {
        self.digest = digest(clusters.iter().map(String::as_str));
        self.clusters = clusters;
        self.update_report();
    }

    /// Sets the clusters to which the path is down, which probes report to the gateways.
    pub(crate) fn set_down_paths(&mut self, down_paths: BTreeSet<String>) {
        self.down_paths = down_paths;
        self.update_report();
    }

    /// Sets whether the echo responder runs, which probes report to the gateways.
    pub(crate) fn set_echo_responder(&mut self, runs: bool) {
        let flag = if runs { HAS_ECHO_RESPONDER } else { 0 };
        self.report.flags = self.report.flags & !HAS_ECHO_RESPONDER | flag;
    }

    /// Queues a last probe to all replicas, which says that the agent stops intentionally.
    pub(crate) fn announce_stop(&mut self, now: Instant) {
        self.report.flags |= STOPPING;
        for replica in self.replicas.values_mut() {
            replica.due = now;
        }
        self.handle_timeout(now);
    }

    fn update_report(&mut self) {
        let ranks = self.clusters.iter().enumerate();
        let down = ranks.filter(|(_, cluster)| self.down_paths.contains(*cluster));
        let down = down.map(|(rank, _)| rank);
        self.report = NodeReport::new(self.report.flags, self.digest, down);
    }

    /// Sets the replicas; new ones are dead and probed at `now`.
    ///
    /// A replica whose address has changed is a new one.
    pub(crate) fn set_replicas(&mut self, targets: &BTreeMap<String, Target>, now: Instant) {
        let before = self.replicas.len();
        self.replicas.retain(|name, replica| {
            let target = targets.get(name);
            target.is_some_and(|target| target.replica == replica.target.replica)
        });
        self.has_changed |= self.replicas.len() != before;
        for (name, target) in targets {
            let replica = self
                .replicas
                .entry(name.clone())
                .or_insert_with(|| Replica::new(*target, now));
            if replica.target != *target {
                replica.target = *target;
                replica.outstanding.clear();
            }
        }
    }

    /// Takes over the view of a predecessor: its replicas serve until they miss probes.
    pub(crate) fn adopt(&mut self, view: &View) {
        for (name, clusters) in view.serving() {
            if let Some(replica) = self.replicas.get_mut(name) {
                replica.phase = Phase::Serving;
                replica.reaches.clone_from(clusters);
            }
        }
    }

    /// Handles a datagram that came from `from`.
    pub(crate) fn handle_datagram(&mut self, from: Ipv4Addr, payload: &[u8], now: Instant) {
        let Some(reply) = Probe::parse(payload).filter(|it| it.body.is_reply()) else {
            return;
        };
        let mut replicas = self.replicas.values_mut();
        let Some(replica) = replicas.find(|it| it.target.probe == from) else {
            return;
        };
        if !replica.handle_reply(&reply, now, &self.config) {
            return; // Forged, duplicate, or later than `dead_mult` further probes.
        }

        self.has_changed |= replica.update(&reply.body, &self.clusters, self.digest);
    }

    /// Advances time to `now`.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for replica in self.replicas.values_mut().filter(|it| it.due <= now) {
            self.has_changed |= replica.handle_miss(&self.config);
            self.sequence = self.sequence.wrapping_add(1);
            let elapsed = now.saturating_duration_since(self.start).as_nanos();
            let sent = u64::try_from(elapsed).unwrap_or(u64::MAX);
            let mut report = self.report;
            if replica.is_heard(now) {
                report.flags |= RECEIVES_REPLIES;
            }
            let probe = Probe::request(self.sequence, sent).with_report(&report);
            self.transmits.push_back(Transmit {
                to: replica.target.probe,
                probe,
            });
            replica.handle_sent(&probe, now, &self.config);
        }
    }

    /// Returns when [`Liveness::handle_timeout`] is next due; `None` without replicas.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.replicas.values().map(|replica| replica.due).min()
    }

    /// Returns the next probe to send.
    pub(crate) fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Returns the view, if it has changed since the last call.
    pub(crate) fn poll_change(&mut self) -> Option<View> {
        std::mem::take(&mut self.has_changed).then(|| self.view())
    }

    /// Returns the clusters that each replica reaches.
    pub(crate) fn view(&self) -> View {
        let mut view = View::default();
        for (name, replica) in &self.replicas {
            let clusters = self.clusters.iter().cloned().collect();
            let reaches = replica.reaches.intersection(&clusters).cloned().collect();
            match replica.phase {
                _ if mutant::disables("liveness") => view.serves(name, clusters),
                Phase::Serving => view.serves(name, reaches),
                Phase::Suspect | Phase::Leaving => view.is_last_resort(name, reaches),
                Phase::Dead => {}
            }
        }

        view
    }

    /// Returns the state of each replica, by name.
    pub(crate) fn reports(&self) -> impl Iterator<Item = (&str, Report)> {
        self.replicas
            .iter()
            .map(|(name, replica)| (name.as_str(), replica.report()))
    }
}

impl Replica {
    fn new(target: Target, now: Instant) -> Self {
        Self {
            target,
            phase: Phase::Dead,
            reaches: BTreeSet::new(),
            same_clusters: None,
            outstanding: VecDeque::new(),
            last_reply: None,
            due: now,
            rtt: None,
            sent: 0,
            replies: 0,
        }
    }

    /// Matches a reply with its probe; returns `false` without one.
    fn handle_reply(&mut self, reply: &Probe, now: Instant, config: &Config) -> bool {
        let mut outstanding = self.outstanding.iter();
        let position = outstanding.position(|it| it.is_answered_by(reply));
        let answered = position.and_then(|it| self.outstanding.drain(..=it).next_back());
        let Some(Outstanding { sent, .. }) = answered else {
            return false;
        };

        self.rtt = Some(now.saturating_duration_since(sent));
        self.last_reply = Some(now);
        self.replies += 1;
        if self.outstanding.is_empty() {
            self.due = sent + config.interval;
        }

        true
    }

    /// Takes over the content of a reply; returns whether that changes the view.
    fn update(&mut self, reply: &Body, clusters: &[String], digest: u64) -> bool {
        let phase = if reply.is_leaving() {
            Phase::Leaving
        } else {
            Phase::Serving
        };
        let mut changed = self.phase != phase;
        self.phase = phase;

        let same = reply.digest() == digest;
        self.same_clusters = Some(same);
        if same {
            // Clusters beyond the bitmap count as reached by every live replica.
            let reaches = clusters
                .iter()
                .enumerate()
                .filter(|(rank, _)| *rank >= PEERS_MAX || reply.is_up(*rank))
                .map(|(_, cluster)| cluster.clone())
                .collect();
            changed |= self.reaches != reaches;
            self.reaches = reaches;
        }

        changed
    }

    /// Counts the outstanding probes as misses; returns whether that changes the phase.
    fn handle_miss(&mut self, config: &Config) -> bool {
        let misses = self.outstanding.len();
        let phase = match self.phase {
            Phase::Dead => Phase::Dead,
            _ if misses >= usize::from(config.dead_mult) => Phase::Dead,
            _ if misses >= usize::from(config.suspect_mult) => Phase::Suspect,
            phase @ (Phase::Serving | Phase::Suspect | Phase::Leaving) => phase,
        };
        if phase == self.phase {
            return false;
        }

        self.phase = phase;
        self.rtt = None;
        true
    }

    fn handle_sent(&mut self, probe: &Probe, now: Instant, config: &Config) {
        self.outstanding.push_back(Outstanding {
            sequence: probe.sequence(),
            stamp: probe.sent(),
            sent: now,
        });
        if self.outstanding.len() > usize::from(config.dead_mult) {
            self.outstanding.pop_front();
        }
        self.sent += 1;
        let wait = match self.phase {
            Phase::Dead => config.interval,
            Phase::Serving | Phase::Suspect | Phase::Leaving => self.reply_timeout(config),
        };
        self.due = now + wait;
    }

    fn is_heard(&self, now: Instant) -> bool {
        self.last_reply
            .is_some_and(|at| now.saturating_duration_since(at) < HEARD_AGE_MAX)
    }

    fn reply_timeout(&self, config: &Config) -> Duration {
        let round_trips = self.rtt.unwrap_or_default() * 4;
        round_trips
            .min(config.interval)
            .max(config.reply_timeout_min)
    }

    fn report(&self) -> Report {
        Report {
            phase: self.phase,
            rtt: self.rtt,
            sent: self.sent,
            replies: self.replies,
            same_clusters: self.same_clusters,
        }
    }
}

#[cfg(test)]
mod tests;
