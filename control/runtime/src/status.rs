//! Status of a runtime: readiness, health, and failing watches.

use control_client::watch::WatchId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time without progress of the main loop after which the process is unhealthy. Each turn of the
/// loop is short, and it wakes up every few seconds.
const STALL_MAX: Duration = Duration::from_secs(60);

/// Status of a runtime. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct RuntimeStatus {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Last turn of the loop; `None` before the first one.
    beat: Mutex<Option<Instant>>,
    /// Watches that controllers need, and that have not completed their first list.
    missing: Mutex<BTreeSet<WatchId>>,
    /// The Leases of this replica's controllers, by name.
    leases: Mutex<BTreeMap<String, LeaseState>>,
    /// Watches whose last request failed, and why.
    failing: Mutex<BTreeMap<WatchId, String>>,
}

#[derive(Debug, Default)]
struct LeaseState {
    is_held: bool,
    /// Why the last request for the Lease failed.
    failure: Option<String>,
}

impl RuntimeStatus {
    /// Returns whether this replica holds all Leases of its controllers.
    pub fn is_leader(&self) -> bool {
        lock(&self.inner.leases).values().all(|lease| lease.is_held)
    }

    /// Returns whether this replica holds the Lease of this name.
    pub fn holds(&self, lease: &str) -> bool {
        let leases = lock(&self.inner.leases);
        leases.get(lease).is_some_and(|lease| lease.is_held)
    }

    /// Checks that the process can serve: all watches that controllers need were listed, and the API
    /// server answers requests for the Lease. Standbys are ready, too.
    ///
    /// # Errors
    ///
    /// Returns the resources, and the responses of the API server.
    pub fn ready(&self) -> Result<(), String> {
        let leases = lock(&self.inner.leases);
        if let Some(failure) = leases.values().find_map(|lease| lease.failure.as_ref()) {
            return Err(format!("the API server does not answer: {failure}"));
        }
        let missing = lock(&self.inner.missing);
        if missing.is_empty() {
            return Ok(());
        }
        let failing = lock(&self.inner.failing);
        let reason = |id: &WatchId| match failing.get(id) {
            Some(reason) => format!("{id} ({reason})"),
            None => id.to_string(),
        };
        let reasons: Vec<_> = missing.iter().map(reason).collect();
        Err(format!(
            "not listed yet: {}; if this persists, check the CRDs and the rights of this pod",
            reasons.join(", ")
        ))
    }

    /// Returns whether the main loop makes progress.
    ///
    /// # Errors
    ///
    /// Returns for how long it has made none.
    pub fn healthy(&self) -> Result<(), String> {
        let stall = lock(&self.inner.beat).map_or(Duration::ZERO, |beat| beat.elapsed());
        if stall > STALL_MAX {
            return Err(format!("no progress for {} s", stall.as_secs()));
        }
        Ok(())
    }

    /// Returns the watches whose last request failed, with the server's response.
    pub fn failing(&self) -> BTreeMap<WatchId, String> {
        lock(&self.inner.failing).clone()
    }

    pub(crate) fn beat(&self) {
        *lock(&self.inner.beat) = Some(Instant::now());
    }

    pub(crate) fn lead(&self, lease: &str, leads: bool) {
        let mut leases = lock(&self.inner.leases);
        leases.entry(lease.to_owned()).or_default().is_held = leads;
    }

    /// Notes whether the last request for the Lease failed, and logs a change.
    pub(crate) fn lease(&self, lease: &str, failure: Option<String>) {
        let mut leases = lock(&self.inner.leases);
        let last = &mut leases.entry(lease.to_owned()).or_default().failure;
        match (&*last, &failure) {
            (None, Some(failure)) => tracing::warn!(lease, "failed to access the Lease: {failure}"),
            (Some(_), None) => tracing::info!(lease, "the API server answers again"),
            (None, None) | (Some(_), Some(_)) => {}
        }
        *last = failure;
    }

    pub(crate) fn expect(&self, required: &[WatchId]) {
        lock(&self.inner.missing).extend(required.iter().cloned());
    }

    /// Notes that a watch was listed, or was removed.
    pub(crate) fn synced(&self, id: &WatchId) {
        lock(&self.inner.missing).remove(id);
        lock(&self.inner.failing).remove(id);
    }

    /// Notes that a watch reports again. Returns whether it failed before.
    pub(crate) fn recovered(&self, id: &WatchId) -> bool {
        lock(&self.inner.failing).remove(id).is_some()
    }

    /// Notes that a watch fails. Returns whether the reason is new.
    pub(crate) fn failed(&self, id: &WatchId, reason: &str) -> bool {
        let old = lock(&self.inner.failing).insert(id.clone(), reason.to_owned());
        old.as_deref() != Some(reason)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
