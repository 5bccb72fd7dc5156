//! The resources of the ShadowPod controller.

use super::kept::{KeptShadowPod, keep as keep_shadow_pod};
use super::objects::{BY_CREATOR, group_index};
use crate::network::keep;
use crate::shadow_endpoint_slice::Peers;
use crate::webhook::creator_label;
use control_api::{Quota, ShadowPod, TenantPolicy, labels};
use control_runtime::{Cache, Cluster, Registration, Scope};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt as _;

/// ClusterRole that the manager binds to itself in the namespaces of consumers, as in the chart.
const ROLE: &str = "liqo-controller-manager-remote-namespace";

/// Why Applies of a change take fields from other field managers.
const FORCE_CHANGE: &str =
    "the manager has set them by the creation of the pod, which is another operation";
/// Why Applies take the status from other field managers.
const FORCE_STATUS: &str =
    "only the manager writes the status of a ShadowPod; a user may have edited one";

/// Returns the ShadowPods, for controllers that only need to know whether any exist.
pub(crate) fn presence() -> Registration {
    Registration::of::<ShadowPod, KeptShadowPod, _>(Scope::All, keep_shadow_pod)
}

/// Returns whether a namespace has ShadowPods.
pub(crate) fn exist_in(cache: &Cache, namespace: &str) -> bool {
    let shadow_pods = cache.objects::<KeptShadowPod>(&Cluster::Local);
    shadow_pods.within(namespace).next().is_some()
}

/// Returns the resources that the controller follows, with Liqo in namespace `liqo`.
pub(crate) fn registrations(liqo: &str) -> Vec<Registration> {
    let [namespaces, configurations] = Peers::registrations();
    vec![
        Registration::of::<ShadowPod, KeptShadowPod, _>(Scope::All, keep_shadow_pod)
            .full_objects()
            .subresource("status", "patch")
            // The ShadowPod is the owner that controls its pod.
            .subresource("finalizers", "update")
            .written_in(Scope::Bound(ROLE))
            .force("status", FORCE_STATUS)
            .fields(&["status"]),
        Registration::of(Scope::All, keep::<Pod>)
            .labels(format!(
                "{}={}",
                labels::MANAGED_BY,
                labels::MANAGED_BY_SHADOW_POD
            ))
            .verbs(&["create", "patch"])
            .subresource("ephemeralcontainers", "patch")
            .subresource("resize", "patch")
            .force("ephemeralcontainers", FORCE_CHANGE)
            .force("resize", FORCE_CHANGE)
            .written_in(Scope::Bound(ROLE)),
        namespaces,
        configurations,
        Registration::whole::<Quota>(Scope::All).index(BY_CREATOR, |quota: &Quota| {
            let tenant = quota.namespace().unwrap_or_default();
            vec![group_index(&tenant, &creator_label(&quota.spec.user))]
        }),
        Registration::whole::<TenantPolicy>(Scope::Namespace(liqo.to_owned())),
        Registration::whole::<RuntimeClass>(Scope::All),
        Registration::of(Scope::Namespace(liqo.to_owned()), keep::<ConfigMap>).labels(format!(
            "{}={}",
            labels::APP_NAME,
            labels::CLUSTER_ID_CONFIG_MAP
        )),
    ]
}
