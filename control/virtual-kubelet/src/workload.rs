//! The pods of the Node: ShadowPods at the provider, and the statuses of the remote pods back.
//!
//! ```text
//! Pod of the Node --pod::forge--> ShadowPod at the provider
//! Pod of the Node <-pod::status-- remote pod, which the provider creates
//! ```
//!
//! `namespaces` follows the NamespaceMap and the watches in the mapped namespaces; `plan` compares one pod with its
//! counterparts.

pub(crate) use controller::WorkloadController;
pub(crate) use namespaces::Namespaces;

mod controller;
mod namespaces;
mod plan;

#[cfg(test)]
mod tests;
