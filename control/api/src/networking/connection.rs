//! `Connection`: the state of a tunnel to a peer.

use crate::schema;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A tunnel to a peer.
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
    /// The gateway that keeps it.
    #[schemars(schema_with = "schema::reference")]
    pub gateway_ref: ObjectReference,

    /// Which side of it this cluster is.
    #[serde(rename = "type")]
    pub type_: ConnectionType,
}

/// Which side of a tunnel a cluster is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ConnectionType {
    /// It waits.
    #[default]
    Server,
    /// It calls.
    Client,
}

/// What was found for a [`Connection`].
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionStatus {
    /// Whether the way is whole beyond the tunnel, from node to node: see [`PATH_HEALTHY`]. An
    /// addition to upstream's status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// How long the peer takes to answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,

    /// The gateway replica that found what the conditions say. An addition to upstream's status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reporter: Option<String>,

    /// One of Connected, Connecting and Error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// The condition that tells whether packets get from this cluster's nodes to the peer's and back; its
/// reason names the first part of the way that is broken, or how far the way is known to be whole.
pub const PATH_HEALTHY: &str = "PathHealthy";

/// Reasons of [`PATH_HEALTHY`] that tell which direction between the gateways is blocked, and others of
/// which somebody beside the gateways must know.
pub mod reason {
    /// Handshakes of the peer arrive and the answers are lost: the way to the peer is blocked.
    pub const ANSWERS_LOST: &str = "AnswersLost";
    /// No handshake of the peer arrives: the way from the peer is blocked, or nobody calls.
    pub const NOTHING_ARRIVES: &str = "NothingArrives";
    /// Our handshakes are not answered; the side that is called knows which direction is blocked.
    pub const NO_ANSWER: &str = "NoAnswer";
    /// The peer uses another key than its PublicKey.
    pub const KEYS_DIFFER: &str = "KeysDiffer";
    /// The name of the peer's gateways does not resolve.
    pub const NAME_NOT_RESOLVED: &str = "NameNotResolved";
    /// No gateway of this cluster serves the peer: something is missing or wrong.
    pub const NOT_SERVED: &str = "NotServed";
}

/// The peer answers.
pub const CONNECTED: &str = "Connected";
/// The peer has not answered yet.
pub const CONNECTING: &str = "Connecting";
/// The peer answers no more.
pub const ERROR: &str = "Error";

/// How long a peer takes to answer.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    /// When this was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub timestamp: Option<Time>,

    /// The time with its unit, or `N/A`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}
