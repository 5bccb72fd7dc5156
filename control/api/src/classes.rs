//! Classes that a provider offers to a consumer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A ingress class.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressClass {
    /// Whether it is the default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,

    /// Name of the class.
    pub ingress_class_name: String,
}

/// A load balancer class.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerClass {
    /// Whether it is the default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,

    /// Name of the class.
    pub load_balancer_class_name: String,
}

/// A storage class.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageClass {
    /// Whether it is the default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,

    /// Name of the class.
    pub storage_class_name: String,
}
