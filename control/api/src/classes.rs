//! Classes of a provider's cluster that a consumer's pods, Services and Ingresses may name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An IngressClass of the provider's cluster.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressClass {
    /// Whether the virtual node uses the class for objects that name none. At most one class of a list
    /// is the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,

    /// `metadata.name` of the IngressClass.
    pub ingress_class_name: String,
}

/// A class of load balancers of the provider's cluster (`spec.loadBalancerClass` of a Service).
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerClass {
    /// Whether the virtual node uses the class for objects that name none. At most one class of a list
    /// is the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,

    /// Value of `spec.loadBalancerClass`.
    pub load_balancer_class_name: String,
}

/// A StorageClass of the provider's cluster.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageClass {
    /// Whether the virtual node uses the class for objects that name none. At most one class of a list
    /// is the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,

    /// `metadata.name` of the StorageClass.
    pub storage_class_name: String,
}
