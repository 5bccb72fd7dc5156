//! Generates traffic between namespaces, and measures loss, rate and latency.

pub mod capture;
pub mod checksum;
pub mod counters;
pub mod frame;
pub mod handshakes;
pub mod ping;
pub mod rate;
pub mod tcp;
pub mod traceroute;
pub mod udp;
