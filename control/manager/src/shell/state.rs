//! What the loop tells of itself.

use process::http::Observed;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the loop may be busy with one task: several writes, each with its own limit.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// The state of the process.
#[derive(Debug)]
pub(crate) struct State {
    started_at: Instant,
    /// When the loop has last moved, in milliseconds since the start.
    beat: AtomicU64,
    is_leader: AtomicBool,
    is_synced: AtomicBool,
}

impl State {
    /// Creates the state of a process that stands by.
    pub(crate) fn new() -> Self {
        Self {
            started_at: Instant::now(),
            beat: AtomicU64::new(0),
            is_leader: AtomicBool::new(false),
            is_synced: AtomicBool::new(false),
        }
    }

    /// Notes that the process leads.
    pub(crate) fn lead(&self) {
        self.beat();
        self.is_leader.store(true, Ordering::Relaxed);
    }

    /// Notes that the loop moves.
    pub(super) fn beat(&self) {
        let elapsed = self.started_at.elapsed().as_millis();
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        self.beat.store(elapsed, Ordering::Relaxed);
    }

    /// Notes that all objects are known.
    pub(super) fn set_synced(&self) {
        self.is_synced.store(true, Ordering::Relaxed);
    }
}

impl Observed for State {
    fn healthy(&self) -> Result<(), String> {
        let beat = Duration::from_millis(self.beat.load(Ordering::Relaxed));
        let silence = self.started_at.elapsed().saturating_sub(beat);
        if self.is_leader.load(Ordering::Relaxed) && silence > SILENCE_MAX {
            return Err(format!("the loop has not moved for {} s", silence.as_secs()));
        }

        Ok(())
    }

    fn ready(&self) -> Result<(), String> {
        let is_waiting = !self.is_leader.load(Ordering::Relaxed);
        if is_waiting || self.is_synced.load(Ordering::Relaxed) {
            return Ok(());
        }

        Err("not all objects are known yet".to_owned())
    }
}
