//! Allocates and remaps the CIDRs and addresses of connected clusters.
//!
//! The crate uses no IO, clock or randomness. Therefore the same calls in the same order allocate
//! the same addresses on every replica and after every restart.
//!
//! - [`Networks`] allocates CIDRs. It remaps a remote cluster's CIDR that overlaps a CIDR in use.
//! - [`Addresses`] allocates single addresses of one network.
//! - [`Remap`] translates addresses from one CIDR to another.
//! - [`rewrite`] models which packets a gateway drops and how it rewrites the others. Tests of the
//!   gateway use this model as a *test oracle*: it computes the expected result.

#![forbid(unsafe_code)]

pub use addresses::{AddressError, Addresses};
pub use networks::{Claim, DEFAULT_POOLS, NetworkError, Networks};
pub use remap::{Remap, RemapError};

pub mod rewrite;

mod addresses;
mod networks;
mod remap;
mod tree;
