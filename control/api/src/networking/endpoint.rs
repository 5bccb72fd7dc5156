//! Ends of tunnels, as several kinds describe them.

use crate::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a gateway is reached.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{"rule": "!(has(self.port) && has(self.ports))", "message": "port and ports are mutually exclusive"}, {"rule": "has(self.port) || (has(self.ports) && size(self.ports) > 0)", "message": "at least one of port or ports must be set"}, {"rule": "!(has(self.ports)) || self.ports.all(p, self.ports.filter(q, q == p).size() == 1)", "message": "ports must not contain duplicates"}]))]
pub struct Endpoint {
    /// Its addresses or host names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,

    /// Its port; excludes `ports`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int32")]
    pub port: Option<i32>,

    /// Its ports, one per tunnel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub ports: Vec<i32>,

    /// The protocol of its ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
}

/// The transport protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Protocol {
    /// As TCP.
    #[serde(rename = "TCP")]
    Tcp,
    /// As UDP.
    #[serde(rename = "UDP")]
    Udp,
}

/// Where the nodes of its own cluster reach a gateway.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InternalEndpoint {
    /// Address of its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ipv4")]
    pub ip: Option<String>,

    /// Name of the node that runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}
