//! Loads the kernel programs and gives each map a typed wrapper.
//!
//! [`Tables`] is what the programs shall know, a pure value; [`Datapath`] is
//! the programs in the kernel, and makes them know it.

#![forbid(unsafe_code)]

pub mod datapath;
pub mod tables;

mod error;
mod hook;
mod image;
mod kernel;
mod maps;
mod object;
mod pin;
mod steering;
mod trace;
mod turns;

pub use datapath::{Datapath, Options};
pub use ebpf_common::probe::{Heartbeat, Sighting};
pub use ebpf_common::settings::Settings;
pub use error::Error;
pub use kernel::map_access_needs_cap_bpf;
pub use maps::Changes;
pub use steering::Steering;
pub use tables::{Local, Outbound, Tables, Transit};
pub use trace::Trace;
pub use turns::Turns;

#[cfg(test)]
mod tests;
