//! Services of this cluster that other clusters reach, besides its pods.
//!
//! ```text
//! proxy   a CONNECT proxy in front of the API server, for peerings whose only path is the tunnel
//! ```
//!
//! The process has no credentials: a client of the proxy has the rights of its own credentials at the API server.

#![forbid(unsafe_code)]

pub mod proxy;
