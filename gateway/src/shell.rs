//! Everything that touches the machine.
//!
//! `control` on the main thread may wait; the threads of the `lanes` move packets and do
//! nothing else. `start` prepares both, with `site` and then without privileges.

mod condition;
mod connections;
mod control;
pub(crate) mod desired;
pub(crate) mod keys;
mod lane;
pub(crate) mod lanes;
mod links;
mod metrics;
mod netns;
mod outbox;
pub(crate) mod privilege;
pub(crate) mod site;
pub(crate) mod start;
mod state;
mod tap;
mod udp;
