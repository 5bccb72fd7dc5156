//! Everything that touches the machine.
//!
//! `control` on the main thread may block; the threads of the `lanes` only move packets. `start`
//! prepares both: `datapath_setup` first, then `privilege` drops its capabilities.

mod condition;
mod connections;
mod control;
pub(crate) mod datapath_setup;
pub(crate) mod desired;
pub(crate) mod keys;
mod lane;
pub(crate) mod lanes;
mod links;
mod metrics;
mod netns;
mod outbox;
pub(crate) mod privilege;
pub(crate) mod start;
mod state;
mod tap;
mod udp;
