//! `Connection`: the state of a tunnel to a peer.

use crate::schema;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of a tunnel to a peer.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "networking.liqo.io",
    version = "v1beta1",
    kind = "Connection",
    plural = "connections",
    shortname = "conn",
    category = "liqo",
    namespaced,
    status = "ConnectionStatus",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "The state of a tunnel to a peer.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.value"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Latency",
        type_ = "string",
        json_path = ".status.latency.value",
        priority = 1
    ),
    printcolumn(
        name = "Path",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"PathHealthy\")].reason",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionSpec {
    /// GatewayServer or GatewayClient of the tunnel.
    #[schemars(schema_with = "schema::reference")]
    pub gateway_ref: ObjectReference,

    /// Role of this cluster.
    #[serde(rename = "type")]
    pub type_: ConnectionType,
}

/// Role of a cluster in a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ConnectionType {
    /// The cluster has the GatewayServer.
    #[default]
    Server,
    /// The cluster has the GatewayClient.
    Client,
}

/// Observed state of a [`Connection`], written by a gateway.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionStatus {
    /// Health of the path from node to node, see [`PATH_HEALTHY`]. An addition to upstream's status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Round-trip time of the probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,

    /// Gateway replicas that are not connected, while `value` is still `Connected`. An addition to upstream's status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_by: Vec<String>,

    /// Gateway replica that reported the conditions. An addition to upstream's status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reporter: Option<String>,

    /// `Connected`, `Connecting` or `Error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Type of the condition that packets pass from this cluster's nodes to the peer's and back. Its reason names
/// the first broken part of the path, or the last part that is known to work.
pub const PATH_HEALTHY: &str = "PathHealthy";

/// Reasons of [`PATH_HEALTHY`] that programs other than the gateway read: they identify the blocked direction
/// between the gateways, or a fault in the objects of one side.
pub mod reason {
    /// Handshakes of the peer arrive, but the responses are lost: the path to the peer is blocked.
    pub const ANSWERS_LOST: &str = "AnswersLost";
    /// No handshake of the peer arrives: the path from the peer is blocked, or the peer sends none.
    pub const NOTHING_ARRIVES: &str = "NothingArrives";
    /// Handshakes of this side get no response. The reason of the server's side identifies the blocked direction.
    pub const NO_ANSWER: &str = "NoAnswer";
    /// The peer uses another key than its PublicKey.
    pub const KEYS_DIFFER: &str = "KeysDiffer";
    /// The host name of the peer's gateways cannot be resolved.
    pub const NAME_NOT_RESOLVED: &str = "NameNotResolved";
    /// No gateway of this cluster serves the peer, because an object is missing or invalid.
    pub const NOT_SERVED: &str = "NotServed";
}

/// Value of a connection whose probes get replies.
pub const CONNECTED: &str = "Connected";
/// Value of a connection whose probes have not had a reply yet.
pub const CONNECTING: &str = "Connecting";
/// Value of a connection whose probes get no replies any more.
pub const ERROR: &str = "Error";

/// Round-trip time of a peer's probes.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    /// Time of the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub timestamp: Option<Time>,

    /// Duration with its unit, or `N/A`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}
