//! Integration tests: real traffic between network namespaces.
//!
//! They need root, and fail without: run them with `cargo xtask test`.

mod laboratory;
mod network;
