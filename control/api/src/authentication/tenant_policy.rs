//! `TenantPolicy`: limits that a provider sets for a consumer. An addition to upstream's kinds.

use crate::schema;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the [`TenantPolicy`] of consumers that have none of their own.
pub const DEFAULT: &str = "default";

/// Limits that a provider sets for a consumer.
///
/// The object is in the namespace of Liqo, where neither consumers nor peering users write. Its name is the cluster ID
/// of the consumer, or `default`. One object applies as a whole: the fields of two are not merged. An absent field, like an
/// absent object, has the default that its comment states.
///
/// `resources` bounds ResourceSlices of the class `default`. `namespaces`, `podSecurity`, `objects` and the node ports and load
/// balancers of `serviceTypes` apply to namespaces, `serviceAccounts`, `runtimeClasses` and `priorityClasses` to pods. An admission
/// policy of the chart applies `serviceTypes` and `ingressHosts` to Services and Ingresses.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "authentication.liqo.io",
    version = "v1beta1",
    kind = "TenantPolicy",
    plural = "tenantpolicies",
    shortname = "tp",
    category = "liqo",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    doc = "Limits that a provider sets for a consumer. The object is in the namespace of Liqo, and its name is the cluster ID of the consumer, or `default`.",
    printcolumn(
        name = "PodSecurity",
        type_ = "string",
        json_path = ".spec.podSecurity"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct TenantPolicySpec {
    /// Pod Security Standard of the consumer's pods. Default: `baseline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_security: Option<PodSecurity>,

    /// ServiceAccounts of this cluster that the consumer's pods may name. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_names")]
    pub service_accounts: Option<Vec<String>>,

    /// RuntimeClasses that the consumer's pods may name. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_names")]
    pub runtime_classes: Option<Vec<String>>,

    /// PriorityClasses that the consumer's pods may name. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_names")]
    pub priority_classes: Option<Vec<String>>,

    /// Namespaces that the consumer may create.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<NamespacePolicy>,

    /// Largest number of objects of each resource in the consumer's namespaces, such as `services` or
    /// `ingresses.networking.k8s.io`. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_counts")]
    pub objects: Option<BTreeMap<String, u32>>,

    /// CIDRs, besides those of the consumer, that the addresses of its EndpointSlices may be in. Default: none.
    #[serde(
        rename = "endpointCIDRs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::some_cidrs")]
    pub endpoint_cidrs: Option<Vec<String>>,

    /// Hosts of the consumer's Ingresses; `*` stands for any characters. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::host_globs")]
    pub ingress_hosts: Option<Vec<String>>,

    /// Types of the consumer's Services. Default: `ClusterIP`, `NodePort` and `LoadBalancer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::service_types")]
    pub service_types: Option<Vec<String>>,

    /// Upper bound of the sum of the consumer's ResourceSlices, for each resource that is named. Default: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::positive_quantities")]
    pub resources: Option<BTreeMap<String, Quantity>>,
}

/// A level of Kubernetes' Pod Security Standards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PodSecurity {
    /// No restrictions.
    Privileged,
    /// Known privilege escalations are refused.
    #[default]
    Baseline,
    /// Pods are hardened.
    Restricted,
}

/// Namespaces that a consumer may create.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespacePolicy {
    /// Largest number of namespaces. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_count")]
    pub max: Option<u32>,

    /// Names that are allowed; `*` stands for any characters. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::name_globs")]
    pub allowed_names: Option<Vec<String>>,

    /// Names that are refused although they are allowed. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::name_globs")]
    pub denied_names: Option<Vec<String>>,
}
