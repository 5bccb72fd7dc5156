//! The ForeignCluster controller: one object per peer summarizes the peering.
//!
//! ```text
//! objects         the objects of peers in the cache, found by cluster ID
//! peer            the objects of one peer
//! networking      \
//! authentication   > conditions of one module each
//! offloading      /
//! pause           one write for changes within a short time
//! probe           probes of the API servers of providers
//! plan            creation, status and deletion of the ForeignCluster
//! watches         the watches of Secrets and pods, which follow the rights of the manager
//! controller      the connection to the runtime
//! ```
//!
//! A ForeignCluster is derived from the objects in the cache, and from two facts about a provider that no object has:
//! whether its API server responds, and whether it refuses the requests of this cluster. It exists as long as any Liqo object of the peer
//! does, so that an interrupted `liqoctl unpeer`, which reads it, can run again.

pub(crate) use controller::{ForeignClusterController, Refusals};
#[cfg(test)]
pub(crate) use registrations::registrations;
pub(crate) use settings::Settings;

mod authentication;
mod condition;
mod controller;
mod item;
mod networking;
mod objects;
mod offloading;
mod pause;
mod peer;
mod plan;
mod probe;
mod registrations;
mod settings;
mod watches;

#[cfg(test)]
mod tests;
