//! Address arithmetic of a fabric of clusters: prefixes, pools, remapping.
//!
//! Everything here is a pure function or a value: no IO, no clock, no randomness, so that
//! equal input gives equal addresses on every replica and after every restart.
//!
//! - [`Networks`]: which CIDR belongs to whom, and which one a remote CIDR is seen under.
//! - [`Addresses`]: which single address of a network belongs to whom.
//! - [`Remap`]: the translation of a CIDR onto another.
//! - [`rewrite`]: what a gateway does to the addresses of a packet.

#![forbid(unsafe_code)]

pub use addresses::{AddressError, Addresses};
pub use networks::{Claim, DEFAULT_POOLS, NetworkError, Networks};
pub use remap::{Remap, RemapError};

pub mod rewrite;

mod addresses;
mod networks;
mod remap;
mod tree;
