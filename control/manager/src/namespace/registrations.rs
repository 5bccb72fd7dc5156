//! The resources of the namespace controller.

use super::binding::{LOCAL_EXTRA_ROLE, LOCAL_ROLE, MANAGER_ROLE};
use super::objects::{BY_ENTRY, BY_MAP, BY_NAME, BY_REMOTE, entries, map_of};
use super::quota;
use crate::authentication::is_replica;
use crate::network::keep;
use crate::shadow_pod;
use control_api::{
    ForeignCluster, NamespaceMap, NamespaceOffloading, ShadowEndpointSlice, TenantPolicy,
    VirtualNode, labels,
};
use control_runtime::{Registration, Scope};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, ResourceQuota};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt as _;

/// Returns the resources that the controller follows, with Liqo in namespace `liqo`.
pub(crate) fn registrations(liqo: &str) -> Vec<Registration> {
    vec![
        Registration::whole::<NamespaceOffloading>(Scope::All)
            .verbs(&["patch"])
            .subresource("status", "patch"),
        Registration::whole::<NamespaceMap>(Scope::All)
            .index(BY_ENTRY, |map: &NamespaceMap| {
                entries(map).cloned().collect()
            })
            .index(BY_REMOTE, |map: &NamespaceMap| {
                let names = map.spec.desired_mapping.values();
                let is_replica = is_replica(&map.metadata);
                names.filter(|_| is_replica).cloned().collect()
            })
            .verbs(&["create", "patch", "delete"])
            .subresource("status", "patch"),
        Registration::whole::<VirtualNode>(Scope::All)
            .index(BY_NAME, |node: &VirtualNode| vec![node.name_any()]),
        Registration::of(Scope::All, keep::<Node>),
        Registration::of(Scope::All, keep::<Namespace>)
            .index(BY_MAP, |namespace: &Namespace| {
                map_of(&namespace.metadata)
                    .into_iter()
                    .map(str::to_owned)
                    .collect()
            })
            .verbs(&["create", "patch", "delete"]),
        Registration::of(Scope::All, keep::<RoleBinding>).verbs(&["create"]),
        Registration::of(Scope::All, keep::<RoleBinding>)
            .verbs(&["patch", "delete"])
            .written_in(Scope::Bound(MANAGER_ROLE)),
        Registration::of(Scope::All, keep::<RoleBinding>)
            .name(LOCAL_ROLE)
            .verbs(&["patch", "delete"]),
        Registration::of(Scope::All, keep::<RoleBinding>)
            .name(LOCAL_EXTRA_ROLE)
            .verbs(&["patch", "delete"]),
        Registration::of(Scope::All, kept_quota)
            .name(quota::NAME)
            .verbs(&["create", "patch", "delete"])
            .written_in(Scope::Bound(MANAGER_ROLE)),
        Registration::whole::<TenantPolicy>(Scope::Namespace(liqo.to_owned())),
        Registration::whole::<ForeignCluster>(Scope::All),
        // The objects of consumers, before whose end a withdrawn namespace stays.
        shadow_pod::presence(),
        Registration::whole::<ShadowEndpointSlice>(Scope::All),
        Registration::of(Scope::All, keep::<Pod>).labels(format!(
            "{}={}",
            labels::MANAGED_BY,
            labels::MANAGED_BY_SHADOW_POD
        )),
        Registration::of(Scope::Namespace(liqo.to_owned()), keep::<ConfigMap>).labels(format!(
            "{}={}",
            labels::APP_NAME,
            labels::CLUSTER_ID_CONFIG_MAP
        )),
    ]
}

/// Clears the usage of a ResourceQuota, which changes with each object.
fn kept_quota(mut quota: ResourceQuota) -> ResourceQuota {
    quota.status = None;
    quota
}
