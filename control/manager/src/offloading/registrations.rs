//! The resources of the offloading controller.

use super::objects::{BY_NAME, BY_NODE, BY_REQUESTER, BY_SLICE, owner_key};
use super::virtual_kubelet::{
    AUTHENTICATION_ROLE, Kubelets, LEASE_ROLE, TENANT_ROLE, waiting_requester,
};
use crate::authentication::keep_csr;
use crate::network::{self, keep};
use control_api::{
    Configuration, ForeignCluster, IP, Identity, Network, Quota, ResourceSlice, VirtualNode,
    VkOptionsTemplate, labels,
};
use control_runtime::{Registration, Scope};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::ResourceExt as _;

/// Returns the resources that the controller follows.
pub(crate) fn registrations(kubelets: Option<&Kubelets>) -> Vec<Registration> {
    let mut registrations = of_resources();
    registrations.extend(kubelets.into_iter().flat_map(of_kubelets));

    registrations
}

fn of_resources() -> Vec<Registration> {
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

/// Returns the resources of virtual kubelets.
fn of_kubelets(kubelets: &Kubelets) -> Vec<Registration> {
    let liqo = || Scope::Namespace(kubelets.namespace.clone());
    let binding = |name: &'static str| {
        Registration::of(Scope::All, keep::<RoleBinding>)
            .name(name)
            .verbs(&["create", "patch", "delete"])
    };
    vec![
        // These are watched only in tenant namespaces where the manager has rights.
        Registration::whole::<Deployment>(Scope::Planned).verbs(&["create", "update", "delete"]),
        Registration::whole::<ServiceAccount>(Scope::Planned).verbs(&["create", "delete"]),
        Registration::of(Scope::Planned, keep::<Pod>).index(BY_NODE, |pod: &Pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            node.into_iter().collect()
        }),
        Registration::whole::<Secret>(Scope::Planned).labels(labels::REMOTE_CLUSTER_ID),
        Registration::of(Scope::All, keep::<Node>).verbs(&["patch", "delete"]),
        Registration::of(Scope::All, keep_csr)
            .index(BY_REQUESTER, |request: &CertificateSigningRequest| {
                waiting_requester(request)
            })
            .subresource("approval", "update"),
        Registration::whole::<ClusterRoleBinding>(Scope::All).verbs(&["create", "delete"]),
        binding(TENANT_ROLE),
        binding(LEASE_ROLE),
        binding(AUTHENTICATION_ROLE),
        Registration::of(Scope::All, keep::<RoleBinding>).name(network::TENANT_ROLE),
        Registration::whole::<VkOptionsTemplate>(Scope::All),
        Registration::whole::<ForeignCluster>(Scope::All),
        Registration::of(Scope::All, keep::<Network>),
        Registration::of(Scope::All, keep::<Configuration>),
        Registration::of(Scope::All, keep::<IP>),
        Registration::of(liqo(), keep::<ConfigMap>).labels(format!(
            "{}={}",
            labels::APP_NAME,
            labels::CLUSTER_ID_CONFIG_MAP
        )),
    ]
}
