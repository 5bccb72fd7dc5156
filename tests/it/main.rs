//! Integration tests: real traffic between network namespaces.
//!
//! They need root, and fail without: run them with `cargo xtask test`.

#![expect(
    clippy::unwrap_used,
    reason = "what a test sets up fails the test, in functions beside it, too"
)]

mod laboratory;
mod network;
