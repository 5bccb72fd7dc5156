//! `ShadowPod`: a pod that a consumer requests of a provider.

use crate::schema;
use k8s_openapi::api::core::v1::PodSpec;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pod that a consumer requests of a provider.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "offloading.liqo.io",
    version = "v1beta1",
    kind = "ShadowPod",
    plural = "shadowpods",
    shortname = "shp",
    shortname = "shpod",
    category = "liqo",
    namespaced,
    status = "ShadowPodStatus",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "A pod that a consumer requests of a provider.",
    printcolumn(name = "Status", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ShadowPodSpec {
    /// Spec of the pod that the provider creates in the mapped namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pod_spec")]
    pub pod: Option<PodSpec>,
}

/// Observed state of a [`ShadowPod`], written by the provider.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShadowPodStatus {
    /// Phase of the pod, as in its own status.
    #[schemars(extend("default" = "Unknown"))]
    pub phase: ShadowPodPhase,
}

/// Phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ShadowPodPhase {
    /// A container has not been started yet.
    Pending,
    /// All containers have been started.
    Running,
    /// All containers ended without error.
    Succeeded,
    /// All containers ended, one at least with an error.
    Failed,
    /// The provider has not reported a phase.
    #[default]
    Unknown,
}
