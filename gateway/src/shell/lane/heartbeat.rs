//! The heartbeat with which the kernel programs reply to the nodes' probes.
//!
//! ```text
//!  every lane:      LaneHeartbeat: which peers it reaches, and that it is awake
//!                     |
//!  the first lane:  HeartbeatWriter: writes while all lanes are awake ---> nodes
//!                     +--- sets which lanes reach a peer ---> the queues of the TAP
//! ```

use super::command::Handle;
use crate::shell::state::lock;
use ebpf::{Datapath, Steering};
use ebpf_common::probe::{Heartbeat, digest};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time between two heartbeats: short compared with the age from which probes are not replied to
/// (`HEARTBEAT_AGE_MAX_NS`), so that a busy machine may delay several.
const INTERVAL: Duration = Duration::from_millis(150);

/// A loop that is awake writes a heartbeat up to this much earlier: waking up costs more than writing.
const EARLY: Duration = Duration::from_millis(75);

/// Longest time between two wake-ups of a lane before it counts as hung; the engine's timers wake
/// it several times a second.
const WAKE_UP_INTERVAL_MAX: Duration = Duration::from_millis(750);

/// State of all lanes.
#[derive(Debug)]
struct Shared {
    reach: Mutex<Reach>,
    /// `reach` changed since the last heartbeat.
    is_changed: AtomicBool,
    start: Instant,
    /// When each lane was last awake, in milliseconds since `start`.
    awake: Vec<AtomicU64>,
}

/// Which lanes reach which peers.
#[derive(Debug, Default)]
struct Reach {
    /// Peer index to a bit for each lane; no entry is 0.
    lanes: BTreeMap<u16, u32>,
    /// Peers whose entry changed since the last heartbeat.
    changed: BTreeSet<u16>,
}

/// One lane's contribution to the heartbeat.
#[derive(Debug)]
pub(crate) struct LaneHeartbeat {
    shared: Arc<Shared>,
    /// The lane's number.
    lane: usize,
    /// Wakes the first lane, which writes the heartbeat; `None` in that lane.
    first: Option<Handle>,
}

/// Reports to the nodes that this replica is alive and which peers it reaches.
pub(crate) struct HeartbeatWriter {
    datapath: Arc<Mutex<Datapath>>,
    /// With several lanes only.
    steering: Option<Steering>,
    shared: Arc<Shared>,
    /// Cluster ids and indices, sorted by id.
    ranks: Vec<(String, u16)>,
    /// Of the cluster ids in `ranks`.
    digest: u64,
    leaving: bool,
    due: Instant,
    failing: bool,
}

impl LaneHeartbeat {
    /// Creates one for each lane of `lanes`.
    pub(crate) fn all(lanes: &[Handle]) -> Vec<Self> {
        let shared = Arc::new(Shared {
            reach: Mutex::default(),
            is_changed: AtomicBool::new(false),
            start: Instant::now(),
            awake: lanes.iter().map(|_| AtomicU64::new(0)).collect(),
        });
        let first = lanes.first();

        (0..lanes.len())
            .map(|lane| Self {
                shared: Arc::clone(&shared),
                lane,
                first: first.filter(|_| lane > 0).cloned(),
            })
            .collect()
    }

    /// Notes that the lane is awake.
    pub(super) fn note_awake(&self, now: Instant) {
        if let Some(awake) = self.shared.awake.get(self.lane) {
            awake.store(self.shared.millis(now), Ordering::Relaxed);
        }
    }

    /// Notes whether the lane can carry packets to a peer.
    pub(super) fn set_reachable(&self, peer: u16, reachable: bool) {
        let bit = 1 << self.lane;
        {
            let mut reach = lock(&self.shared.reach);
            let lanes = reach.lanes.entry(peer).or_default();
            *lanes = if reachable {
                *lanes | bit
            } else {
                *lanes & !bit
            };
            if *lanes == 0 {
                reach.lanes.remove(&peer);
            }
            reach.changed.insert(peer);
        }
        self.shared.is_changed.store(true, Ordering::Release);
        if let Some(first) = &self.first {
            first.wake();
        }
    }
}

impl Shared {
    fn millis(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.start);
        u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns a lane that has not been awake for [`WAKE_UP_INTERVAL_MAX`].
    fn hung(&self, now: Instant) -> Option<usize> {
        let oldest = now
            .checked_sub(WAKE_UP_INTERVAL_MAX)
            .map_or(0, |then| self.millis(then));
        let is_hung = |awake: &AtomicU64| awake.load(Ordering::Relaxed) < oldest;

        self.awake.iter().position(is_hung)
    }
}

impl HeartbeatWriter {
    /// Creates the writer for the first lane.
    pub(crate) fn new(
        datapath: Arc<Mutex<Datapath>>,
        steering: Option<Steering>,
        first: &LaneHeartbeat,
    ) -> Self {
        Self {
            datapath,
            steering,
            shared: Arc::clone(&first.shared),
            ranks: Vec::new(),
            digest: digest([]),
            leaving: false,
            due: Instant::now(),
            failing: false,
        }
    }

    /// Returns when [`HeartbeatWriter::write_if_due`] is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Writes the heartbeat if it is due or its content has changed.
    pub(super) fn write_if_due(&mut self, now: Instant) {
        if now + EARLY < self.due && !self.shared.is_changed.load(Ordering::Acquire) {
            return;
        }
        // First, so that a change from now on causes another heartbeat.
        self.shared.is_changed.store(false, Ordering::Release);
        self.due = now + INTERVAL;
        let steered = self.steer();
        if let Some(lane) = self.shared.hung(now) {
            return self.note_failure(&format_args!("packet loop {lane} does not run"));
        }
        // Control holds the lock while it changes tables; try again at the next wake-up.
        let Ok(mut datapath) = self.datapath.try_lock() else {
            self.due = now + Duration::from_millis(1);
            return;
        };
        let reach = lock(&self.shared.reach);
        let up = self
            .ranks
            .iter()
            .map(|(_, index)| reach.lanes.contains_key(index));
        let beat = datapath.beat(&Heartbeat::new(self.leaving, self.digest, up));
        drop((reach, datapath));
        match steered.and(beat) {
            Ok(()) => self.failing = false,
            Err(error) => self.note_failure(&error),
        }
    }

    /// Sets which lanes reach the peers that changed, for the choice of the TAP's queue; retries
    /// those that the kernel refuses at the next heartbeat.
    fn steer(&mut self) -> Result<(), ebpf::Error> {
        let mut reach = lock(&self.shared.reach);
        let changed = std::mem::take(&mut reach.changed);
        let Some(steering) = &mut self.steering else {
            return Ok(());
        };
        let mut outcome = Ok(());
        for peer in changed {
            let lanes = reach.lanes.get(&peer).copied().unwrap_or_default();
            if let Err(error) = steering.set(peer, lanes) {
                reach.changed.insert(peer);
                outcome = Err(error);
            }
        }

        outcome
    }

    fn note_failure(&mut self, error: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(%error, "failed to write the heartbeat: nodes will stop using this replica");
        }
    }

    pub(super) fn set_ranks(&mut self, ranks: Vec<(String, u16)>, now: Instant) {
        self.digest = digest(ranks.iter().map(|(id, _)| id.as_str()));
        self.ranks = ranks;
        self.due = now;
    }

    pub(super) fn leave(&mut self, now: Instant) {
        self.leaving = true;
        self.due = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_does_not_wake_up_is_hung_but_not_right_after_the_start() {
        let shared = Shared {
            reach: Mutex::default(),
            is_changed: AtomicBool::new(false),
            start: Instant::now(),
            awake: [0, 0].map(AtomicU64::new).into(),
        };
        let shared = Arc::new(shared);
        let heartbeats = [0, 1].map(|lane| LaneHeartbeat {
            shared: Arc::clone(&shared),
            lane,
            first: None,
        });
        let later = |millis| shared.start + Duration::from_millis(millis);

        assert_eq!(shared.hung(later(700)), None, "they have just started");
        heartbeats[0].note_awake(later(1_000));
        assert_eq!(shared.hung(later(1_000)), Some(1));
        heartbeats[1].note_awake(later(1_001));
        assert_eq!(shared.hung(later(1_002)), None);
        assert_eq!(shared.hung(later(1_800)), Some(0));
    }

    #[test]
    fn a_peer_is_reachable_while_one_lane_reaches_it() {
        let (first, _inbox) = super::super::channel().unwrap();
        let heartbeats = LaneHeartbeat::all(&[first.clone(), first]);
        let lanes = |peer: u16| lock(&heartbeats[0].shared.reach).lanes.get(&peer).copied();

        heartbeats[0].set_reachable(7, true);
        heartbeats[1].set_reachable(7, true);
        assert_eq!(lanes(7), Some(0b11));
        heartbeats[0].set_reachable(7, false);
        assert_eq!(lanes(7), Some(0b10));
        heartbeats[1].set_reachable(7, false);
        assert_eq!(lanes(7), None);
        assert!(heartbeats[0].shared.is_changed.load(Ordering::Acquire));
    }
}
