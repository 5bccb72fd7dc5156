//! A proxy of HTTP/1.1 that only connects to this cluster's API server.
//!
//! ```text
//! request      the head of a request (PURE)
//! idle         when a connection has been without data for too long (PURE)
//! metrics      counters
//! relay        copies between client and API server
//! connection   one client: head, dial, response, relay
//! listener     accepts clients, and stops
//! ```
//!
//! The target of a request is neither resolved nor dialled, so the proxy reaches nothing but the API server. TLS is
//! end to end: the proxy sees no request to the API server and no credentials.

mod connection;
mod idle;
mod listener;
mod metrics;
mod relay;
mod request;

pub use https_server::Limit;
pub use listener::{Proxy, State};
pub use metrics::Metrics;

use std::time::Duration;

/// Settings of the proxy.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Host and port of the API server, resolved at each dial.
    pub api_server: String,
    /// Limits of the number of connections.
    pub limits: Limit,
    /// Time limits of a connection.
    pub timeouts: Timeouts,
    /// Time after the signal to stop for which clients are still accepted, because nodes forward to this process
    /// until they know that it is not ready.
    pub accept_after_stop: Duration,
    /// Time after the signal to stop after which open connections are closed.
    pub leave_timeout: Duration,
}

/// Time limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Time from accept to the end of the request's head.
    pub head: Duration,
    /// Time to resolve and connect to the API server.
    pub dial: Duration,
    /// Time without data in both directions.
    pub idle: Duration,
    /// Time without data, once one side has ended its direction.
    pub half_closed: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(5),
            dial: Duration::from_secs(10),
            // The watches of client-go may be silent for 10 minutes.
            idle: Duration::from_secs(15 * 60),
            // Neither TLS nor HTTP/2 uses a connection that is closed in one direction.
            half_closed: Duration::from_secs(10),
        }
    }
}

#[cfg(test)]
mod tests;
