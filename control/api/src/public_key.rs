//! `PublicKey`: the WireGuard key of a peer.

use crate::schema;
use k8s_openapi::ByteString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The WireGuard key of a peer.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "networking.liqo.io",
    version = "v1beta1",
    kind = "PublicKey",
    // The spelling is upstream's.
    plural = "publickeies",
    singular = "publickey",
    shortname = "pk",
    shortname = "pkies",
    shortname = "pkey",
    category = "liqo",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    doc = "The WireGuard key of a peer."
)]
#[serde(rename_all = "camelCase")]
pub struct PublicKeySpec {
    /// The 32 bytes of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::bytes")]
    pub public_key: Option<ByteString>,
}
