//! The value of a `Connection`: which replica may write `Connected`, and which `Error`. PURE.
//!
//! ```text
//!   connected replica     writes Connected wherever that is missing, and the latency every 10 s
//!   any other replica, if the object shows Connected:
//!     it lost the peer, or the latency is 20 s old ---> removes the latency
//!     a new latency within 3 s                     ---> another replica is connected
//!     no latency within 3 s                        ---> writes Error
//! ```
//! So the object shows `Connected` throughout while any replica is connected, whichever of them starts,
//! stops or dies. Removing the latency and writing `Error` are conditional on the resourceVersion.

use crate::engine::ConnectionState;
use control_api::Connection;
use control_api::connection::{CONNECTED, CONNECTING, ERROR};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Age of a shown latency from which a connected replica writes its own.
const AGE_MAX: Duration = Duration::from_secs(9);

/// Age of a shown latency from which it is doubted: a connected replica measures one every 10 s, and
/// writes it if the shown one is older than [`AGE_MAX`].
const DOUBT_AGE: Duration = Duration::from_secs(20);

/// Time in which a connected replica restores a removed latency.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(3);

/// The state of a peer in this replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) state: ConnectionState,
    pub(super) latency: Option<Duration>,
    /// Changed since the last call of [`Own::status`].
    pub(super) is_changed: bool,
    /// The object shows `Connected` although this replica is not.
    doubt: Option<Doubt>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Doubt {
    /// The timestamp of the shown latency.
    measured: Option<Time>,
    /// Since when the object shows it.
    since: Instant,
}

impl Own {
    /// Creates the state of a new peer.
    pub(super) fn new() -> Self {
        Self {
            state: ConnectionState::Connecting,
            latency: None,
            is_changed: false,
            doubt: None,
        }
    }

    /// Creates the state of a peer that is not served: a shown latency is removed at once.
    pub(super) fn of_unserved() -> Self {
        Self {
            is_changed: true,
            ..Self::new()
        }
    }

    /// Notes the engine's state.
    pub(super) fn note(&mut self, state: ConnectionState, latency: Option<Duration>) {
        self.state = state;
        self.latency = latency;
        self.is_changed = true;
    }

    /// Returns the change of the object's status, if any.
    pub(super) fn status(
        &mut self,
        connection: &Connection,
        now: Timestamp,
        at: Instant,
    ) -> Option<Value> {
        let shown = connection.status.as_ref();
        let value = shown.and_then(|status| status.value.as_deref());
        let latency = shown.and_then(|status| status.latency.as_ref());
        let measured = latency.and_then(|latency| latency.timestamp.as_ref());
        let is_changed = std::mem::take(&mut self.is_changed);
        if self.state == ConnectionState::Connected {
            self.doubt = None;
            return self.connected(value, measured, is_changed, now);
        }

        match value {
            None => Some(json!({"value": CONNECTING})),
            Some(CONNECTED) => self.doubt(measured, is_changed, at),
            Some(ERROR) => None,
            Some(_) if self.state == ConnectionState::Error && is_changed => Some(error()),
            Some(_) => None,
        }
    }

    fn connected(
        &self,
        value: Option<&str>,
        measured: Option<&Time>,
        is_changed: bool,
        now: Timestamp,
    ) -> Option<Value> {
        let is_old = |at: &Time| now.duration_since(at.0).unsigned_abs() >= AGE_MAX;
        // Another replica has removed the latency if there is none.
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

    /// Returns the change for a `Connected` that this replica cannot confirm.
    fn doubt(&mut self, measured: Option<&Time>, is_changed: bool, at: Instant) -> Option<Value> {
        let doubt = self
            .doubt
            .take()
            .filter(|it| it.measured.as_ref() == measured);
        let doubt = doubt.unwrap_or_else(|| Doubt {
            measured: measured.cloned(),
            since: at,
        });
        let age = at.saturating_duration_since(doubt.since);
        self.doubt = Some(doubt);

        if measured.is_none() {
            return (age >= RESTORE_TIMEOUT).then(error);
        }
        (is_changed || age >= DOUBT_AGE)
            .then(|| json!({"latency": {"value": "N/A", "timestamp": null}}))
    }
}

fn error() -> Value {
    json!({"value": ERROR, "latency": {"value": "N/A", "timestamp": null}})
}

/// Formats a latency as upstream Liqo does: whole milliseconds, or microseconds with a Greek mu.
fn text(latency: Duration) -> String {
    match latency.as_millis() {
        0 => format!("{}\u{3bc}s", latency.as_micros()),
        millis => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests;
