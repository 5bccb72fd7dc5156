//! The parts of pods and ShadowPods that the cache keeps.

use control_api::ShadowPod;
use control_api::offloading::shadow_pod::ShadowPodPhase;
use control_runtime::{Cluster, Kept, Registration, Resource, Scope};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Registers the pods of this cluster, or those of the provider. All controllers of the process use it.
pub(crate) fn pods(scope: Scope) -> Registration {
    Registration::by_cluster(scope, pod)
}

/// Registers ShadowPods.
pub(crate) fn shadow_pods(scope: Scope) -> Registration {
    Registration::of(scope, KeptShadowPod::of)
}

/// Keeps of a pod of the provider what is reflected: metadata and status.
fn pod(mut pod: Pod, cluster: &Cluster) -> Pod {
    if *cluster != Cluster::Local {
        pod.spec = None;
    }
    compact(&pod)
}

/// A ShadowPod as the cache keeps it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeptShadowPod {
    pub(crate) metadata: ObjectMeta,
    /// Phase of the pod, as the provider reports it.
    pub(crate) phase: ShadowPodPhase,
    /// The lists of the spec that a [change](super::forge::change) concerns, as JSON: decoded, each container and each of its variables
    /// takes kilobytes.
    spec: Option<Box<str>>,
}

impl KeptShadowPod {
    fn of(shadow: ShadowPod) -> Self {
        let spec = shadow.spec.pod.map(|spec| PodSpec {
            containers: spec.containers,
            init_containers: spec.init_containers,
            ephemeral_containers: spec.ephemeral_containers,
            ..PodSpec::default()
        });
        let encoded = spec.and_then(|it| serde_json::to_string(&it).ok());

        Self {
            metadata: compact(&shadow.metadata),
            phase: shadow.status.map(|it| it.phase).unwrap_or_default(),
            spec: encoded.map(String::into_boxed_str),
        }
    }

    /// Returns the lists of containers of the spec.
    pub(crate) fn spec(&self) -> Option<PodSpec> {
        serde_json::from_str(self.spec.as_deref()?).ok()
    }
}

impl Kept for KeptShadowPod {
    fn resource() -> Resource {
        Resource::of::<ShadowPod>()
    }
}

/// Returns the object in as little memory as it needs. A decoded list has room for as many elements again as it contains,
/// and each container of a pod, for example, has 2 KiB.
fn compact<K: Clone>(object: &K) -> K {
    object.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_lists_of_containers_of_a_shadow_pod_are_kept() {
        let container = json!({
            "name": "web", "image": "web:1", "resources": {"limits": {"cpu": "1"}}, "env": [{"name": "A", "value": "b"}],
        });
        let other = json!({"name": "debug", "image": "debug:1"});
        let lists = json!({
            "containers": [container], "initContainers": [other], "ephemeralContainers": [other],
        });
        let mut spec = lists.clone();
        spec["nodeName"] = json!("left-out");
        let shadow = json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"pod": spec},
            "status": {"phase": "Running"},
        });

        let kept = KeptShadowPod::of(serde_json::from_value(shadow).unwrap());

        assert_eq!(json!(kept.spec().unwrap()), lists);
        assert_eq!(kept.metadata.name.as_deref(), Some("web"));
        assert_eq!(kept.phase, ShadowPodPhase::Running);
    }

    #[test]
    fn a_shadow_pod_without_spec_and_status_has_neither() {
        let shadow = json!({"metadata": {"name": "web"}, "spec": {}});

        let kept = KeptShadowPod::of(serde_json::from_value(shadow).unwrap());

        assert_eq!(kept.spec(), None);
        assert_eq!(kept.phase, ShadowPodPhase::Unknown);
    }
}
