//! The parts of pods and ShadowPods that the cache keeps.

use control_api::ShadowPod;
use control_runtime::{Cluster, Registration, Scope};
use k8s_openapi::api::core::v1::{Pod, PodSpec};

/// Registers the pods of this cluster, or those of the provider. All controllers of the process use it.
pub(crate) fn pods(scope: Scope) -> Registration {
    Registration::by_cluster(scope, pod)
}

/// Registers ShadowPods.
pub(crate) fn shadow_pods(scope: Scope) -> Registration {
    Registration::of(scope, shadow_pod)
}

/// Keeps of a pod of the provider what is reflected: metadata and status.
fn pod(mut pod: Pod, cluster: &Cluster) -> Pod {
    if *cluster != Cluster::Local {
        pod.spec = None;
    }
    compact(&pod)
}

/// Keeps of a ShadowPod metadata, status, and the lists of its spec that a [change](super::forge::change) concerns.
fn shadow_pod(mut shadow: ShadowPod) -> ShadowPod {
    shadow.spec.pod = shadow.spec.pod.map(|spec| PodSpec {
        containers: spec.containers,
        init_containers: spec.init_containers,
        ephemeral_containers: spec.ephemeral_containers,
        ..PodSpec::default()
    });
    compact(&shadow)
}

/// Returns the object in as little memory as it needs. A decoded list has room for as many elements again as it contains,
/// and each container of a pod, for example, has 2 KiB.
fn compact<K: Clone>(object: &K) -> K {
    object.clone()
}
