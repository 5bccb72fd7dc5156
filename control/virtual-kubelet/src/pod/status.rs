//! The status of a pod of this cluster, from the status of the pod at the provider.
//!
//! ```text
//! local         status of the remote pod -> status of the pod
//! conditions    conditions of the remote pod, those that clients of this cluster set, and readiness gates
//! container     statuses of its containers, within the names and counts of the pod's own spec
//! bounds        lengths of what the provider writes
//! restarts      restarts across remote pods that replaced each other
//! rejected      statuses of pods without a remote pod
//! ```
//!
//! The provider may be hostile: what its status contains is bounded in size and count, and neither names a container that
//! the pod lacks nor a node, claim or address that the provider does not own.

pub(crate) use bounds::cut;
pub(crate) use context::Context;
pub(crate) use local::{is_ready, is_unavailable, local};
pub(crate) use rejected::{OFFLOADING_ABORTED, fallback, lost, terminated, waiting};
pub(crate) use restarts::Restarts;

mod bounds;
mod conditions;
mod container;
mod context;
mod local;
mod rejected;
mod restarts;

#[cfg(test)]
mod tests;
