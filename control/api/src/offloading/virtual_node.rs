//! `VirtualNode`: a node of this cluster that represents resources of a provider.

use crate::classes::IngressClass;
use crate::classes::LoadBalancerClass;
use crate::classes::StorageClass;
use crate::ipam::ip::EmbeddedMetadata;
use crate::schema;
use k8s_openapi::api::apps::v1::DeploymentSpec;
use k8s_openapi::api::core::v1::ContainerImage;
use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::api::core::v1::NodeAffinity;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::core::v1::ResourceQuotaSpec;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A node of this cluster that represents resources of a provider.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "offloading.liqo.io",
    version = "v1beta1",
    kind = "VirtualNode",
    plural = "virtualnodes",
    shortname = "vn",
    shortname = "vnode",
    shortname = "virno",
    shortname = "vno",
    category = "liqo",
    namespaced,
    status = "VirtualNodeStatus",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "A node of this cluster that represents resources of a provider.",
    printcolumn(name = "ClusterID", type_ = "string", json_path = ".spec.clusterID"),
    printcolumn(
        name = "Create Node",
        type_ = "boolean",
        json_path = ".spec.createNode"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Node",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Node")].status"#,
        priority = 1
    ),
    printcolumn(
        name = "VirtualKubelet",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="VirtualKubelet")].status"#,
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct VirtualNodeSpec {
    /// Annotations to add to the Node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// Cluster ID of the provider.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub cluster_id: Option<String>,

    /// Whether to create the Node. Default: the value of the VkOptionsTemplate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_node: Option<bool>,

    /// Whether the Node is ready without a connection of the pod networks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_network_check: Option<bool>,

    /// Images that the Node reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::container_images")]
    pub images: Vec<ContainerImage>,

    /// Ingress classes of the provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ingress_classes: Vec<IngressClass>,

    /// Secret with the kubeconfig for the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::local_reference")]
    pub kubeconfig_secret_ref: Option<LocalObjectReference>,

    /// Labels to add to the Node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Load balancer classes of the provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load_balancer_classes: Vec<LoadBalancerClass>,

    /// Changes to each offloaded pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offloading_patch: Option<OffloadingPatch>,

    /// Capacity of the Node: `hard` by resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resource_quota_spec")]
    pub resource_quota: Option<ResourceQuotaSpec>,

    /// Storage classes of the provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub storage_classes: Vec<StorageClass>,

    /// Taints to add to the Node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::taints")]
    pub taints: Vec<Taint>,

    /// Deployment of the virtual kubelet. Default: generated from the VkOptionsTemplate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<DeploymentTemplate>,

    /// VkOptionsTemplate of the Deployment; the default one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub vk_options_template_ref: Option<ObjectReference>,
}

/// Observed state of a [`VirtualNode`].
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualNodeStatus {
    /// Conditions of the parts, one of each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<VirtualNodeCondition>,
}

/// Changes to each pod that is offloaded to a [`VirtualNode`].
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OffloadingPatch {
    /// Node affinity at the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<OffloadingAffinity>,

    /// Keys of annotations that are not reflected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub annotations_not_reflected: Vec<String>,

    /// Keys of labels that are not reflected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels_not_reflected: Vec<String>,

    /// Node selector at the provider.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,

    /// Runtime class at the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,

    /// Tolerations at the provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::tolerations")]
    pub tolerations: Vec<Toleration>,
}

/// Affinity of offloaded pods.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OffloadingAffinity {
    /// Node affinity at the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::node_affinity")]
    pub node_affinity: Option<NodeAffinity>,
}

/// Deployment of a virtual kubelet.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentTemplate {
    /// Name, labels and annotations of the Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<EmbeddedMetadata>,

    /// Replicas, selector and pod template of the Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::deployment_spec")]
    pub spec: Option<DeploymentSpec>,
}

/// State of one part of a [`VirtualNode`].
#[derive(JsonSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualNodeCondition {
    /// Time of the last change of `status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Option<Time>,

    /// Details of the reason in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// Reason in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// State of the part in `type`.
    #[schemars(extend("default" = "None"))]
    pub status: VirtualNodeConditionStatus,

    /// Part of the virtual node.
    #[serde(rename = "type")]
    pub type_: VirtualNodeConditionType,
}

/// State of a part of a [`VirtualNode`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum VirtualNodeConditionStatus {
    /// The part does not exist.
    #[default]
    None,
    /// The part runs.
    Running,
    /// The part is being created.
    Creating,
    /// The pods of the Node are being evicted.
    Draining,
    /// The part is being deleted.
    Deleting,
}

/// A part of a [`VirtualNode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum VirtualNodeConditionType {
    /// The Deployment of the virtual kubelet.
    VirtualKubelet,
    /// The Node.
    Node,
}
