//! Endpoints of tunnels, which several kinds contain.

use crate::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The endpoint of a gateway for peers.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{"rule": "!(has(self.port) && has(self.ports))", "message": "port and ports are mutually exclusive"}, {"rule": "has(self.port) || (has(self.ports) && size(self.ports) > 0)", "message": "at least one of port or ports must be set"}, {"rule": "!(has(self.ports)) || self.ports.all(p, self.ports.filter(q, q == p).size() == 1)", "message": "ports must not contain duplicates"}]))]
pub struct Endpoint {
    /// IP addresses or host names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,

    /// Port of all addresses; excludes `ports`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int32")]
    pub port: Option<i32>,

    /// Ports of all addresses, one for each tunnel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub ports: Vec<i32>,

    /// Protocol of the ports. Default: UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
}

/// The transport protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Protocol {
    /// TCP.
    #[serde(rename = "TCP")]
    Tcp,
    /// UDP.
    #[serde(rename = "UDP")]
    Udp,
}

/// The endpoint of a gateway for the nodes of its cluster.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InternalEndpoint {
    /// IPv4 address of the gateway's pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ipv4")]
    pub ip: Option<String>,

    /// Name of the pod's node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}
