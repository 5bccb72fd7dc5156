//! `Tenant`: a consumer, as its provider sees it.

use super::auth_params::AuthParams;
use crate::schema;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A consumer, as its provider sees it.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "authentication.liqo.io",
    version = "v1beta1",
    kind = "Tenant",
    plural = "tenants",
    shortname = "tn",
    category = "liqo",
    namespaced,
    status = "TenantStatus",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "A consumer, as its provider sees it.",
    printcolumn(
        name = "Condition",
        type_ = "string",
        json_path = ".spec.tenantCondition"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct TenantSpec {
    /// Whether the consumer must prove that it holds its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "KeysExchange"))]
    pub authz_policy: Option<AuthzPolicy>,

    /// Cluster ID of the consumer; immutable.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "ClusterID is immutable"}]))]
    pub cluster_id: Option<String>,

    /// PEM certificate signing request for the control plane's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::bytes")]
    pub csr: Option<ByteString>,

    /// URL of the HTTP CONNECT proxy for the consumer.
    #[serde(rename = "proxyURL", default, skip_serializing_if = "Option::is_none")]
    pub proxy_url: Option<String>,

    /// Public key of the consumer, in DER.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::bytes")]
    pub public_key: Option<ByteString>,

    /// Signature of the nonce by the consumer's private key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::bytes")]
    pub signature: Option<ByteString>,

    /// The provider's decision. It has no default, unlike upstream's: a default would overwrite the decision when a consumer applies its Tenant without the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_condition: Option<TenantCondition>,
}

/// Observed state of a [`Tenant`], written by the provider.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantStatus {
    /// Credentials and address of the provider's API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_params: Option<AuthParams>,

    /// Why the Tenant is refused (type `Ready`, status `False`), or its certificate is not renewed in time (type
    /// `CertificateRenewal`, status `False`). Absent as long as nothing is wrong, as upstream's. An
    /// addition to upstream's fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Namespace of this cluster that holds the objects of the peering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_namespace: Option<String>,
}

/// How a provider authenticates a consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum AuthzPolicy {
    /// The consumer signs a nonce of the provider.
    #[default]
    KeysExchange,
    /// A missing signature is accepted.
    TolerateNoHandshake,
}

/// Extent of a provider's grants to a consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum TenantCondition {
    /// New and existing resources.
    #[default]
    Active,
    /// Existing resources only.
    Cordoned,
    /// No resources; existing ones are revoked.
    Drained,
}
