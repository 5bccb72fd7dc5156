//! Integration tests: real traffic between network namespaces.
//!
//! They need root, and fail without: run them with `cargo xtask test`. The first
//! two groups test the laboratory, the others the fabric, one behaviour each.

#![expect(
    clippy::unwrap_used,
    reason = "what a test sets up fails the test, in functions beside it, too"
)]

mod fixture;

mod laboratory;
mod network;

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
mod near;
mod overlap;
mod peers;
mod prefixes;
mod restart;
mod sizes;
mod spoofing;
mod transit;
mod upstream;
