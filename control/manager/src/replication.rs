//! The replication controller: a consumer's objects at its providers, and their statuses back.
//!
//! ```text
//! kubeconfig Secret --> peer: connection, watches, access
//! local object -- spec --> replica at the provider
//! local object <-status-- replica at the provider
//! ```
//!
//! Each field has one writer: the consumer writes the specification of a replica, and the provider its status. A local
//! object has a finalizer until its replica is gone. `peer` follows the Secrets of the control planes; `access` asks a
//! provider that refuses requests whether it permits them again; `object` compares an object with its replica.

pub(crate) use controller::{ReplicationController, Report};
pub(crate) use peer::is_dead;
#[cfg(test)]
pub(crate) use registrations::registrations;

mod access;
mod controller;
mod item;
mod kind;
mod object;
mod peer;
mod registrations;
mod selection;

#[cfg(test)]
mod tests;
