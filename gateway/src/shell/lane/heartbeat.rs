//! Writes the heartbeat, with which the eBPF programs reply to the nodes' probes.
//!
//! The heartbeat shows that this replica is alive, and lists the peers that it reaches.
//!
//! ```text
//!  each lane    LaneHeartbeat: stores the peers that the lane reaches, and its last wake-up
//!                 |
//!  first lane   HeartbeatWriter: while all lanes are awake, writes the heartbeat ---> nodes
//!                 +--- writes the lanes that reach each peer ---> choice of the TAP's queue
//! ```

use super::command::Handle;
use crate::shell::state::lock;
use crate::tables::Ranks;
use ebpf::{Datapath, Steering};
use ebpf_common::probe::{Heartbeat, digest};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Interval between two heartbeats.
///
/// The eBPF programs do not reply to probes if the heartbeat is older than 500 ms
/// (`HEARTBEAT_AGE_MAX_NS`). The interval is shorter, because a busy machine may delay a heartbeat.
const INTERVAL: Duration = Duration::from_millis(150);

/// Maximum time by which a heartbeat may be early.
///
/// If the lane wakes up for another reason, it also writes a heartbeat that is due soon. This saves
/// a later wake-up.
const EARLY: Duration = Duration::from_millis(75);

/// Time without a wake-up after which a lane counts as hung.
///
/// The timers of the engine wake a lane several times a second.
const WAKE_UP_INTERVAL_MAX: Duration = Duration::from_millis(750);

/// The state that all lanes share.
#[derive(Debug)]
struct Shared {
    reach: Mutex<Reach>,
    /// Whether `reach` has changed since the last heartbeat.
    is_changed: AtomicBool,
    start: Instant,
    /// Time of the last wake-up of each lane, in milliseconds since `start`.
    awake: Vec<AtomicU64>,
}

/// The lanes that reach each peer.
#[derive(Debug, Default)]
struct Reach {
    /// A bit mask of lanes by peer index; has no entry for peers that no lane reaches.
    lanes: BTreeMap<u16, u32>,
    /// Peers whose entry has changed since the last heartbeat.
    changed: BTreeSet<u16>,
}

/// The part of the heartbeat that a single lane provides.
#[derive(Debug)]
pub(crate) struct LaneHeartbeat {
    shared: Arc<Shared>,
    lane: usize,
    /// Handle to wake the first lane, which writes the heartbeat; `None` in the first lane.
    first: Option<Handle>,
}

/// Writes the heartbeat of this replica to an eBPF map. Only the first lane has a writer.
pub(crate) struct HeartbeatWriter {
    datapath: Arc<Mutex<Datapath>>,
    /// `None` for a single lane.
    steering: Option<Steering>,
    shared: Arc<Shared>,
    ranks: Ranks,
    /// Digest of the cluster ids in `ranks`. The nodes compare it with the digest of their own list
    /// of peers, because the meaning of the bits depends on the list.
    digest: u64,
    /// Whether this replica stops.
    leaving: bool,
    /// Time of the next heartbeat.
    due: Instant,
    /// Whether the last heartbeat failed. Only the first of consecutive failures is logged.
    failing: bool,
}

impl LaneHeartbeat {
    /// Creates a [`LaneHeartbeat`] for each lane in `lanes`.
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

    /// Stores the time of the lane's last wake-up.
    pub(super) fn note_awake(&self, now: Instant) {
        if let Some(awake) = self.shared.awake.get(self.lane) {
            awake.store(self.shared.millis(now), Ordering::Relaxed);
        }
    }

    /// Stores whether the lane has a session that can send packets to `peer`, and wakes the first
    /// lane.
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

    /// Returns the number of a lane without a wake-up in the last [`WAKE_UP_INTERVAL_MAX`], if any.
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
            ranks: Ranks::default(),
            digest: digest([]),
            leaving: false,
            due: Instant::now(),
            failing: false,
        }
    }

    /// Returns the time at which the lane must call [`HeartbeatWriter::write_if_due`].
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Writes the heartbeat if it is due or its content has changed.
    pub(super) fn write_if_due(&mut self, now: Instant) {
        if now + EARLY < self.due && !self.shared.is_changed.load(Ordering::Acquire) {
            return;
        }
        // This store must precede the read of `reach`. Otherwise it would clear the flag of a
        // change between the read and the store, and no heartbeat would report the change.
        self.shared.is_changed.store(false, Ordering::Release);
        self.due = now + INTERVAL;
        let steered = self.steer();
        if let Some(lane) = self.shared.hung(now) {
            return self.note_failure(&format_args!("packet loop {lane} does not run"));
        }
        // `control` holds the lock while it changes eBPF maps, so retry after 1 ms.
        let Ok(mut datapath) = self.datapath.try_lock() else {
            self.due = now + Duration::from_millis(1);
            return;
        };
        let reach = lock(&self.shared.reach);
        let up = self
            .ranks
            .values()
            .map(|index| reach.lanes.contains_key(index));
        let beat = datapath.beat(&Heartbeat::new(self.leaving, self.digest, up));
        drop((reach, datapath));
        match steered.and(beat) {
            Ok(()) => self.failing = false,
            Err(error) => self.note_failure(&error),
        }
    }

    /// Writes the lanes that reach each changed peer to the eBPF map that selects the TAP's queue.
    ///
    /// If the kernel rejects an entry, the next heartbeat retries the write.
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

    pub(super) fn set_ranks(&mut self, ranks: Ranks, now: Instant) {
        self.digest = digest(ranks.keys().map(String::as_str));
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

        assert_eq!(shared.hung(later(700)), None, "lanes have just started");
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
