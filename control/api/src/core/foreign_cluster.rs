//! `ForeignCluster`: the summary of a peering.

use crate::{annotations, schema};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The summary of a peering.
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
    doc = "The summary of a peering.",
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
    /// Cluster ID of the peer; immutable.
    #[serde(rename = "clusterID")]
    #[schemars(
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
        extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "ClusterID field is immutable"}])
    )]
    pub cluster_id: String,
}

impl ForeignCluster {
    /// Returns whether a user has declared that the peer never responds again, as `liqoctl force unpeer` does.
    pub fn is_declared_dead(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        let declared = annotations.and_then(|it| it.get(annotations::PERMANENTLY_UNREACHABLE));
        declared.is_some_and(|value| value == "true")
    }

    /// Returns whether the last probe of the peer's API server had this result.
    pub fn is_api_server(&self, status: ForeignClusterConditionStatus) -> bool {
        let mut conditions = self.status.iter().flat_map(|it| &it.conditions);
        conditions.any(|it| {
            it.type_ == ForeignClusterConditionType::APIServerStatus && it.status == status
        })
    }

    /// Returns since when the peer's API server has not responded; `None` if it does, or is not probed. Without a time, the outage has
    /// lasted for ever.
    pub fn api_server_outage(&self) -> Option<Timestamp> {
        let mut conditions = self.status.iter().flat_map(|it| &it.conditions);
        let failed = conditions.find(|it| {
            it.type_ == ForeignClusterConditionType::APIServerStatus
                && !matches!(
                    it.status,
                    ForeignClusterConditionStatus::Established
                        | ForeignClusterConditionStatus::None
                )
        })?;
        let since = failed.last_transition_time.as_ref();

        Some(since.map_or(Timestamp::MIN, |Time(since)| *since))
    }
}

impl Module {
    /// Returns since when the networks are not connected; `None` if they are.
    pub fn lost_since(&self) -> Option<Timestamp> {
        if self.is_connected() {
            return None;
        }
        let mut conditions = self.conditions.iter();
        let connection =
            conditions.find(|it| it.type_ == ForeignClusterConditionType::NetworkConnectionStatus);
        let since = connection.and_then(|it| it.last_transition_time.as_ref());

        Some(since.map_or(Timestamp::MIN, |Time(since)| *since))
    }

    /// Returns whether the networks are connected. [`ForeignClusterConditionStatus::SomeNotReady`] is a fault of a part of the path,
    /// such as that of one node, while the gateways are connected.
    pub fn is_connected(&self) -> bool {
        self.conditions.iter().any(|it| {
            it.type_ == ForeignClusterConditionType::NetworkConnectionStatus
                && matches!(
                    it.status,
                    ForeignClusterConditionStatus::Established
                        | ForeignClusterConditionStatus::SomeNotReady
                )
        })
    }
}

/// Observed state of a [`ForeignCluster`].
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignClusterStatus {
    /// URL of the peer's API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server_url: Option<String>,

    /// Conditions of the peer's API server, one of each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<ForeignClusterCondition>,

    /// URL of the proxy before the peer's API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_proxy_url: Option<String>,

    /// State of each module of the peering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules: Option<Modules>,

    /// Generation of the spec to which the status belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Role of the peer.
    #[schemars(extend("default" = "Unknown"))]
    pub role: PeerRole,

    /// Tenant namespaces of the peering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_namespace: Option<TenantNamespaces>,
}

/// Role of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum PeerRole {
    /// The peer uses resources of this cluster.
    Consumer,
    /// The peer provides resources to this cluster.
    Provider,
    /// Both.
    ConsumerAndProvider,
    /// Neither role is known.
    #[default]
    Unknown,
}

/// The modules of a peering.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Modules {
    /// Identities and permissions.
    pub authentication: Module,
    /// Connection of the pod networks.
    pub networking: Module,
    /// Workloads of this cluster at the peer.
    pub offloading: Module,
}

/// One module of a peering.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Module {
    /// Conditions of the parts of the module, one of each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<ForeignClusterCondition>,

    /// Whether an object of the module exists.
    pub enabled: bool,
}

/// Condition of one part of a peering.
#[derive(JsonSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignClusterCondition {
    /// Time of the last change of `status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Option<Time>,

    /// Details of the reason in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::string")]
    pub message: Option<String>,

    /// Reason in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::string")]
    pub reason: Option<String>,

    /// State of the part in `type`.
    #[schemars(extend("default" = "None"))]
    pub status: ForeignClusterConditionStatus,

    /// Part of the peering.
    #[serde(rename = "type")]
    pub type_: ForeignClusterConditionType,
}

/// State of a part of a peering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ForeignClusterConditionStatus {
    /// The part does not exist.
    #[default]
    None,
    /// The part is being established.
    Pending,
    /// The part is established.
    Established,
    /// The part is interrupted or cannot be established.
    Error,
    /// The part is ready.
    Ready,
    /// The part is not ready.
    NotReady,
    /// Some objects of the part are not ready.
    SomeNotReady,
}

/// A part of a peering.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
pub enum ForeignClusterConditionType {
    /// The peer's API server.
    APIServerStatus,
    /// The tunnel between the gateways.
    NetworkConnectionStatus,
    /// The GatewayServer.
    NetworkGatewayServerStatus,
    /// The GatewayClient.
    NetworkGatewayClientStatus,
    /// Whether a gateway exists.
    NetworkGatewayPresence,
    /// The Configuration with the peer's CIDRs.
    NetworkConfigurationStatus,
    /// This cluster's identity at the peer.
    AuthIdentityControlPlaneStatus,
    /// The peer's identity in this cluster.
    AuthTenantStatus,
    /// The VirtualNodes of the peer.
    OffloadingVirtualNodeStatus,
    /// The Nodes of the VirtualNodes.
    OffloadingNodeStatus,
}

/// Tenant namespaces of a peering.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantNamespaces {
    /// Namespace in this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::string")]
    pub local: Option<String>,

    /// Namespace in the cluster of the peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::string")]
    pub remote: Option<String>,
}
