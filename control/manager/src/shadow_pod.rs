//! The ShadowPod controller: the pods of consumers in this cluster.
//!
//! ```text
//! ShadowPod -> origin, policy, Quota -> Pod of the same name -> phase of the ShadowPod
//! ```
//!
//! A consumer may write any ShadowPod in the namespaces that it has here, also past the admission webhook, so everything is
//! checked here. `policy` decides which pods it may have, `ledger` which of them fit into its Quotas.
//!
//! | module | |
//! |---|---|
//! | `kept`, `demand`, `policy` | what a ShadowPod requests, and what a TenantPolicy decides about (PURE) |
//! | `terms`, `ledger` | the Quota decision (PURE) |
//! | `objects` | what the objects of a name mean (PURE) |
//! | `pod`, `change`, `plan` | content of the pod, its changes, and the requests (PURE) |
//! | `controller`, `accounts`, `pending`, `memory` | changes and outcomes (PURE) |

use std::time::Duration;

pub(crate) use controller::ShadowPodController;
pub(crate) use pod::owner;
#[cfg(test)]
pub(crate) use registrations::registrations;
pub(crate) use registrations::{exist_in, presence};
pub(crate) use settings::Settings;

mod accounts;
mod change;
mod controller;
mod demand;
mod item;
mod kept;
mod ledger;
mod memory;
mod objects;
mod pending;
mod plan;
mod pod;
mod policy;
mod registrations;
mod settings;
mod terms;
mod text;

#[cfg(test)]
mod tests;

/// Time after which the API server gives up the creation or the resize of a pod. A standby leads 5 s after the last write of the leader at
/// the earliest.
const CREATION_TIMEOUT: Duration = Duration::from_secs(4);
