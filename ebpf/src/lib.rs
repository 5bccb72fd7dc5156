//! Loads the gateway's eBPF programs, attaches them, and updates their maps.
//!
//! [`Tables`] is a plain value with the desired contents of the maps, and [`TableChanges`] is a
//! change of them. [`Datapath`] controls the programs in the kernel, and applies both to the maps.

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
mod socket_steering;
mod spread;
mod steering;
mod trace;

#[cfg(any(test, feature = "test-run"))]
pub mod test_run;

pub use datapath::{Datapath, Options};
pub use ebpf_common::probe::{Heartbeat, LastRequest};
pub use ebpf_common::settings::Settings;
pub use error::Error;
pub use kernel::map_access_needs_cap_bpf;
pub use maps::Changes;
pub use socket_steering::SocketSteering;
pub use steering::Steering;
pub use tables::{Local, Outbound, TableChanges, Tables, Transit};
pub use trace::Trace;

#[cfg(test)]
mod tests;
