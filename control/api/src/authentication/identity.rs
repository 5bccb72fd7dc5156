//! `Identity`: credentials that a provider issued to this cluster.

use super::auth_params::AuthParams;
use crate::schema;
use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Credentials that a provider issued to this cluster.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "authentication.liqo.io",
    version = "v1beta1",
    kind = "Identity",
    plural = "identities",
    shortname = "id",
    category = "liqo",
    namespaced,
    status = "IdentityStatus",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "Credentials that a provider issued to this cluster.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(
        name = "KubeconfigSecret",
        type_ = "string",
        json_path = ".status.kubeconfigSecretRef.name",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct IdentitySpec {
    /// Credentials and address of the provider's API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_params: Option<AuthParams>,

    /// Cluster ID of the provider.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub cluster_id: Option<String>,

    /// Default namespace of the kubeconfig, at the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,

    /// Use of the credentials.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<IdentityType>,
}

/// Observed state of an [`Identity`], written by the consumer.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityStatus {
    /// Secret that holds the kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::local_reference")]
    pub kubeconfig_secret_ref: Option<LocalObjectReference>,
    /// Why there is no kubeconfig, or why it is not renewed: type `Ready`, status `False`. Absent as long as nothing is wrong.
    /// An addition to upstream's fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Use of the credentials of an [`Identity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum IdentityType {
    /// The peering's objects in the tenant namespace.
    ControlPlane,
    /// Workloads of one ResourceSlice.
    ResourceSlice,
}
