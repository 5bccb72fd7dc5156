//! API group `offloading.liqo.io`.

pub use namespace_map::{NamespaceMap, NamespaceMapSpec, NamespaceMapStatus};
pub use namespace_offloading::{
    NamespaceOffloading, NamespaceOffloadingSpec, NamespaceOffloadingStatus,
};
pub use quota::{Quota, QuotaSpec};
pub use reflected_resource::ReflectedResource;
pub use shadow_endpoint_slice::{ShadowEndpointSlice, ShadowEndpointSliceSpec};
pub use shadow_pod::{ShadowPod, ShadowPodSpec, ShadowPodStatus};
pub use virtual_node::{VirtualNode, VirtualNodeSpec, VirtualNodeStatus};
pub use vk_options_template::{VkOptionsTemplate, VkOptionsTemplateSpec};

pub mod namespace_map;
pub mod namespace_offloading;
pub mod policy;
pub mod quota;
pub mod reflected_resource;
pub mod shadow_endpoint_slice;
pub mod shadow_pod;
pub mod virtual_node;
pub mod vk_options_template;
