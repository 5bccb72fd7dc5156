//! `ForeignCluster`: what is known of a peer, in one place.

use crate::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A peer.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "core.liqo.io",
    version = "v1beta1",
    kind = "ForeignCluster",
    plural = "foreignclusters",
    shortname = "fc",
    category = "liqo",
    status = "ForeignClusterStatus",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "What is known of a peer, in one place.",
    printcolumn(name = "Role", type_ = "string", json_path = ".status.role"),
    printcolumn(
        name = "ClusterID",
        type_ = "string",
        json_path = ".spec.clusterID",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ForeignClusterSpec {
    /// The peer's cluster id.
    #[serde(rename = "clusterID")]
    #[schemars(
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
        extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "ClusterID field is immutable"}])
    )]
    pub cluster_id: String,
}

/// What was found for a [`ForeignCluster`].
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignClusterStatus {
    /// Where its API server is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server_url: Option<String>,

    /// Whether its API server is reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<ForeignClusterCondition>,

    /// The proxy that leads to its API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_proxy_url: Option<String>,

    /// What is shared with it, and how that fares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules: Option<Modules>,

    /// The generation of the spec that this was found for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// What it is for this cluster.
    #[schemars(extend("default" = "Unknown"))]
    pub role: PeerRole,

    /// The namespaces that belong to the peering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_namespace: Option<TenantNamespaces>,
}

/// What a peer is for this cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum PeerRole {
    /// It uses this cluster's resources.
    Consumer,
    /// It gives resources to this cluster.
    Provider,
    /// Both.
    ConsumerAndProvider,
    /// Neither is known of.
    #[default]
    Unknown,
}

/// The modules of a peering.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Modules {
    /// Who the other is, and what it may do.
    pub authentication: Module,
    /// How pods reach each other.
    pub networking: Module,
    /// What runs at the other.
    pub offloading: Module,
}

/// One module of a peering.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Module {
    /// How its parts fare.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<ForeignClusterCondition>,

    /// Whether any of its objects exists.
    pub enabled: bool,
}

/// How one part of a peering fares.
#[derive(JsonSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignClusterCondition {
    /// Since when the status is what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Option<Time>,

    /// The reason in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::string")]
    pub message: Option<String>,

    /// The reason in a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::string")]
    pub reason: Option<String>,

    /// How it fares.
    #[schemars(extend("default" = "None"))]
    pub status: ForeignClusterConditionStatus,

    /// The part.
    #[serde(rename = "type")]
    pub type_: ForeignClusterConditionType,
}

/// How a part of a peering fares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ForeignClusterConditionStatus {
    /// It is not there.
    #[default]
    None,
    /// It comes up.
    Pending,
    /// It is up.
    Established,
    /// It was up, or should be.
    Error,
    /// It works.
    Ready,
    /// It does not work.
    NotReady,
    /// A part of it works.
    SomeNotReady,
}

/// A part of a peering.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
pub enum ForeignClusterConditionType {
    /// The peer's API server.
    APIServerStatus,
    /// The tunnel.
    NetworkConnectionStatus,
    /// The gateway that waits for the peer's.
    NetworkGatewayServerStatus,
    /// The gateway that calls the peer's.
    NetworkGatewayClientStatus,
    /// Whether there is a gateway.
    NetworkGatewayPresence,
    /// Whether the peer's CIDRs are known.
    NetworkConfigurationStatus,
    /// This cluster's identity at the peer.
    AuthIdentityControlPlaneStatus,
    /// The peer's identity here.
    AuthTenantStatus,
    /// The virtual nodes that stand for the peer.
    OffloadingVirtualNodeStatus,
    /// The nodes of those.
    OffloadingNodeStatus,
}

/// The namespaces of a peering.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantNamespaces {
    /// In this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::string")]
    pub local: Option<String>,

    /// At the peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::string")]
    pub remote: Option<String>,
}
