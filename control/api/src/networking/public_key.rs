//! `PublicKey`: the WireGuard public key of a peer.

use crate::schema;
use k8s_openapi::ByteString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The WireGuard public key of a peer.
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
    attr = "cfg_attr(all(), serde(default))",
    doc = "The WireGuard public key of a peer."
)]
#[serde(rename_all = "camelCase")]
pub struct PublicKeySpec {
    /// 32 bytes, which are 44 characters in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::bytes", extend("maxLength" = 44))]
    pub public_key: Option<ByteString>,
}

impl PublicKeySpec {
    /// Limits the memory of a key that is too long: removes all bytes but the first that exceeds the length of a key.
    pub fn truncate(&mut self) {
        if let Some(key) = &mut self.public_key {
            key.0.truncate(LEN + 1);
            key.0.shrink_to_fit();
        }
    }
}

/// Bytes of a WireGuard key.
const LEN: usize = 32;
