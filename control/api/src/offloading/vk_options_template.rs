//! `VkOptionsTemplate`: options of the virtual kubelets that refer to it.

use super::reflected_resource::ReflectedResource;
use crate::schema;
use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::api::core::v1::Toleration;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Options of the virtual kubelets that refer to it.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "offloading.liqo.io",
    version = "v1beta1",
    kind = "VkOptionsTemplate",
    plural = "vkoptionstemplates",
    shortname = "vkot",
    shortname = "vkopt",
    category = "liqo",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "Options of the virtual kubelets that refer to it.",
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct VkOptionsTemplateSpec {
    /// Keys of annotations that are not reflected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub annotations_not_reflected: Vec<String>,

    /// Image of the virtual kubelet.
    pub container_image: String,

    /// Whether virtual nodes have a Node.
    pub create_node: bool,

    /// Whether Nodes are ready without a connection of the pod networks.
    pub disable_network_check: bool,

    /// Annotations of the Deployment and its pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_annotations: BTreeMap<String, String>,

    /// Further flags of the virtual kubelet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_args: Vec<String>,

    /// Labels of the Deployment and its pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_labels: BTreeMap<String, String>,

    /// Secrets for pulling the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::local_references")]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// Keys of labels that are not reflected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels_not_reflected: Vec<String>,

    /// Address and port of the metrics endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_address: Option<String>,

    /// Whether metrics are served.
    pub metrics_enabled: bool,

    /// Annotations of the Nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_extra_annotations: BTreeMap<String, String>,

    /// Labels of the Nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_extra_labels: BTreeMap<String, String>,

    /// Pull policy of the image: `Always`, `IfNotPresent` or `Never`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_policy: Option<String>,

    /// Further kinds of objects that are reflected. The provider grants them by ClusterRoles with the label
    /// `liqo.io/aggregate-to-virtual-kubelet-remote: "true"`, this cluster by those with
    /// `liqo.io/aggregate-to-virtual-kubelet-local: "true"`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub reflected_resources: Vec<ReflectedResource>,

    /// Options of each reflector, by reflected resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reflectors_config: BTreeMap<String, ReflectorConfig>,

    /// Replicas of each Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,

    /// Resources of the virtual kubelet's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resource_requirements")]
    pub resources: Option<ResourceRequirements>,

    /// Tolerations of the virtual kubelet's pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::tolerations")]
    pub tolerations: Vec<Toleration>,
}

/// Options of a reflector.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReflectorConfig {
    /// `AllowList`, `DenyList` or `CustomLiqo`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,

    /// Number of workers; 0 switches the reflector off.
    #[schemars(schema_with = "schema::int")]
    pub workers: i64,
}
