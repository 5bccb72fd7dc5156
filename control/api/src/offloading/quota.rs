//! `Quota`: an upper bound of the resources that a user's ShadowPods may have.

use crate::schema;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An upper bound of the resources that a user's ShadowPods may have.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "offloading.liqo.io",
    version = "v1beta1",
    kind = "Quota",
    plural = "quotas",
    shortname = "qt",
    category = "liqo",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    doc = "An upper bound of the resources that a user's ShadowPods may have.",
    printcolumn(
        name = "Enforcement",
        type_ = "string",
        json_path = ".spec.limitsEnforcement"
    ),
    printcolumn(name = "Cordoned", type_ = "boolean", json_path = ".spec.cordoned"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "User",
        type_ = "string",
        json_path = ".spec.user",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct QuotaSpec {
    /// Whether new ShadowPods are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned: Option<bool>,

    /// How limits of containers are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits_enforcement: Option<LimitsEnforcement>,

    /// Upper bound of each resource.
    #[schemars(schema_with = "schema::quantities")]
    pub resources: BTreeMap<String, Quantity>,

    /// Name of the user, as in its certificate.
    #[schemars(length(min = 1))]
    pub user: String,
}

/// How limits of containers are counted against a [`Quota`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum LimitsEnforcement {
    /// Limits and requests count, and must be equal.
    Hard,
    /// Requests count, and limits must be set.
    Soft,
    /// Requests count.
    None,
}
