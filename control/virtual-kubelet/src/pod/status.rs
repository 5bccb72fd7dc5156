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
pub(crate) use conditions::{has_others, observe};
pub(crate) use context::Context;
pub(crate) use local::{is_ready, is_unavailable, local};
pub(crate) use rejected::{OFFLOADING_ABORTED, fallback, is_lost, lost, terminated, waiting};
pub(crate) use restarts::Restarts;

use std::collections::BTreeSet;

/// The remote pods of a pod, as far as this process has seen them.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) restarts: Restarts,
    /// Types of their conditions, see [`Context::reported`].
    pub(crate) reported: BTreeSet<String>,
}

mod bounds;
mod conditions;
mod container;
mod context;
mod local;
mod rejected;
mod restarts;

#[cfg(test)]
mod tests;
