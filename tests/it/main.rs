//! Integration tests with real traffic between network namespaces.
//!
//! The tests need root, and `cargo xtask test` runs them. The modules [`laboratory`] and
//! [`network`] test the laboratory. Most other modules test gateways and route agents.

#![expect(
    clippy::unwrap_used,
    reason = "a failed set-up fails the test, also in helper functions"
)]

mod fixture;

mod laboratory;
mod network;

mod cpu_affinity;
mod documentation;
mod failover;
mod foreign;
mod handshakes;
mod health;
mod hostile;
mod hosts;
mod input;
mod isolation;
mod lanes;
mod ordinary_cards;
mod overlap;
mod peers;
mod prefixes;
mod restart;
mod services;
mod sizes;
mod spoofing;
mod transit;
mod upstream;
