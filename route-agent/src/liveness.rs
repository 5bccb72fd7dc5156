//! Liveness of this cluster's gateway replicas, as a state machine without IO.
//!
//! The caller owns the socket and the clock. It passes input to the functions `handle_*`. Then it
//! sends the probes of `poll_transmit`, reads `poll_change`, and waits until `poll_timeout`.
//!
//! ```text
//!        reply                      reply with the flag leaving
//!     .---------------- any phase ------------------.
//!     v                                             v
//!  Serving                                       Leaving
//!     |      `suspect_mult` consecutive misses      |
//!     `----------------> Suspect <------------------'
//!                           |  `dead_mult` consecutive misses
//!                           v
//!                         Dead
//! ```
//!
//! The agent sends a probe to each replica every [`Config::interval`]. A probe without a reply
//! within the reply timeout is a miss, and the next probe is sent at once. By default, a replica is
//! a suspect after three misses, which take one interval and three timeouts. Packets then go to the
//! other replicas. A suspect is used only if no serving replica reaches a cluster, because an
//! overloaded gateway that replies late is better than no gateway.
//!
//! If this process stalls, for example because the CPU is overloaded, replies in the socket's queue
//! do not count as misses. The caller reads the socket before it calls
//! [`Liveness::handle_timeout`].

use crate::mutant;
use crate::view::View;
use ebpf_common::probe::{
    Body, HAS_ECHO_RESPONDER, NodeReport, PEERS_MAX, Probe, RECEIVES_REPLIES, STOPPING, digest,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time after a replica's last reply during which probes to the replica carry the flag
/// [`RECEIVES_REPLIES`]. The flag reports to the replica that its replies arrive.
const HEARD_AGE_MAX: Duration = Duration::from_secs(1);

/// Timing of the probes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// Time between two probes to a replica that replies or is dead.
    pub(crate) interval: Duration,
    /// Lower bound of the reply timeout. The timeout is four times the last round-trip time, and at
    /// most the interval.
    pub(crate) reply_timeout_min: Duration,
    /// Number of consecutive misses after which a replica is a suspect.
    pub(crate) suspect_mult: u8,
    /// Number of consecutive misses after which a replica is dead.
    pub(crate) dead_mult: u8,
}

impl Default for Config {
    /// Returns the default timing, which limits an outage after the loss of a replica to one
    /// second.
    ///
    /// If a replica stops replying, traffic moves to other replicas within one interval and three
    /// reply timeouts, which is 375 ms. On a path with a short round-trip time, TCP retransmits a
    /// lost segment for the second time about 600 ms after the loss. This retransmission thus goes
    /// through another replica. If a replica's process hangs, the replica's eBPF program still
    /// replies to probes for about half a second.
    ///
    /// If no other replica serves, the replica is used for one interval and 20 reply timeouts,
    /// which is 1,650 ms. Then the node rejects packets by an unreachable route, so that senders
    /// get an ICMP error.
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(150),
            reply_timeout_min: Duration::from_millis(75),
            suspect_mult: 3,
            dead_mult: 20,
        }
    }
}

/// The addresses of a gateway replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Destination address of probes to this replica. This node has assigned the address from the
    /// probe network.
    pub(crate) probe: Ipv4Addr,
    /// Address of the replica's pod.
    pub(crate) replica: Ipv4Addr,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transmit {
    /// Probe address of the replica.
    pub(crate) to: Ipv4Addr,
    pub(crate) probe: Probe,
}

/// State of one replica for the status document and the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) phase: Phase,
    /// Round-trip time of the last reply. `None` before the first reply, and while the replica is a
    /// suspect or dead.
    pub(crate) rtt: Option<Duration>,
    /// Number of probes sent.
    pub(crate) sent: u64,
    /// Number of replies received.
    pub(crate) replies: u64,
    /// Whether the replica has the same list of remote clusters as this node. `None` before the
    /// first reply.
    pub(crate) same_clusters: Option<bool>,
}

/// Phase of a replica. The diagram in the module's documentation shows the transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The replica has missed `dead_mult` consecutive probes, or has never replied.
    Dead,
    /// The replica replies to probes.
    Serving,
    /// The replica has missed `suspect_mult` consecutive probes.
    Suspect,
    /// The replica replies, and reports that it is about to stop.
    Leaving,
}

/// The probes and phases of all gateway replicas.
#[derive(Debug)]
pub(crate) struct Liveness {
    config: Config,
    start: Instant,
    sequence: u32,
    /// Sorted ids of the remote clusters. Bit N of a reply's bitmap refers to the cluster at index
    /// N.
    clusters: Vec<String>,
    digest: u64,
    /// The report that all probes have in common. The flag [`RECEIVES_REPLIES`] differs between
    /// replicas, so it is added to each probe.
    report: NodeReport,
    /// Ids of the clusters whose nodes do not reply to this node's echo requests.
    down_paths: BTreeSet<String>,
    replicas: BTreeMap<String, Replica>,
    transmits: VecDeque<Transmit>,
    has_changed: bool,
}

#[derive(Debug)]
struct Replica {
    target: Target,
    phase: Phase,
    /// Ids of the clusters that the replica reaches. A reply updates this set only if the digest in
    /// the reply is the digest of this node's cluster ids.
    reaches: Arc<BTreeSet<String>>,
    same_clusters: Option<bool>,
    /// Probes without a reply, oldest first. There are at most `dead_mult`.
    outstanding: VecDeque<Outstanding>,
    last_reply: Option<Instant>,
    /// Time at which the next probe is sent. If the last probe has no reply by then, it is a miss.
    due: Instant,
    rtt: Option<Duration>,
    sent: u64,
    replies: u64,
}

/// A probe whose reply may still arrive.
#[derive(Debug)]
struct Outstanding {
    sequence: u32,
    /// Value of the probe's field `sent`, in nanoseconds since the start of the agent.
    stamp: u64,
    sent: Instant,
}

impl Outstanding {
    /// Returns whether `reply` echoes the sequence number and the stamp of the probe. Only a
    /// receiver of the probe can send such a reply.
    fn is_answered_by(&self, reply: &Probe) -> bool {
        reply.sequence() == self.sequence && reply.sent() == self.stamp
    }
}

impl Liveness {
    /// Creates a state machine without replicas.
    ///
    /// `sequence` must be random, so that replies to probes of a previous process do not match.
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

    /// Sets the ids of the remote clusters, which must be sorted.
    ///
    /// No replica reaches a removed cluster. New clusters are reached from the replica's next reply
    /// with the digest of these ids.
    pub(crate) fn set_clusters(&mut self, clusters: Vec<String>) {
        self.digest = digest(clusters.iter().map(String::as_str));
        self.clusters = clusters;
        for replica in self.replicas.values_mut() {
            let is_known = |cluster: &String| self.clusters.binary_search(cluster).is_ok();
            Arc::make_mut(&mut replica.reaches).retain(is_known);
        }
        self.update_report();
    }

    /// Sets the clusters whose nodes do not reply to echo requests. Probes report them to the
    /// gateways.
    pub(crate) fn set_down_paths(&mut self, down_paths: BTreeSet<String>) {
        self.down_paths = down_paths;
        self.update_report();
    }

    /// Sets whether this node replies to echo requests. Probes report the value to the gateways.
    pub(crate) fn set_echo_responder(&mut self, runs: bool) {
        let flag = if runs { HAS_ECHO_RESPONDER } else { 0 };
        self.report.flags = self.report.flags & !HAS_ECHO_RESPONDER | flag;
    }

    /// Queues a last probe to each replica. The probe reports that the agent stops intentionally.
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

    /// Sets the replicas. A new replica is in [`Phase::Dead`], and its first probe is due at `now`.
    ///
    /// A replica whose pod address has changed counts as a new replica.
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

    /// Adopts the view of a previous process. The replicas in the view serve until they miss
    /// probes.
    pub(crate) fn adopt(&mut self, view: &View) {
        for (name, clusters) in view.serving() {
            if let Some(replica) = self.replicas.get_mut(name) {
                replica.phase = Phase::Serving;
                replica.reaches.clone_from(clusters);
            }
        }
    }

    /// Handles a datagram from the source address `from`.
    pub(crate) fn handle_datagram(&mut self, from: Ipv4Addr, payload: &[u8], now: Instant) {
        let Some(reply) = Probe::parse(payload).filter(|it| it.body.is_reply()) else {
            return;
        };
        let mut replicas = self.replicas.values_mut();
        let Some(replica) = replicas.find(|it| it.target.probe == from) else {
            return;
        };
        if !replica.handle_reply(&reply, now, &self.config) {
            return; // The reply is forged, a duplicate, or more than `dead_mult` probes late.
        }

        self.has_changed |= replica.update(&reply.body, &self.clusters, self.digest);
    }

    /// Counts misses, and queues the probes that are due at `now`.
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

    /// Returns the time of the next call of [`Liveness::handle_timeout`], `None` without replicas.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.replicas.values().map(|replica| replica.due).min()
    }

    /// Removes a probe from the queue, and returns it.
    pub(crate) fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Returns the view if it has changed since the last call, else `None`.
    pub(crate) fn poll_change(&mut self) -> Option<View> {
        std::mem::take(&mut self.has_changed).then(|| self.view())
    }

    /// Returns the live replicas, and the clusters that each of them reaches.
    pub(crate) fn view(&self) -> View {
        let mut view = View::default();
        for (name, replica) in &self.replicas {
            let reaches = replica.reaches.clone();
            match replica.phase {
                _ if mutant::disables("liveness") => {
                    let clusters: BTreeSet<_> = self.clusters.iter().cloned().collect();
                    view.serves(name, clusters);
                }
                Phase::Serving => view.serves(name, reaches),
                Phase::Suspect | Phase::Leaving => view.is_last_resort(name, reaches),
                Phase::Dead => {}
            }
        }

        view
    }

    /// Returns the name and the state of each replica.
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
            reaches: Arc::default(),
            same_clusters: None,
            outstanding: VecDeque::new(),
            last_reply: None,
            due: now,
            rtt: None,
            sent: 0,
            replies: 0,
        }
    }

    /// Removes the probe that `reply` answers. Returns `false` if there is no such probe.
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

    /// Updates phase and clusters from a reply. Returns whether the view has changed.
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
            // The bitmap of a reply covers only the first `PEERS_MAX` clusters. The replica counts
            // as reaching all other clusters.
            let reaches = clusters
                .iter()
                .enumerate()
                .filter(|(rank, _)| *rank >= PEERS_MAX || reply.is_up(*rank))
                .map(|(_, cluster)| cluster.clone())
                .collect();
            changed |= *self.reaches != reaches;
            self.reaches = Arc::new(reaches);
        }

        changed
    }

    /// Counts the outstanding probes as misses. Returns whether the phase has changed.
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
