//! The resources of the offloading controller.

use super::objects::{BY_NAME, BY_SLICE, owner_key};
use crate::network::keep;
use control_api::{Identity, Quota, ResourceSlice, VirtualNode};
use control_runtime::{Registration, Scope};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::ResourceExt as _;

/// Returns the resources that the controller follows.
pub(crate) fn registrations() -> Vec<Registration> {
    vec![
        // A slice is the owner that controls its Quota or VirtualNode.
        Registration::whole::<ResourceSlice>(Scope::All)
            .index(BY_NAME, |slice: &ResourceSlice| vec![slice.name_any()])
            .subresource("finalizers", "update"),
        Registration::whole::<Identity>(Scope::All),
        Registration::whole::<Quota>(Scope::All)
            .index(BY_SLICE, |quota: &Quota| {
                let owner = owner_key(&quota.metadata);
                owner.iter().map(ToString::to_string).collect()
            })
            .verbs(&["create", "patch", "delete"]),
        Registration::whole::<VirtualNode>(Scope::All)
            .index(BY_NAME, |node: &VirtualNode| vec![node.name_any()])
            .index(BY_SLICE, |node: &VirtualNode| {
                let owner = owner_key(&node.metadata);
                owner.iter().map(ToString::to_string).collect()
            })
            .verbs(&["create", "patch", "delete"])
            .subresource("status", "patch"),
        Registration::of(Scope::All, keep::<Namespace>),
        Registration::of(Scope::All, keep::<Node>),
    ]
}
