//! Decides which replica writes `Connected` and which writes `Error` to a `Connection`.
//!
//! A connected replica writes `Connected` if the object shows another value, and it writes the
//! latency every 10 s. While the object shows `Connected`, a replica that is not connected checks
//! in two steps whether another replica is connected:
//!
//! ```text
//!  1. this replica lost the peer, or the latency is 20 s old ---> remove the latency, add itself to `lostBy`
//!  2. a new latency appears within 3 s                       ---> another replica is connected
//!     all live replicas are in `lostBy`                      ---> write `Error`
//!     no latency appears within 3 s                          ---> write `Error`
//! ```
//!
//! Without a latency, each other replica that is not connected adds itself to `lostBy` as well. So a loss that concerns all
//! replicas is shown at once, and 3 s matter only if a replica has ended.
//!
//! The object therefore shows `Connected` without interruption while any replica is connected, even
//! if other replicas start, stop or crash. The patches that remove the latency or write `Error` are
//! conditional on the resourceVersion.

use crate::engine::ConnectionState;
use control_api::networking::connection::{CONNECTED, CONNECTING, ConnectionStatus, ERROR};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Minimum age of the latency in the object at which a connected replica replaces it by a new one.
const AGE_MAX: Duration = Duration::from_secs(9);

/// Time without a new latency, after which a replica that is not connected removes the latency from
/// the object.
///
/// A connected replica measures the latency every 10 s, and writes it if the shown latency is at
/// least [`AGE_MAX`] old. So 20 s without a new latency mean that no replica is connected.
pub(super) const DOUBT_AGE: Duration = Duration::from_secs(20);

/// Maximum time until a connected replica restores a removed latency.
pub(super) const RESTORE_TIMEOUT: Duration = Duration::from_secs(3);

/// The replicas of the gateway.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replicas<'a> {
    /// Name of this one.
    pub(super) own: &'a str,
    /// Names of all that are ready.
    pub(super) live: &'a BTreeSet<String>,
}

/// The connection state of a peer in this replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) state: ConnectionState,
    pub(super) latency: Option<Duration>,
    /// Whether the engine has reported a state since the last call of [`Own::status`].
    pub(super) is_changed: bool,
    /// The running check; `None` if this replica is connected, or if no check has started.
    doubt: Option<Doubt>,
}

/// The check of a replica that is not connected: is another replica connected?
#[derive(Clone, Debug, PartialEq, Eq)]
struct Doubt {
    /// Timestamp of the latency in the object; `None` if the object has no latency.
    measured: Option<Time>,
    /// Time at which this replica first saw this timestamp.
    since: Instant,
}

impl Own {
    /// Creates the state of a new peer, which is not connected yet.
    pub(super) fn new() -> Self {
        Self {
            state: ConnectionState::Connecting,
            latency: None,
            is_changed: false,
            doubt: None,
        }
    }

    /// Creates the state of a peer that no gateway of this cluster serves.
    ///
    /// If the object shows `Connected`, the first call of [`Own::status`] starts the check at once:
    /// it returns a patch that removes the latency.
    pub(super) fn of_unserved() -> Self {
        Self {
            is_changed: true,
            ..Self::new()
        }
    }

    /// Stores the state that the engine reported.
    pub(super) fn note(&mut self, state: ConnectionState, latency: Option<Duration>) {
        self.state = state;
        self.latency = latency;
        self.is_changed = true;
    }

    /// Returns the patch of the object's status, or `None` if no change is due.
    ///
    /// `now` and `at` are the current time: `now` is for timestamps in the object, `at` for
    /// intervals.
    pub(super) fn status(
        &mut self,
        shown: &ConnectionStatus,
        replicas: Replicas<'_>,
        now: Timestamp,
        at: Instant,
    ) -> Option<Value> {
        let value = shown.value.as_deref();
        let latency = shown.latency.as_ref();
        let measured = latency.and_then(|latency| latency.timestamp.as_ref());
        let is_changed = std::mem::take(&mut self.is_changed);
        let doubt = self.doubt.take();
        if self.state == ConnectionState::Connected {
            let is_doubted = !shown.lost_by.is_empty();
            let patch = self.connected(value, measured, is_changed || is_doubted, now);
            return patch.map(|patch| without_votes(patch, shown));
        }

        match value {
            None => Some(json!({"value": CONNECTING})),
            Some(CONNECTED) => self.doubt(doubt, (shown, replicas), is_changed, at),
            Some(ERROR) => None,
            Some(_) if self.state == ConnectionState::Error && is_changed => Some(error(shown)),
            Some(_) => None,
        }
    }

    /// Returns the end of the running check, at which [`Own::status`] must be called again.
    pub(super) fn due(&self) -> Option<Instant> {
        let doubt = self.doubt.as_ref()?;
        let is_measured = doubt.measured.is_some();

        Some(
            doubt.since
                + if is_measured {
                    DOUBT_AGE
                } else {
                    RESTORE_TIMEOUT
                },
        )
    }

    /// Returns the patch of a connected replica.
    fn connected(
        &self,
        value: Option<&str>,
        measured: Option<&Time>,
        is_changed: bool,
        now: Timestamp,
    ) -> Option<Value> {
        let is_old = |at: &Time| now.duration_since(at.0).unsigned_abs() >= AGE_MAX;
        // A missing latency means that another replica has removed it and waits for a new one.
        let is_due = measured.is_none_or(|at| is_changed && is_old(at));
        if value == Some(CONNECTED) && !is_due {
            return None;
        }

        Some(json!({
            "value": CONNECTED,
            "latency": {
                "value": self.latency.map_or_else(|| "N/A".to_owned(), text),
                "timestamp": now.to_string(),
            },
        }))
    }

    /// Returns the patch of a replica that is not connected, while the object shows `Connected`.
    fn doubt(
        &mut self,
        doubt: Option<Doubt>,
        (shown, replicas): (&ConnectionStatus, Replicas<'_>),
        is_changed: bool,
        at: Instant,
    ) -> Option<Value> {
        let latency = shown.latency.as_ref();
        let measured = latency.and_then(|latency| latency.timestamp.as_ref());
        let doubt = doubt.filter(|it| it.measured.as_ref() == measured);
        let doubt = doubt.unwrap_or_else(|| Doubt {
            measured: measured.cloned(),
            since: at,
        });
        let age = at.saturating_duration_since(doubt.since);
        self.doubt = Some(doubt);

        if measured.is_some() && !is_changed && age < DOUBT_AGE {
            return None;
        }
        // A list from before the latency was restored does not count.
        let before = shown.lost_by.iter().filter(|_| measured.is_none());
        let before: BTreeSet<&str> = before.map(String::as_str).collect();
        let mut lost_by = before.clone();
        lost_by.insert(replicas.own);
        let live = replicas.live;
        let is_unanimous = !live.is_empty() && live.iter().all(|it| lost_by.contains(&**it));
        if is_unanimous || measured.is_none() && age >= RESTORE_TIMEOUT {
            return Some(error(shown));
        }
        // Replicas that have ended are dropped from the list.
        lost_by.retain(|it| *it == replicas.own || live.contains(*it));

        (measured.is_some() || !before.contains(replicas.own))
            .then(|| json!({"latency": {"value": "N/A", "timestamp": null}, "lostBy": lost_by}))
    }
}

fn error(shown: &ConnectionStatus) -> Value {
    let patch = json!({"value": ERROR, "latency": {"value": "N/A", "timestamp": null}});
    without_votes(patch, shown)
}

/// Adds to a patch that the list of replicas without connection ends.
fn without_votes(mut patch: Value, shown: &ConnectionStatus) -> Value {
    if !shown.lost_by.is_empty() {
        patch["lostBy"] = Value::Null;
    }
    patch
}

/// Formats a latency as upstream Liqo does: whole milliseconds, or below 1 ms whole microseconds
/// with the Greek letter mu.
fn text(latency: Duration) -> String {
    match latency.as_millis() {
        0 => format!("{}\u{3bc}s", latency.as_micros()),
        millis => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests;
