//! `ResourceSlice`: resources that a consumer requests of a provider.

use super::auth_params::AuthParams;
use crate::classes::IngressClass;
use crate::classes::LoadBalancerClass;
use crate::classes::StorageClass;
use crate::schema;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Finalizer of the controller that replicates objects to providers, upstream's `crd-replicator`.
pub const REPLICATION_FINALIZER: &str = "crdreplicator.liqo.io/resource";

/// Resources that a consumer requests of a provider.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "authentication.liqo.io",
    version = "v1beta1",
    kind = "ResourceSlice",
    plural = "resourceslices",
    shortname = "rslice",
    category = "liqo",
    namespaced,
    status = "ResourceSliceStatus",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "Resources that a consumer requests of a provider.",
    printcolumn(
        name = "Authentication",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Authentication")].status"#
    ),
    printcolumn(
        name = "Resources",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Resources")].status"#
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSliceSpec {
    /// Class of the resources; selects the controller that decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,

    /// Cluster ID of the consumer.
    #[serde(
        rename = "consumerClusterID",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub consumer_cluster_id: Option<String>,

    /// PEM certificate signing request for the slice's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::bytes")]
    pub csr: Option<ByteString>,

    /// Cluster ID of the provider.
    #[serde(
        rename = "providerClusterID",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub provider_cluster_id: Option<String>,

    /// Requested amount of each resource, such as `cpu` or `memory`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub resources: BTreeMap<String, Quantity>,
}

/// Reason of a [`ResourceSliceCondition`] that this cluster sets as consumer: the provider refuses its credentials. An
/// addition to upstream's reasons.
pub const REPLICATION_FORBIDDEN: &str = "ReplicationForbidden";

/// Observed state of a [`ResourceSlice`], written by the provider.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSliceStatus {
    /// Credentials and address of the provider's API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_params: Option<AuthParams>,

    /// Decisions of the provider, one of each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<ResourceSliceCondition>,

    /// Ingress classes of the provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ingress_classes: Vec<IngressClass>,

    /// Load balancer classes of the provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load_balancer_classes: Vec<LoadBalancerClass>,

    /// Labels of the virtual node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,

    /// Labels of the provider's nodes that run the workloads.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,

    /// Granted amount of each resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub resources: BTreeMap<String, Quantity>,

    /// Storage classes of the provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub storage_classes: Vec<StorageClass>,
}

/// A decision of the provider.
#[derive(JsonSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSliceCondition {
    /// Time of the last change of `status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Option<Time>,

    /// Details of the reason in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// Reason in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// Decision on the subject in `type`.
    pub status: ResourceSliceConditionStatus,

    /// Subject of the decision.
    #[serde(rename = "type")]
    pub type_: ResourceSliceConditionType,
}

/// A decision on a [`ResourceSlice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ResourceSliceConditionStatus {
    /// The request is granted.
    Accepted,
    /// The request is refused.
    Denied,
}

/// Subject of a decision on a [`ResourceSlice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ResourceSliceConditionType {
    /// The slice's identity.
    Authentication,
    /// The amount of resources.
    Resources,
}
