//! Library for the fuzz targets in `fuzz/`: the gateway's pure modules, and the harnesses that call
//! them.
//!
//! The library is part of this crate, because it compiles the same private modules as `main.rs`. It
//! uses boringtun's mock clock, so that time advances only when a harness advances it.

#![forbid(unsafe_code)]
#![allow(
    dead_code,
    unused_imports,
    reason = "the harnesses use only a part of the modules"
)]

mod engine;
mod mutant;
mod offload;

mod fuzz {
    pub(crate) mod datagrams;
    pub(crate) mod frames;
    pub(crate) mod input;
    pub(crate) mod network;
    pub(crate) mod probes;
}

/// Passes a sequence of datagrams to engines under virtual time. `input` encodes the datagrams and
/// their times.
///
/// # Panics
///
/// Panics if an invariant of the engine is violated.
pub fn datagrams(input: &[u8]) {
    fuzz::datagrams::run(input);
}

/// Splits and coalesces the frames that `input` encodes.
///
/// # Panics
///
/// Panics if an invariant of the offloads is violated.
pub fn frames(input: &[u8]) {
    fuzz::frames::run(input);
}

/// Parses `input` as a probe of the tunnel and as a probe of the overlay.
///
/// # Panics
///
/// Panics if an invariant of a parser is violated.
pub fn probes(input: &[u8]) {
    fuzz::probes::run(input);
}
