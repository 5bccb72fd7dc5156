//! The work items that a change of an object concerns.

use super::item::WorkItem;
use super::objects::{BY_NAME, Local, owner_key};
use super::quota;
use super::virtual_kubelet::{self, Kubelets, bound, bound_by_cluster, offloaded_pods};
use crate::authentication::label;
use crate::network;
use control_api::{
    Configuration, ForeignCluster, IP, Identity, Network, Quota, ResourceSlice, VirtualNode,
    VkOptionsTemplate, labels,
};
use control_runtime::{Change, Key, WatchId};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use std::collections::BTreeSet;

/// Returns the work items that a change concerns.
pub(super) fn items_of(local: &Local<'_>, change: &Change<'_>) -> BTreeSet<WorkItem> {
    let key = &change.object.key;
    if change.is::<ResourceSlice>() {
        let mut items = of_slices_named(local, &key.name);
        items.extend(of_slice(key));
        items
    } else if change.is::<Quota>() {
        let owners = metadata::<Quota>(change).filter_map(owner_key);
        let mut items: BTreeSet<_> = owners.map(WorkItem::Quota).collect();
        items.extend(quota::slice_of(key).map(WorkItem::Quota));
        items
    } else if change.is::<VirtualNode>() {
        let owners = metadata::<VirtualNode>(change).filter_map(owner_key);
        let mut items: BTreeSet<_> = owners.map(WorkItem::VirtualNode).collect();
        items.extend(of_slices_named(local, &key.name));
        items.insert(WorkItem::Status(key.clone()));
        items
    } else if change.is::<Identity>() {
        let slices = metadata::<Identity>(change)
            .filter_map(|metadata| label(metadata, labels::RESOURCE_SLICE_NAME));
        let slices = slices.map(|slice| Key::new(&*key.namespace, slice));
        slices.map(WorkItem::VirtualNode).collect()
    } else if change.is::<Namespace>() {
        let slices = local.slices.within(&key.name);
        slices.flat_map(|(key, _)| of_slice(key)).collect()
    } else if change.is::<Node>() && state_of(change.before()) != state_of(change.after()) {
        let nodes = local.virtual_nodes.indexed(BY_NAME, &key.name);
        let mut items = of_slices_named(local, &key.name);
        items.extend(nodes.map(|(key, _)| WorkItem::Status(key.clone())));
        items
    } else {
        BTreeSet::new()
    }
}

/// Returns the metadata of an object before and after a change.
fn metadata<'a, K: Resource<DynamicType = ()> + Send + Sync + 'static>(
    change: &Change<'a>,
) -> impl Iterator<Item = &'a ObjectMeta> {
    let states = [change.before::<K>(), change.after::<K>()];
    states.into_iter().flatten().map(Resource::meta)
}

/// Returns the labels of a Node and its cordon; `None` if it does not exist.
fn state_of(node: Option<&Node>) -> Option<impl PartialEq + use<'_>> {
    let node = node?;
    let cordon = node.spec.as_ref().and_then(|spec| spec.unschedulable);

    Some((node.metadata.labels.as_ref(), cordon))
}

fn of_slice(key: &Key) -> [WorkItem; 2] {
    [
        WorkItem::Quota(key.clone()),
        WorkItem::VirtualNode(key.clone()),
    ]
}

/// Returns the items of the slices that claim a name of a VirtualNode.
fn of_slices_named(local: &Local<'_>, name: &str) -> BTreeSet<WorkItem> {
    let slices = local.slices.indexed(BY_NAME, name);
    slices
        .map(|(key, _)| WorkItem::VirtualNode(key.clone()))
        .collect()
}

/// Returns the work items of virtual kubelets that a change concerns.
pub(super) fn items_of_kubelets(
    local: &Local<'_>,
    kubelets: &Kubelets,
    change: &Change<'_>,
) -> BTreeSet<WorkItem> {
    let key = &change.object.key;
    let of_nodes = |keys: &mut dyn Iterator<Item = Key>| -> BTreeSet<WorkItem> {
        keys.flat_map(|key| virtual_kubelet::items_of(&key).collect::<Vec<_>>())
            .collect()
    };
    let mut all = local.virtual_nodes.iter().map(|(key, _)| key.clone());
    if change.is::<VirtualNode>() {
        let mut items = of_nodes(&mut [key.clone()].into_iter());
        // An older one with the same name prevents this one.
        let named = local.virtual_nodes.indexed(BY_NAME, &key.name);
        items.extend(of_nodes(&mut named.map(|(key, _)| key.clone())));
        items.insert(WorkItem::Watches(key.clone()));
        items
    } else if change.is::<Namespace>() {
        let within = local.virtual_nodes.within(&key.name);
        let mut items = of_nodes(&mut within.map(|(key, _)| key.clone()));
        items.insert(WorkItem::Watches(Key::new(&*key.name, "")));
        // Its Configuration counts only in the tenant namespace of a peer.
        if local.configurations.within(&key.name).next().is_some() {
            items.extend(of_nodes(&mut all));
        }
        items
    } else if change.is::<RoleBinding>() {
        of_role_binding(change)
    } else if change.is::<ClusterRoleBinding>() {
        let bindings = [change.before(), change.after()].into_iter().flatten();
        let mut nodes: Vec<_> = bindings.flat_map(bound_by_cluster).collect();
        let name = key.name.strip_prefix("liqo-node-").unwrap_or_default();
        let named = local.virtual_nodes.indexed(BY_NAME, name);
        nodes.extend(named.map(|(key, _)| key.clone()));
        of_nodes(&mut nodes.into_iter())
    } else if change.is::<Deployment>() {
        let nodes = metadata::<Deployment>(change).filter_map(virtual_kubelet::node_of);
        of_nodes(&mut nodes.into_iter())
    } else if change.is::<ServiceAccount>() {
        of_nodes(&mut [key.clone()].into_iter())
    } else if change.is::<Secret>() {
        let nodes = local.virtual_nodes.within(&key.namespace);
        let nodes = nodes.filter(|(_, node)| virtual_kubelet::secret_of(node) == Some(&*key.name));
        of_nodes(&mut nodes.map(|(key, _)| key.clone()))
    } else if change.is::<Pod>() {
        of_pod(local, change)
    } else if is_of_this_cluster(kubelets, change)
        || is_of_api_server(kubelets, change)
        || change.is::<Configuration>()
    {
        // The virtual kubelets of peers without networking depend on the Configurations of the others.
        of_nodes(&mut all)
    } else if change.is::<VkOptionsTemplate>() {
        let nodes = local.virtual_nodes.iter();
        let nodes = nodes
            .filter(|(_, node)| virtual_kubelet::options_key(node, &kubelets.namespace) == *key);
        of_nodes(&mut nodes.map(|(key, _)| key.clone()))
    } else if change.is::<ForeignCluster>() {
        let nodes = local.virtual_nodes.iter();
        let nodes = nodes.filter(|(key, node)| {
            node.metadata.deletion_timestamp.is_some()
                && local.peer_of(&key.namespace) == Some(&change.object.key.name)
        });
        of_nodes(&mut nodes.map(|(key, _)| key.clone()))
    } else {
        BTreeSet::new()
    }
}

/// Returns the work items that can proceed because a watch was listed.
pub(super) fn items_of_list(local: &Local<'_>, id: &WatchId) -> BTreeSet<WorkItem> {
    let nodes = local.virtual_nodes.iter();
    let nodes = nodes.filter(|(key, _)| match &id.namespace {
        Some(namespace) => key.namespace == *namespace,
        None => *id == offloaded_pods(),
    });

    nodes
        .flat_map(|(key, _)| virtual_kubelet::items_of(key).collect::<Vec<_>>())
        .collect()
}

/// Returns whether a change may be of the ID of this cluster, or of its pod CIDRs.
fn is_of_this_cluster(kubelets: &Kubelets, change: &Change<'_>) -> bool {
    let is_kind = change.is::<ConfigMap>() || change.is::<Network>();
    is_kind && change.object.key.namespace == kubelets.namespace
}

/// Returns whether the change is of an IP of this cluster's API server.
fn is_of_api_server(kubelets: &Kubelets, change: &Change<'_>) -> bool {
    let states: [Option<&IP>; 2] = [change.before(), change.after()];
    let mut types = states.into_iter().flatten();

    change.object.key.namespace == kubelets.namespace
        && types.any(|ip| label(&ip.metadata, labels::IP_TYPE) == Some(labels::IP_TYPE_API_SERVER))
}

/// Returns the items of a RoleBinding of virtual kubelets, or of the manager's own, on which its watches depend.
fn of_role_binding(change: &Change<'_>) -> BTreeSet<WorkItem> {
    let key = &change.object.key;
    if key.name == network::TENANT_ROLE {
        return [WorkItem::Watches(key.clone())].into();
    }
    let roles = [
        virtual_kubelet::TENANT_ROLE,
        virtual_kubelet::LEASE_ROLE,
        virtual_kubelet::AUTHENTICATION_ROLE,
    ];
    if !roles.contains(&key.name.as_str()) {
        return BTreeSet::new();
    }
    let bindings: [Option<&RoleBinding>; 2] = [change.before(), change.after()];
    let nodes = bindings
        .into_iter()
        .flatten()
        .flat_map(|it| bound(it.subjects.as_deref()));
    let mut items: BTreeSet<_> = nodes.map(WorkItem::Status).collect();
    items.insert(WorkItem::KubeletBinding(key.clone()));

    items
}

/// Returns the items of a pod of a virtual kubelet, or of an offloaded pod whose Node is drained.
fn of_pod(local: &Local<'_>, change: &Change<'_>) -> BTreeSet<WorkItem> {
    let mut items = BTreeSet::new();
    for pod in [change.before::<Pod>(), change.after::<Pod>()] {
        let Some(pod) = pod else { continue };
        if let Some(node) = label(&pod.metadata, labels::VIRTUAL_NODE) {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            items.extend(virtual_kubelet::items_of(&Key::new(namespace, node)));
        }
        let bound = pod.spec.as_ref().and_then(|it| it.node_name.as_deref());
        if label(&pod.metadata, labels::SHADOW_POD) == Some("true") {
            let nodes = local
                .virtual_nodes
                .indexed(BY_NAME, bound.unwrap_or_default());
            items.extend(nodes.map(|(key, _)| WorkItem::Status(key.clone())));
        }
    }

    items
}
