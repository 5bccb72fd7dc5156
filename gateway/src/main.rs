//! WireGuard for all peers of a cluster, and the end of its overlay.
//!
//! `engine` decides (PURE, without IO), `offload` takes super-packets apart and
//! together (PURE), `tables` translates the desired state for kernel and engine
//! (PURE), `shell` owns every file descriptor, `cli` is what a person types.

#![deny(unsafe_code)]

mod engine;
mod mutant;
mod offload;

fn main() {}
