//! The heartbeat that the kernel answers the nodes' probes from.

use ebpf::Datapath;
use ebpf_common::probe::{Heartbeat, digest};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between two beats: short beside the age at which probes go unanswered
/// (`HEARTBEAT_AGE_MAX_NS`), so that a busy machine may delay some of them.
const INTERVAL: Duration = Duration::from_millis(150);

/// How much earlier a beat may come when the loop is awake anyway: to be woken costs
/// more than to beat.
const EARLY: Duration = Duration::from_millis(75);

/// Tells the nodes which peers this replica can reach, and that it lives.
pub(crate) struct Heart {
    datapath: Arc<Mutex<Datapath>>,
    ranks: Vec<(String, u16)>,
    digest: u64,
    reachable: BTreeSet<u16>,
    leaving: bool,
    due: Instant,
    failing: bool,
}

impl Heart {
    /// Creates one that beats through `datapath`.
    pub(crate) fn new(datapath: Arc<Mutex<Datapath>>) -> Self {
        Self {
            datapath,
            ranks: Vec::new(),
            digest: digest([]),
            reachable: BTreeSet::new(),
            leaving: false,
            due: Instant::now(),
            failing: false,
        }
    }

    /// Returns when [`Heart::beat_if_due`] wants to be called.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Beats, if the last one is soon old or says what is no longer true.
    pub(super) fn beat_if_due(&mut self, now: Instant) {
        if now + EARLY < self.due {
            return;
        }
        // Control holds the lock while it changes tables; then the next wake-up will do.
        let Ok(mut datapath) = self.datapath.try_lock() else {
            self.due = now + Duration::from_millis(1);
            return;
        };
        self.due = now + INTERVAL;
        let up = self
            .ranks
            .iter()
            .map(|(_, index)| self.reachable.contains(index));
        let beat = datapath.beat(&Heartbeat::new(self.leaving, self.digest, up));
        if let (Err(error), false) = (&beat, self.failing) {
            tracing::error!(%error, "failed to write the heartbeat: nodes will leave this replica");
        }
        self.failing = beat.is_err();
    }

    pub(super) fn set_ranks(&mut self, ranks: Vec<(String, u16)>, now: Instant) {
        self.digest = digest(ranks.iter().map(|(id, _)| id.as_str()));
        self.reachable
            .retain(|index| ranks.iter().any(|(_, known)| known == index));
        self.ranks = ranks;
        self.due = now;
    }

    pub(super) fn set_reachable(&mut self, peer: u16, reachable: bool, now: Instant) {
        if reachable {
            self.reachable.insert(peer);
        } else {
            self.reachable.remove(&peer);
        }
        self.due = now;
    }

    pub(super) fn leave(&mut self, now: Instant) {
        self.leaving = true;
        self.due = now;
    }
}
