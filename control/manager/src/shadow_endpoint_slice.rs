//! The controller of ShadowEndpointSlices: the endpoints that consumers have reflected to this cluster.
//!
//! ```text
//! consumer                  this cluster, the provider
//! EndpointSlice -reflection-> ShadowEndpointSlice -> EndpointSlice, with addresses as this cluster reaches them
//! ```
//!
//! A consumer writes ShadowEndpointSlices with its own credentials, so their content is untrusted. `mapping` translates
//! the addresses of a peer, `direct` reads which of them other providers have, `addresses` decides which addresses are
//! allowed, and `content` takes the valid parts of a slice. `plan` compares the result with the EndpointSlice, `contests` limits its
//! restorations, and `controller` connects it to the runtime. `peers` finds the Configurations of peers, also for the addresses in ShadowPods.
//! Imported Services (`multicluster`) have their addresses translated and their endpoints checked in the same way.

pub(crate) use addresses::Addresses;
pub(crate) use content::{Content, Readiness};
pub(crate) use controller::ShadowEndpointSliceController;
pub(crate) use direct::Direct;
pub(crate) use dropped::Dropped;
pub(crate) use mapping::{Mapping, NotMapped};
pub(crate) use metrics::Metrics;
pub(crate) use objects::{Health, Local};
pub(crate) use peers::Peers;
pub(crate) use registrations::addresses;
#[cfg(test)]
pub(crate) use registrations::registrations;
pub(crate) use settings::Settings;

mod addresses;
mod content;
mod contests;
mod controller;
mod direct;
mod dropped;
mod item;
mod mapping;
mod metrics;
mod objects;
mod observe;
mod peers;
mod plan;
mod registrations;
mod settings;

#[cfg(test)]
mod tests;
