//! The DaemonSet controller: reports DaemonSets from before the installation, whose pods would be scheduled on virtual nodes.
//!
//! The admission webhook changes a DaemonSet only together with its template, because a change restarts the pods on all
//! nodes. So an Event names the patch, which `liqoctl install --patch-daemonsets` applies.

#[cfg(test)]
mod tests;

use control_api::{annotations, daemon_set};
use control_runtime::{
    Cache, Change, Cluster, Controller, Env, Event, Kept, Key, Plan, Ref, Registration, Resource,
    Scope,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::Value;

/// Reason of the Event.
const REASON: &str = "MissingNodeAffinity";

/// Longest patch in an Event, in bytes. Its note has 1024 bytes at most.
const PATCH_LEN_MAX: usize = 512;

/// Publishes an Event about each DaemonSet whose pods would be scheduled on virtual nodes.
pub(crate) struct DaemonSetController;

/// The state of a DaemonSet in the cache.
#[derive(Debug, PartialEq)]
struct Exposure {
    /// The merge patch that keeps its pods off virtual nodes; none if they stay off.
    patch: Option<Value>,
}

impl Kept for Exposure {
    fn resource() -> Resource {
        Resource::of::<DaemonSet>()
    }
}

impl Controller for DaemonSetController {
    type Item = Key;
    const NAME: &'static str = "daemon_set";
    const FIELD_MANAGER: &'static str = "daemon-set";

    fn resources(&self) -> Vec<Registration> {
        registrations()
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<Key> {
        vec![change.object.key.clone()]
    }

    fn plan(&mut self, item: &Key, cache: &Cache, _env: &mut Env<'_>) -> Plan<Key> {
        let mut plan = Plan::default();
        let exposure = cache.objects::<Exposure>(&Cluster::Local).get(item);
        if let Some(patch) = exposure.and_then(|it| it.patch.as_ref()) {
            plan.events.push(Event {
                object: Ref::of::<DaemonSet>(&Cluster::Local, item),
                is_warning: true,
                reason: REASON,
                note: note(patch),
                is_repeated: false,
            });
        }

        plan
    }
}

/// Returns the resources that the controller follows.
pub(crate) fn registrations() -> Vec<Registration> {
    let keep = |object: DaemonSet| Exposure {
        patch: daemon_set::patch(&object),
    };

    vec![Registration::of(Scope::All, keep)]
}

fn note(patch: &Value) -> String {
    let text = patch.to_string();
    let patch = if text.len() > PATCH_LEN_MAX {
        "the patch that `liqoctl info` shows".to_owned()
    } else {
        format!("the merge patch {text}")
    };

    format!(
        "its pods would be scheduled on virtual nodes: run `liqoctl install --patch-daemonsets` or apply {patch}, which restarts \
         them on all nodes; or permit it by the annotation {}=true",
        annotations::ALLOW_VIRTUAL_NODES
    )
}
