//! Steers a node's traffic for remote clusters into the overlay, and back.

#![forbid(unsafe_code)]

mod settings;

mod state;

mod ruleset;

mod filter;

mod view;

mod plan;

mod diff;

mod liveness;

mod kernel;

mod mutant;

#[cfg(test)]
mod testing;

fn main() {}
