//! An HTTPS server for clients that are not trusted, such as the webhooks, the kubelet's API and the metric agent.
//!
//! The server limits connections in total and by source, and each duration of a connection. It speaks HTTP/1.1. When it
//! stops, it accepts connections for some time after its pod has left the endpoints, and requests in progress have time
//! to end.

#![forbid(unsafe_code)]

mod client_certificate;
mod connection;
mod progress;
mod server;
mod slots;

pub use client_certificate::AnyClient;
pub use connection::{Client, Service, Settings, Timeouts};
pub use server::Server;
pub use slots::{Exceeded, Limit, Slot, Slots, source};
