//! The resources of the ForeignCluster controller.

use super::objects::{BY_PEER, OfPeer};
use super::settings::Settings;
use crate::network::{FIELD_MANAGER, TENANT_ROLE, keep};
use control_api::{
    Configuration, Connection, ForeignCluster, GatewayClient, GatewayServer, Identity,
    NamespaceMap, PublicKey, Quota, Renew, ResourceSlice, Tenant, VirtualNode, labels,
};
use control_runtime::{Cluster, Registration, Resource, Scope, Selector, WatchId};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret};
use k8s_openapi::api::rbac::v1::RoleBinding;

/// Why writes take fields from other field managers.
const FORCE: &str = "only the manager writes ForeignClusters; a user may have edited one";

/// Returns the resources that the controller follows.
pub(crate) fn registrations(settings: &Settings) -> Vec<Registration> {
    let mut registrations = of_networking(settings);
    if settings.has_authentication {
        registrations.extend(of_authentication());
    }

    registrations
}

fn of_networking(settings: &Settings) -> Vec<Registration> {
    let liqo = || Scope::Namespace(settings.namespace.clone());
    vec![
        Registration::whole::<ForeignCluster>(Scope::All)
            .verbs(&["create", "patch", "delete"])
            .subresource("status", "patch")
            // Earlier releases wrote statuses by merge patches.
            .adopt(FIELD_MANAGER)
            .force("", FORCE)
            .force("status", FORCE)
            .fields(&["status"]),
        by_peer::<Configuration>(Registration::of(Scope::All, keep::<Configuration>)),
        by_peer::<Connection>(Registration::of(Scope::All, keep::<Connection>)),
        by_peer::<GatewayServer>(Registration::of(Scope::All, keep::<GatewayServer>)),
        by_peer::<GatewayClient>(Registration::of(Scope::All, keep::<GatewayClient>)),
        by_peer::<PublicKey>(Registration::of(Scope::All, keep::<PublicKey>)),
        by_peer::<Namespace>(Registration::of(Scope::All, keep::<Namespace>)),
        Registration::of(liqo(), keep::<ConfigMap>)
            .labels(selector(labels::APP_NAME, labels::CLUSTER_ID_CONFIG_MAP)),
        by_peer::<Pod>(Registration::of(liqo(), keep::<Pod>))
            .labels(selector(labels::COMPONENT, labels::COMPONENT_GATEWAY)),
    ]
}

fn of_authentication() -> Vec<Registration> {
    vec![
        by_peer::<Tenant>(Registration::whole::<Tenant>(Scope::All)),
        by_peer::<Identity>(Registration::whole::<Identity>(Scope::All)),
        by_peer::<ResourceSlice>(Registration::whole::<ResourceSlice>(Scope::All)),
        by_peer::<Renew>(Registration::whole::<Renew>(Scope::All)),
        by_peer::<NamespaceMap>(Registration::whole::<NamespaceMap>(Scope::All)),
        Registration::whole::<Quota>(Scope::All),
        by_peer::<VirtualNode>(Registration::whole::<VirtualNode>(Scope::All)),
        by_peer::<Node>(Registration::of(Scope::All, keep::<Node>)),
        Registration::of(Scope::All, keep::<RoleBinding>).name(TENANT_ROLE),
        // Watched only in namespaces where the manager may read them.
        by_peer::<Secret>(Registration::whole::<Secret>(Scope::Planned))
            .labels(labels::REMOTE_CLUSTER_ID),
        by_peer::<Pod>(Registration::of(Scope::Planned, keep::<Pod>)).labels(virtual_kubelets()),
    ]
}

/// Returns the watch of the Secrets of a tenant namespace that are about its peer.
pub(super) fn secrets(namespace: &str) -> WatchId {
    watch::<Secret>(namespace, labels::REMOTE_CLUSTER_ID.to_owned())
}

/// Returns the watch of the pods of virtual kubelets in a namespace.
pub(super) fn pods(namespace: &str) -> WatchId {
    watch::<Pod>(namespace, virtual_kubelets())
}

fn watch<K: OfPeer>(namespace: &str, labels: String) -> WatchId {
    WatchId {
        cluster: Cluster::Local,
        resource: Resource::of::<K>(),
        namespace: Some(namespace.to_owned()),
        selector: Selector {
            labels,
            ..Selector::default()
        },
    }
}

fn by_peer<K: OfPeer>(registration: Registration) -> Registration {
    registration.index(BY_PEER, K::peers)
}

fn virtual_kubelets() -> String {
    selector(
        labels::OFFLOADING_COMPONENT,
        labels::OFFLOADING_COMPONENT_VIRTUAL_KUBELET,
    )
}

fn selector(key: &str, value: &str) -> String {
    format!("{key}={value}")
}
