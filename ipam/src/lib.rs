//! Address arithmetic of a fabric of clusters: prefixes, pools, remapping.
//!
//! Everything here is a pure function or a value: no IO, no clock, no randomness, so that
//! equal input gives equal addresses on every replica and after every restart.

#![forbid(unsafe_code)]

pub use remap::{Remap, RemapError};

mod remap;
