//! Pods whose namespace is not offloaded to this Node, or no longer is.

use super::plan::{Workload, has_started};
use crate::pod::status;
use control_api::NamespaceMap;
use control_api::offloading::namespace_map::MappingPhase;
use control_runtime::{Env, Key, Plan};
use k8s_openapi::api::core::v1::Pod;

impl Workload<'_> {
    /// Plans a pod whose namespace is not offloaded to this Node, or no longer is.
    pub(super) fn plan_unmapped(&self, local: &Pod, env: &Env<'_>, plan: &mut Plan<Key>) {
        let map = self
            .cache
            .local::<NamespaceMap>(&self.settings.namespace_map());
        let current = map.and_then(|it| it.status.as_ref());
        let is_present =
            current.is_some_and(|it| it.current_mapping.contains_key(&self.key.namespace));
        let phase = current.and_then(|it| it.current_mapping.get(&self.key.namespace)?.phase);
        if local.metadata.deletion_timestamp.is_some() {
            // The pod may run as long as the provider has the namespace.
            let is_refused = phase == Some(MappingPhase::CreationLoopBackOff);
            if !is_present || is_refused && !has_started(local) {
                self.end(local, plan);
            }
            return;
        }
        let desired = map.and_then(|it| it.spec.desired_mapping.get(&self.key.namespace));
        let lack = desired
            .zip(phase)
            .and_then(|(remote, phase)| lack(remote, phase));
        if let Some(message) = lack {
            plan.events.push(self.failed_reflection(&message));
            return self.set_absent(local, (None, Some(&message)), env, plan);
        }
        // A NamespaceMap that does not exist yet, or an entry that the provider has not decided about, may follow.
        let is_withdrawn = map.is_some() && desired.is_none();
        if is_withdrawn || desired.is_none() && !has_started(local) {
            self.set_status(local, &status::fallback(local, env.now), plan);
        }
    }
}

/// Returns why the provider lacks a namespace that is to exist.
fn lack(remote: &str, phase: MappingPhase) -> Option<String> {
    match phase {
        MappingPhase::Accepted => None,
        MappingPhase::CreationLoopBackOff => Some(format!(
            "the provider does not create the namespace {remote}: its name may be taken or refused there"
        )),
        MappingPhase::Terminating => Some(format!(
            "the namespace {remote} of the provider is being deleted: it is created again after that"
        )),
    }
}
