//! The library that `fuzz/` fuzzes: the gateway's pure modules and the harnesses that drive them.
//!
//! It stands beside `main.rs` because it consists of the same modules, which no other crate can name.
//! boringtun's clock is the mock one here, so that time passes only when a harness says so.

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

/// Feeds the engine with the datagrams and the time that `input` describes.
///
/// # Panics
///
/// Panics if a rule of the engine is broken.
pub fn datagrams(input: &[u8]) {
    fuzz::datagrams::run(input);
}

/// Splits and joins the frames that `input` describes.
///
/// # Panics
///
/// Panics if a rule of the offloads is broken.
pub fn frames(input: &[u8]) {
    fuzz::frames::run(input);
}

/// Reads `input` as a probe of the tunnel and as one of the overlay.
///
/// # Panics
///
/// Panics if a parser breaks a rule.
pub fn probes(input: &[u8]) {
    fuzz::probes::run(input);
}
