//! Allocates and remaps the CIDRs and addresses of connected clusters.
//!
//! The crate uses no IO, clock or randomness. Therefore the same calls in the same order allocate
//! the same addresses on every replica and after every restart.
//!
//! - [`Networks`] allocates CIDRs, and remaps CIDRs of remote clusters that overlap other CIDRs.
//! - [`Addresses`] allocates single addresses of one network.
//! - [`Remap`] translates the addresses of one CIDR to another CIDR.
//! - [`rewrite`] is a reference model (*oracle*) of a gateway's changes to packets, for tests.

#![forbid(unsafe_code)]

pub use addresses::{AddressError, Addresses};
pub use networks::{Claim, DEFAULT_POOLS, NetworkError, Networks};
pub use remap::{Remap, RemapError};

pub mod rewrite;

mod addresses;
mod networks;
mod remap;
mod tree;
