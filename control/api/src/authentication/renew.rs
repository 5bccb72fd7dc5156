//! `Renew`: a consumer's request for a new certificate.

use super::auth_params::AuthParams;
use crate::schema;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::LocalObjectReference;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A consumer's request for a new certificate.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "authentication.liqo.io",
    version = "v1beta1",
    kind = "Renew",
    plural = "renews",
    category = "liqo",
    namespaced,
    status = "RenewStatus",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "A consumer's request for a new certificate.",
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct RenewSpec {
    /// Cluster ID of the consumer.
    #[serde(
        rename = "consumerClusterID",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub consumer_cluster_id: Option<String>,

    /// PEM certificate signing request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::bytes")]
    pub csr: Option<ByteString>,

    /// Use of the certificate: `ControlPlane` or `ResourceSlice`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_type: Option<String>,

    /// Public key of the consumer, in DER.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::bytes")]
    pub public_key: Option<ByteString>,

    /// ResourceSlice of the certificate; absent for the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::local_reference")]
    pub resource_slice_ref: Option<LocalObjectReference>,
}

/// Observed state of a [`Renew`], written by the provider.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RenewStatus {
    /// Credentials and address of the provider's API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_params: Option<AuthParams>,
}
