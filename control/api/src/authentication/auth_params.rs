//! How a consumer authenticates to a provider's API server.

use crate::schema;
use k8s_openapi::ByteString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a consumer authenticates to a provider's API server.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthParams {
    /// URL of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server: Option<String>,

    /// Credentials of an EKS cluster; absent elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws_config: Option<AwsConfig>,

    /// PEM bundle of the API server's certificate authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::bytes")]
    pub ca: Option<ByteString>,

    /// URL of the HTTP CONNECT proxy before the API server.
    #[serde(rename = "proxyURL", default, skip_serializing_if = "Option::is_none")]
    pub proxy_url: Option<String>,

    /// PEM client certificate, signed by the provider.
    #[serde(rename = "signedCRT", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::bytes")]
    pub signed_crt: Option<ByteString>,
}

/// Credentials of an IAM user of an EKS cluster.
#[derive(JsonSchema, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AwsConfig {
    /// IAM access key ID.
    #[serde(rename = "awsAccessKeyID")]
    pub aws_access_key_id: String,

    /// Name of the EKS cluster.
    pub aws_cluster_name: String,

    /// AWS region of the EKS cluster.
    pub aws_region: String,

    /// IAM secret access key.
    pub aws_secret_access_key: String,

    /// ARN of the IAM user.
    pub aws_user_arn: String,
}

impl fmt::Debug for AwsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsConfig")
            .field("aws_region", &self.aws_region)
            .field("aws_cluster_name", &self.aws_cluster_name)
            .finish_non_exhaustive()
    }
}
