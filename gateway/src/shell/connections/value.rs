//! The value of a `Connection`: which replica may say that the peer is connected, and which that it is
//! not. PURE.
//!
//! ```text
//!   connected replica     says Connected wherever that is not said, and how long the peer took to
//!                         answer, every 10 s
//!   any other, that sees Connected:
//!     lost the peer, or the latency is 20 s old ---> takes the latency away: "is anybody connected?"
//!     a new latency within 3 s                  ---> somebody is: nothing to say
//!     none                                      ---> Error
//! ```
//! So the object shows nothing but `Connected` while one replica is, whichever starts, leaves or dies.
//! A question and an `Error` are written only over what their writer has seen.

use crate::engine::ConnectionState;
use control_api::Connection;
use control_api::connection::{CONNECTED, CONNECTING, ERROR};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How old the latency that an object shows may be.
const AGE_MAX: Duration = Duration::from_secs(9);

/// How long a shown latency stays the same while somebody is connected: each connected replica has a
/// new one every 10 s, and writes it if the last is older than [`AGE_MAX`].
const SILENCE: Duration = Duration::from_secs(20);

/// How long a connected replica has to answer: it sees the question at once, and writes.
const ANSWER: Duration = Duration::from_secs(3);

/// What this replica knows of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) state: ConnectionState,
    pub(super) latency: Option<Duration>,
    /// Whether it is news.
    pub(super) news: bool,
    /// What the object shows though this replica is not connected.
    doubt: Option<Doubt>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Doubt {
    /// When the shown latency was measured.
    measured: Option<Time>,
    /// Since when this replica sees that.
    since: Instant,
}

impl Own {
    /// Creates that of a peer of which nothing is known yet.
    pub(super) fn new() -> Self {
        Self {
            state: ConnectionState::Connecting,
            latency: None,
            news: false,
            doubt: None,
        }
    }

    /// Creates that of a peer that is served no more: what is shown is to be asked about at once.
    pub(super) fn of_unserved() -> Self {
        Self {
            news: true,
            ..Self::new()
        }
    }

    /// Notes what the engine tells.
    pub(super) fn note(&mut self, state: ConnectionState, latency: Option<Duration>) {
        self.state = state;
        self.latency = latency;
        self.news = true;
    }

    /// Returns the status that the object should have, if it has another. What is told now is no
    /// news any more.
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
        let news = std::mem::take(&mut self.news);
        if self.state == ConnectionState::Connected {
            self.doubt = None;
            return self.connected(value, measured, news, now);
        }

        match value {
            None => Some(json!({"value": CONNECTING})),
            Some(CONNECTED) => self.doubt(measured, news, at),
            Some(ERROR) => None,
            Some(_) if self.state == ConnectionState::Error && news => Some(error()),
            Some(_) => None,
        }
    }

    fn connected(
        &self,
        value: Option<&str>,
        measured: Option<&Time>,
        news: bool,
        now: Timestamp,
    ) -> Option<Value> {
        let is_old = |at: &Time| now.duration_since(at.0).unsigned_abs() >= AGE_MAX;
        // Without one somebody asks.
        let is_due = measured.is_none_or(|at| news && is_old(at));
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

    /// What to do about a `Connected` that this replica cannot confirm.
    fn doubt(&mut self, measured: Option<&Time>, news: bool, at: Instant) -> Option<Value> {
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
            return (age >= ANSWER).then(error);
        }
        (news || age >= SILENCE).then(|| json!({"latency": {"value": "N/A", "timestamp": null}}))
    }
}

fn error() -> Value {
    json!({"value": ERROR, "latency": {"value": "N/A", "timestamp": null}})
}

/// As upstream writes it: whole milliseconds, below one whole microseconds with the Greek letter.
fn text(latency: Duration) -> String {
    match latency.as_millis() {
        0 => format!("{}\u{3bc}s", latency.as_micros()),
        millis => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests;
