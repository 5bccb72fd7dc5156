//! Address arithmetic of a fabric of clusters: prefixes, pools, remapping.
//!
//! Pure functions and values, without IO, clock or randomness: equal input gives equal addresses on
//! every replica and after every restart.
//!
//! - [`Networks`]: allocates CIDRs, and remaps remote ones that overlap.
//! - [`Addresses`]: allocates the addresses of one network.
//! - [`Remap`]: translates one CIDR to another.
//! - [`rewrite`]: the oracle for a gateway's changes to packets.

#![forbid(unsafe_code)]

pub use addresses::{AddressError, Addresses};
pub use networks::{Claim, DEFAULT_POOLS, NetworkError, Networks};
pub use remap::{Remap, RemapError};

pub mod rewrite;

mod addresses;
mod networks;
mod remap;
mod tree;
