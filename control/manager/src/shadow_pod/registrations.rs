//! The resources of the ShadowPod controller.

use super::objects::{BY_CREATOR, creator};
use crate::network::keep;
use control_api::{Quota, ShadowPod, TenantPolicy, labels};
use control_runtime::{Registration, Scope};
use k8s_openapi::api::core::v1::{Namespace, Pod};

/// ClusterRole of the manager in the namespaces of consumers.
const ROLE: &str = "liqo-controller-manager-remote-namespace";

/// Why Applies of a change take fields from other field managers.
const FORCE_CHANGE: &str =
    "the manager has set them by the creation of the pod, which is another operation";

/// Returns the resources that the controller follows, with Liqo in namespace `liqo`.
pub(crate) fn registrations(liqo: &str) -> Vec<Registration> {
    vec![
        Registration::whole::<ShadowPod>(Scope::All)
            .index(BY_CREATOR, |shadow: &ShadowPod| {
                creator(&shadow.metadata)
                    .into_iter()
                    .map(str::to_owned)
                    .collect()
            })
            .subresource("status", "patch")
            .subresource("finalizers", "update"),
        Registration::of(Scope::All, keep::<Pod>)
            .labels(format!(
                "{}={}",
                labels::MANAGED_BY,
                labels::MANAGED_BY_SHADOW_POD
            ))
            .verbs(&["create", "patch"])
            .subresource("ephemeralcontainers", "patch")
            .subresource("resize", "patch")
            .written_in(Scope::Bound(ROLE))
            .force(
                "",
                "labels and annotations of the pod are those of its ShadowPod",
            )
            .force("ephemeralcontainers", FORCE_CHANGE)
            .force("resize", FORCE_CHANGE),
        Registration::whole::<Quota>(Scope::All),
        Registration::of(Scope::All, keep::<Namespace>),
        Registration::whole::<TenantPolicy>(Scope::Namespace(liqo.to_owned())),
    ]
}
