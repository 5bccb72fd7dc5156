//! The heartbeat that the kernel answers the nodes' probes from.
//!
//! ```text
//!  every lane:      Pulse: which peers it reaches, and that it is awake
//!                     |
//!  the first lane:  Heart: beats while all are awake ---> nodes
//!                     +--- tells which lanes reach a peer ---> the queues of the TAP
//! ```

use super::command::Handle;
use crate::shell::state::lock;
use ebpf::{Datapath, Steering};
use ebpf_common::probe::{Heartbeat, digest};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between two beats: short beside the age at which probes go unanswered
/// (`HEARTBEAT_AGE_MAX_NS`), so that a busy machine may delay some of them.
const INTERVAL: Duration = Duration::from_millis(150);

/// How much earlier a beat may come when the loop is awake anyway: to be woken costs
/// more than to beat.
const EARLY: Duration = Duration::from_millis(75);

/// For how long a lane may sleep or work; the engine has it wake several times a second.
const AWAKE: Duration = Duration::from_millis(750);

/// What all lanes know together.
#[derive(Debug)]
struct Shared {
    reach: Mutex<Reach>,
    /// Something changed since the last beat.
    news: AtomicBool,
    start: Instant,
    /// When each lane was last awake, in milliseconds since `start`.
    awake: Vec<AtomicU64>,
}

/// Which lanes reach which peers.
#[derive(Debug, Default)]
struct Reach {
    /// A bit for each lane; no entry without one.
    lanes: BTreeMap<u16, u32>,
    /// Peers whose entry changed since the last beat.
    changed: BTreeSet<u16>,
}

/// One lane's part in the heartbeat.
#[derive(Debug)]
pub(crate) struct Pulse {
    shared: Arc<Shared>,
    /// Which lane it is.
    place: usize,
    /// Wakes the lane that beats.
    first: Option<Handle>,
}

/// Tells the nodes which peers this replica can reach, and that it lives.
pub(crate) struct Heart {
    datapath: Arc<Mutex<Datapath>>,
    /// There if there are several lanes.
    steering: Option<Steering>,
    shared: Arc<Shared>,
    ranks: Vec<(String, u16)>,
    digest: u64,
    leaving: bool,
    due: Instant,
    failing: bool,
}

impl Pulse {
    /// Creates those of all lanes; `lanes` leads to each of them.
    pub(crate) fn all(lanes: &[Handle]) -> Vec<Self> {
        let shared = Arc::new(Shared {
            reach: Mutex::default(),
            news: AtomicBool::new(false),
            start: Instant::now(),
            awake: lanes.iter().map(|_| AtomicU64::new(0)).collect(),
        });
        let first = lanes.first();

        (0..lanes.len())
            .map(|place| Self {
                shared: Arc::clone(&shared),
                place,
                first: first.filter(|_| place > 0).cloned(),
            })
            .collect()
    }

    /// Notes that the lane is awake.
    pub(super) fn beat(&self, now: Instant) {
        if let Some(awake) = self.shared.awake.get(self.place) {
            awake.store(self.shared.millis(now), Ordering::Relaxed);
        }
    }

    /// Notes whether the lane can carry packets to a peer.
    pub(super) fn set_reachable(&self, peer: u16, reachable: bool) {
        let bit = 1 << self.place;
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
        self.shared.news.store(true, Ordering::Release);
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

    /// Returns a lane that has not been awake for too long.
    fn hung(&self, now: Instant) -> Option<usize> {
        let oldest = now.checked_sub(AWAKE).map_or(0, |then| self.millis(then));
        let is_hung = |awake: &AtomicU64| awake.load(Ordering::Relaxed) < oldest;

        self.awake.iter().position(is_hung)
    }
}

impl Heart {
    /// Creates one that beats through `datapath`, in the lane of `pulse`, the first.
    pub(crate) fn new(
        datapath: Arc<Mutex<Datapath>>,
        steering: Option<Steering>,
        pulse: &Pulse,
    ) -> Self {
        Self {
            datapath,
            steering,
            shared: Arc::clone(&pulse.shared),
            ranks: Vec::new(),
            digest: digest([]),
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
        if now + EARLY < self.due && !self.shared.news.load(Ordering::Acquire) {
            return;
        }
        // First: what changes from now on is news again.
        self.shared.news.store(false, Ordering::Release);
        self.due = now + INTERVAL;
        let steered = self.steer();
        if let Some(lane) = self.shared.hung(now) {
            return self.note_failure(&format_args!("packet loop {lane} does not run"));
        }
        // Control holds the lock while it changes tables; then the next wake-up will do.
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

    /// Tells the queues of the TAP which lanes reach the peers that changed; those that the kernel
    /// refuses are tried again.
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
            tracing::error!(%error, "failed to write the heartbeat: nodes will leave this replica");
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
    fn a_lane_that_does_not_wake_is_hung_and_none_is_before_it_had_time_to() {
        let shared = Shared {
            reach: Mutex::default(),
            news: AtomicBool::new(false),
            start: Instant::now(),
            awake: [0, 0].map(AtomicU64::new).into(),
        };
        let shared = Arc::new(shared);
        let pulses = [0, 1].map(|place| Pulse {
            shared: Arc::clone(&shared),
            place,
            first: None,
        });
        let later = |millis| shared.start + Duration::from_millis(millis);

        assert_eq!(shared.hung(later(700)), None, "they have just begun");
        pulses[0].beat(later(1_000));
        assert_eq!(shared.hung(later(1_000)), Some(1));
        pulses[1].beat(later(1_001));
        assert_eq!(shared.hung(later(1_002)), None);
        assert_eq!(shared.hung(later(1_800)), Some(0));
    }

    #[test]
    fn a_peer_is_reached_as_long_as_one_lane_reaches_it() {
        let (first, _inbox) = super::super::channel().unwrap();
        let pulses = Pulse::all(&[first.clone(), first]);
        let lanes = |peer: u16| lock(&pulses[0].shared.reach).lanes.get(&peer).copied();

        pulses[0].set_reachable(7, true);
        pulses[1].set_reachable(7, true);
        assert_eq!(lanes(7), Some(0b11));
        pulses[0].set_reachable(7, false);
        assert_eq!(lanes(7), Some(0b10));
        pulses[1].set_reachable(7, false);
        assert_eq!(lanes(7), None);
        assert!(pulses[0].shared.news.load(Ordering::Acquire));
    }
}
