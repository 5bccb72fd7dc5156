//! The pods of the Node: ShadowPods at the provider, and the statuses of the remote pods back.
//!
//! ```text
//! Pod of the Node --pod::forge--> ShadowPod at the provider
//! Pod of the Node <-pod::status-- remote pod, which the provider creates
//! ```
//!
//! `namespaces` follows the NamespaceMap and the watches in the mapped namespaces; `plan` compares one pod with its
//! counterparts, and `update` an existing ShadowPod with its pod. `offloading` reads the NamespaceOffloading, `delayed` joins
//! statuses that follow each other, `trailing` chooses pods whose readiness follows that of others, `unscheduled` ends pods
//! that the provider does not place, `addresses` reports those that are not reflected, and `steps` measures latencies. `absences`
//! keeps a stale cache from deleting ShadowPods, `unmapped` plans the pods of other namespaces, `contests` limits restorations of
//! ShadowPods, and `allowance` writes of statuses.

pub(crate) use controller::WorkloadController;
pub(crate) use namespaces::Namespaces;
pub(crate) use steps::Durations;

mod absences;
mod addresses;
mod allowance;
mod contests;
mod controller;
mod counterparts;
mod delayed;
mod namespaces;
mod offloading;
mod plan;
mod steps;
mod trailing;
mod unmapped;
mod unscheduled;
mod update;

#[cfg(test)]
mod tests;
