//! Liveness of the gateway replicas as seen from this node, as a state machine without IO.
//!
//! The owner feeds input (`handle_*`), then drains `poll_transmit`, reads `poll_change`
//! and waits until `poll_timeout`; it alone owns the socket and the clock.
//!
//! ```text
//!               answer            answer: leaving
//!        .---------------- any ---------------------.
//!        v                                          v
//!     Serving                                    Leaving
//!        |  `suspect_mult` probes in a row unanswered  |
//!        `----------------> Suspect <---------------'
//!                              |  `dead_mult` in a row
//!                              v
//!                            Dead
//! ```
//! A probe is sent every [`Config::interval`]. One that is unanswered for the answer
//! timeout is repeated at once, so that silence is known within one interval and three
//! timeouts. Then packets go to the other replicas, of which there may be none: a
//! suspect is used where it is the last, since an overloaded gateway that answers late
//! is better than none. A stall of this process makes nobody a suspect: an unanswered
//! probe counts only after the process has looked for its answer.

use crate::mutant;
use crate::view::View;
use ebpf_common::probe::{Answer, HEARS, PEERS_MAX, Probe, REFLECTS, RESTS, Statement, digest};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// How old a replica's last answer may be when the node says that it hears it.
const HEARD_AGE_MAX: Duration = Duration::from_secs(1);

/// How often to probe, and when to give up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// Between the probes of a replica that answers, or that is dead.
    pub(crate) interval: Duration,
    /// The least time to wait for an answer; four round trips where that is longer.
    pub(crate) answer_timeout_min: Duration,
    /// How many unanswered probes in a row make a replica the last resort.
    pub(crate) suspect_mult: u8,
    /// How many of them make it dead.
    pub(crate) dead_mult: u8,
}

impl Default for Config {
    /// A replica that stops answering, as a dead process does at once, is left within
    /// 150 + 3 x 75 = 375 ms. That is before TCP's second retransmission, 600 ms after
    /// the first loss on a short path; the third would come only after the second that
    /// losing a replica may cost. One that hangs is left half a second later.
    /// The last replica is given up after 150 + 20 x 75 = 1,650 ms, less than people
    /// wait before they ask why.
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(150),
            answer_timeout_min: Duration::from_millis(75),
            suspect_mult: 3,
            dead_mult: 20,
        }
    }
}

/// Where a replica is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The probe's address of this node's choice.
    pub(crate) probe: Ipv4Addr,
    /// The replica's own address.
    pub(crate) replica: Ipv4Addr,
}

/// A probe to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transmit {
    /// The replica's probe address.
    pub(crate) to: Ipv4Addr,
    /// The payload.
    pub(crate) probe: Probe,
}

/// What is known of one replica, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// Whether it serves, is about to stop, or is silent.
    pub(crate) phase: Phase,
    /// Round-trip time of the last answer.
    pub(crate) rtt: Option<Duration>,
    /// Probes sent.
    pub(crate) sent: u64,
    /// Answers received.
    pub(crate) answered: u64,
    /// Whether its list of remote clusters is this node's; `None` before the first answer.
    pub(crate) same_clusters: Option<bool>,
}

/// What a replica is to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Has not answered for long, or ever.
    Dead,
    /// Answers.
    Serving,
    /// Has answered, but not lately.
    Suspect,
    /// Answers that it is about to stop.
    Leaving,
}

/// The state machine.
#[derive(Debug)]
pub(crate) struct Liveness {
    config: Config,
    start: Instant,
    sequence: u32,
    /// Ids of the remote clusters, sorted: an answer's bits follow this order.
    clusters: Vec<String>,
    digest: u64,
    /// What every probe says, but for whether its replica is heard.
    statement: Statement,
    /// The clusters whose nodes this one does not reach.
    lost: BTreeSet<String>,
    replicas: BTreeMap<String, Replica>,
    transmits: VecDeque<Transmit>,
    has_changed: bool,
}

#[derive(Debug)]
struct Replica {
    target: Target,
    phase: Phase,
    /// The clusters it reaches, by its last answer that could be understood.
    reaches: BTreeSet<String>,
    same_clusters: Option<bool>,
    /// Unanswered probes, oldest first; at most `dead_mult`.
    outstanding: VecDeque<Outstanding>,
    /// When its last answer came.
    heard: Option<Instant>,
    /// When the last probe has waited long enough, or the next one is due.
    due: Instant,
    rtt: Option<Duration>,
    sent: u64,
    answered: u64,
}

/// A probe whose answer may still come.
#[derive(Debug)]
struct Outstanding {
    sequence: u32,
    /// What the probe says of when it was sent.
    stamp: u64,
    sent: Instant,
}

impl Outstanding {
    /// Whether `answer` brings back all that the probe said, hence was asked for.
    fn is_answered_by(&self, answer: &Probe) -> bool {
        answer.sequence() == self.sequence && answer.sent() == self.stamp
    }
}

impl Liveness {
    /// Creates a machine without replicas; `sequence` tells its probes from those of a predecessor.
    pub(crate) fn new(config: Config, sequence: u32, now: Instant) -> Self {
        Self {
            config,
            start: now,
            sequence,
            clusters: Vec::new(),
            digest: digest([]),
            statement: Statement::new(0, digest([]), []),
            lost: BTreeSet::new(),
            replicas: BTreeMap::new(),
            transmits: VecDeque::new(),
            has_changed: false,
        }
    }

    /// Sets the ids of the remote clusters, sorted.
    ///
    /// What a replica was known to reach stays known.
    pub(crate) fn set_clusters(&mut self, clusters: Vec<String>) {
        self.digest = digest(clusters.iter().map(String::as_str));
        self.clusters = clusters;
        self.restate();
    }

    /// Sets the clusters whose nodes this one does not reach, which its probes tell.
    pub(crate) fn set_lost(&mut self, lost: BTreeSet<String>) {
        self.lost = lost;
        self.restate();
    }

    /// Sets whether this node answers the checks of remote clusters' nodes, which its probes tell.
    pub(crate) fn set_reflects(&mut self, reflects: bool) {
        let reflects = if reflects { REFLECTS } else { 0 };
        self.statement.said = self.statement.said & !REFLECTS | reflects;
    }

    /// Says a last time to all replicas that this agent stops, and that it is no fault.
    pub(crate) fn rest(&mut self, now: Instant) {
        self.statement.said |= RESTS;
        for replica in self.replicas.values_mut() {
            replica.due = now;
        }
        self.handle_timeout(now);
    }

    fn restate(&mut self) {
        let ranks = self.clusters.iter().enumerate();
        let lost = ranks.filter(|(_, cluster)| self.lost.contains(*cluster));
        let lost = lost.map(|(rank, _)| rank);
        self.statement = Statement::new(self.statement.said, self.digest, lost);
    }

    /// Sets the replicas; new ones are dead and probed at `now`.
    ///
    /// One of another address is a new one, whatever its name.
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

    /// Takes what a predecessor knew: those replicas serve until they miss their probes.
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
        let Some(probe) = Probe::parse(payload).filter(|it| it.answer.is_answered()) else {
            return;
        };
        let mut replicas = self.replicas.values_mut();
        let Some(replica) = replicas.find(|it| it.target.probe == from) else {
            return;
        };
        if !replica.handle_answer(&probe, now, &self.config) {
            return; // Forged, duplicate, or older than the time it takes to die.
        }

        self.has_changed |= replica.handle_news(&probe.answer, &self.clusters, self.digest);
    }

    /// Advances time to `now`.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for replica in self.replicas.values_mut().filter(|it| it.due <= now) {
            self.has_changed |= replica.handle_silence(&self.config);
            self.sequence = self.sequence.wrapping_add(1);
            let elapsed = now.saturating_duration_since(self.start).as_nanos();
            let sent = u64::try_from(elapsed).unwrap_or(u64::MAX);
            let mut statement = self.statement;
            if replica.is_heard(now) {
                statement.said |= HEARS;
            }
            let probe = Probe::request(self.sequence, sent).saying(&statement);
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

    /// Returns which replicas serve, and which clusters each of them reaches.
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

    /// Returns what is known of each replica, by name.
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
            heard: None,
            due: now,
            rtt: None,
            sent: 0,
            answered: 0,
        }
    }

    /// Notes an answer; returns whether one was awaited.
    fn handle_answer(&mut self, answer: &Probe, now: Instant, config: &Config) -> bool {
        let mut outstanding = self.outstanding.iter();
        let position = outstanding.position(|it| it.is_answered_by(answer));
        let answered = position.and_then(|it| self.outstanding.drain(..=it).next_back());
        let Some(Outstanding { sent, .. }) = answered else {
            return false;
        };

        self.rtt = Some(now.saturating_duration_since(sent));
        self.heard = Some(now);
        self.answered += 1;
        if self.outstanding.is_empty() {
            self.due = sent + config.interval;
        }

        true
    }

    /// Notes what an answer says; returns whether that changes the view.
    fn handle_news(&mut self, answer: &Answer, clusters: &[String], digest: u64) -> bool {
        let phase = if answer.is_leaving() {
            Phase::Leaving
        } else {
            Phase::Serving
        };
        let mut changed = self.phase != phase;
        self.phase = phase;

        let same = answer.digest() == digest;
        self.same_clusters = Some(same);
        if same {
            // Of clusters beyond the bitmap nothing is known but that the replica lives.
            let reaches = clusters
                .iter()
                .enumerate()
                .filter(|(rank, _)| *rank >= PEERS_MAX || answer.is_up(*rank))
                .map(|(_, cluster)| cluster.clone())
                .collect();
            changed |= self.reaches != reaches;
            self.reaches = reaches;
        }

        changed
    }

    /// Counts the probes whose time is over; returns whether that changes the phase.
    fn handle_silence(&mut self, config: &Config) -> bool {
        let unanswered = self.outstanding.len();
        let phase = match self.phase {
            Phase::Dead => Phase::Dead,
            _ if unanswered >= usize::from(config.dead_mult) => Phase::Dead,
            _ if unanswered >= usize::from(config.suspect_mult) => Phase::Suspect,
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
            Phase::Serving | Phase::Suspect | Phase::Leaving => self.answer_timeout(config),
        };
        self.due = now + wait;
    }

    fn is_heard(&self, now: Instant) -> bool {
        self.heard
            .is_some_and(|heard| now.saturating_duration_since(heard) < HEARD_AGE_MAX)
    }

    fn answer_timeout(&self, config: &Config) -> Duration {
        let of_rtt = self.rtt.unwrap_or_default() * 4;
        of_rtt.min(config.interval).max(config.answer_timeout_min)
    }

    fn report(&self) -> Report {
        Report {
            phase: self.phase,
            rtt: self.rtt,
            sent: self.sent,
            answered: self.answered,
            same_clusters: self.same_clusters,
        }
    }
}

#[cfg(test)]
mod tests;
