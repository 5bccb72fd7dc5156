//! `Network`: a CIDR of this cluster or of a peer, and the CIDR to which this cluster remaps it.

use crate::schema;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A CIDR of this cluster or of a peer, and the CIDR to which this cluster remaps it.
///
/// The label [`NETWORK_TYPE`](crate::labels::NETWORK_TYPE) contains its use.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "ipam.liqo.io",
    version = "v1alpha1",
    kind = "Network",
    plural = "networks",
    shortname = "net",
    category = "liqo",
    namespaced,
    status = "NetworkStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A CIDR of this cluster or of a peer, and the CIDR to which this cluster remaps it.",
    printcolumn(name = "Desired CIDR", type_ = "string", json_path = ".spec.cidr"),
    printcolumn(name = "Remapped CIDR", type_ = "string", json_path = ".status.cidr"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NetworkSpec {
    /// Requested IPv4 CIDR; immutable.
    #[schemars(schema_with = "schema::cidr")]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "CIDR field is immutable"}]))]
    pub cidr: String,

    /// Number of addresses at the start of the CIDR that are not allocated; immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "PreAllocated field is immutable"}]))]
    pub pre_allocated: Option<i32>,
}

/// Observed state of a [`Network`].
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// CIDR to which the network is remapped. Equals `spec.cidr` without an overlap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::cidr")]
    pub cidr: Option<String>,
}
