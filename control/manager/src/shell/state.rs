//! What the loop tells of itself.

use crate::kind::Kind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use telemetry::http::Observed;

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
    /// The kinds whose objects are not all known, in words.
    unknown: Mutex<String>,
    /// Why the API server's last answer about the Lease was none.
    failure: Mutex<Option<String>>,
}

impl State {
    /// Creates the state of a process that stands by.
    pub(crate) fn new() -> Self {
        Self {
            started_at: Instant::now(),
            beat: AtomicU64::new(0),
            is_leader: AtomicBool::new(false),
            is_synced: AtomicBool::new(false),
            unknown: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// Notes that the process leads.
    pub(crate) fn lead(&self) {
        self.beat();
        self.is_leader.store(true, Ordering::Relaxed);
    }

    /// Returns whether the process leads.
    #[cfg(test)]
    pub(super) fn leads(&self) -> bool {
        self.is_leader.load(Ordering::Relaxed)
    }

    /// Notes that the process stands by.
    pub(crate) fn stand_by(&self) {
        self.is_leader.store(false, Ordering::Relaxed);
        self.is_synced.store(false, Ordering::Relaxed);
    }

    /// Notes whether the API server answers, or else why not; tells people when that changes.
    pub(super) fn note_answer(&self, failure: Option<String>) {
        let Ok(mut last) = self.failure.lock() else {
            return;
        };
        match (&*last, &failure) {
            (None, Some(failure)) => tracing::warn!(
                "failed to read the Lease, which is tried again until the API server answers: {failure}"
            ),
            (Some(_), None) => tracing::info!("the API server answers again"),
            (None, None) | (Some(_), Some(_)) => {}
        }
        *last = failure;
    }

    /// Notes that the loop moves.
    pub(super) fn beat(&self) {
        let elapsed = self.started_at.elapsed().as_millis();
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        self.beat.store(elapsed, Ordering::Relaxed);
    }

    /// Notes the kinds whose objects are not all known.
    pub(super) fn set_unknown<'a>(&self, kinds: impl Iterator<Item = &'a Kind>) {
        let kinds: Vec<_> = kinds.map(Kind::to_string).collect();
        self.is_synced.store(kinds.is_empty(), Ordering::Relaxed);
        if let Ok(mut unknown) = self.unknown.lock() {
            *unknown = kinds.join(", ");
        }
    }
}

impl Observed for State {
    fn healthy(&self) -> Result<(), String> {
        let beat = Duration::from_millis(self.beat.load(Ordering::Relaxed));
        let silence = self.started_at.elapsed().saturating_sub(beat);
        if self.is_leader.load(Ordering::Relaxed) && silence > SILENCE_MAX {
            return Err(format!(
                "the loop has not moved for {} s",
                silence.as_secs()
            ));
        }

        Ok(())
    }

    fn ready(&self) -> Result<(), String> {
        let failure = self.failure.lock().map(|it| it.clone()).unwrap_or_default();
        if let Some(failure) = failure {
            return Err(format!("the API server cannot be asked: {failure}"));
        }
        let is_waiting = !self.is_leader.load(Ordering::Relaxed);
        if is_waiting || self.is_synced.load(Ordering::Relaxed) {
            return Ok(());
        }

        let unknown = self.unknown.lock().map(|it| it.clone()).unwrap_or_default();
        Err(format!(
            "not listed yet: {unknown}; if this lasts, check the CRDs and this pod's rights"
        ))
    }
}
