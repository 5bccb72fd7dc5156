//! Layouts shared by the kernel programs and user space.
//!
//! Addresses are byte arrays in network order, as on the wire, so that neither
//! side converts. Sizes are asserted at compile time: they are the interface.

#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]

pub mod settings;

pub mod probe;

pub mod maps;

pub mod counter;

#[cfg(feature = "mutants")]
pub mod mutant;

#[cfg(feature = "user")]
#[expect(unsafe_code, reason = "`aya::Pod` is an unsafe trait")]
mod pod;
