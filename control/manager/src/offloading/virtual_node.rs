//! VirtualNodes of the ResourceSlices that providers have accepted.

use super::bounds::{Bounds, NAME_LEN_MAX};
use super::item::WorkItem;
use super::objects::{
    BY_NAME, BY_SLICE, Local, Refusal, annotation, foreign_node, is_accepted, is_local,
};
use super::virtual_kubelet::{self, Assessment, Kubelets};
use super::write::{delete, owner, reach, set_owner};
use crate::authentication::{label, warn};
use control_api::authentication::identity::IdentityType;
use control_api::{ResourceSlice, VirtualNode, VirtualNodeSpec, annotations, labels};
use control_runtime::{Cluster, Key, Plan, Ref};
use k8s_openapi::api::core::v1::LocalObjectReference;

/// Plans the VirtualNode of a slice.
///
/// It stays if the provider withdraws its acceptance, because its deletion would evict all pods. It goes with the
/// slice.
pub(super) fn plan(
    local: &Local<'_>,
    (allowed, kubelets): (&[String], Option<&Kubelets>),
    key: &Key,
) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let slice = local.slices.get(key);
    let slice = slice.filter(|slice| slice.metadata.deletion_timestamp.is_none());
    let Some(slice) = slice else {
        for (key, leftover) in local.virtual_nodes.indexed(BY_SLICE, &key.to_string()) {
            delete(&mut plan, key, leftover);
        }
        return plan;
    };
    if local.is_terminating(&key.namespace) || !is_local(slice) {
        return plan;
    }
    if !is_accepted(slice) || !is_requested(slice) {
        return plan;
    }
    let object = Ref::of::<ResourceSlice>(&Cluster::Local, key);
    let source = match check(local, (key, slice)) {
        Ok(Some(source)) => source,
        Ok(None) => return plan,
        Err(refusal) => {
            warn(&mut plan, object, refusal);
            return plan;
        }
    };
    let present = local.virtual_nodes.get(key);
    if present.is_some_and(|present| present.metadata.deletion_timestamp.is_some()) {
        return plan;
    }
    let mut bounds = Bounds::new(allowed);
    let mut desired = desired(present, &source, &mut bounds);
    if present.is_none() {
        prepare(local, kubelets, key, &mut desired);
    }
    reach(&mut plan, key, present, &desired);
    if let Some(message) = bounds.into_message() {
        let remedy = "the chart's value offloading.allowedNodeLabels allows reserved keys";
        warn(
            &mut plan,
            object,
            ("InvalidStatus", format!("{message}; {remedy}")),
        );
    }

    plan
}

/// Fills a VirtualNode before its creation, which saves writes.
fn prepare(local: &Local<'_>, kubelets: Option<&Kubelets>, key: &Key, node: &mut VirtualNode) {
    let new = node.clone();
    let assessment = kubelets.map(|kubelets| Assessment::of(local, kubelets, (key, &new)));
    match assessment {
        Some(assessment) if assessment.is_accepted() => {
            assessment.complete(node);
            let finalizer = virtual_kubelet::FINALIZER.name.to_owned();
            node.metadata.finalizers = Some(vec![finalizer]);
        }
        Some(_) | None => virtual_kubelet::complete_without(&mut node.spec),
    }
}

/// Values of a VirtualNode.
struct Source<'a> {
    key: &'a Key,
    slice: &'a ResourceSlice,
    /// Cluster ID of the provider.
    peer: &'a str,
    /// Secret with the kubeconfig for the provider.
    kubeconfig: &'a LocalObjectReference,
}

/// Returns the values of a slice's VirtualNode; `None` while there are no credentials.
///
/// # Errors
///
/// Returns a refusal if there cannot be a VirtualNode.
fn check<'a>(
    local: &Local<'a>,
    (key, slice): (&'a Key, &'a ResourceSlice),
) -> Result<Option<Source<'a>>, Refusal> {
    let named = [
        (
            "spec.providerClusterID",
            slice.spec.provider_cluster_id.as_deref(),
        ),
        (
            "label liqo.io/remoteID",
            label(&slice.metadata, labels::REMOTE_ID),
        ),
        (
            "label liqo.io/remote-cluster-id",
            label(&slice.metadata, labels::REMOTE_CLUSTER_ID),
        ),
    ];
    let peer = local.peer(key, &named)?;
    if key.name.len() > NAME_LEN_MAX {
        let message = format!(
            "the name of the slice has {} characters, but the labels of the Node contain it: use {NAME_LEN_MAX} at most",
            key.name.len()
        );
        return Err(("NameTooLong", message));
    }
    check_name(local, (key, slice), peer)?;
    let identity = Key::new(&*key.namespace, format!("resourceslice-{}", key.name));
    let identity = local.identities.get(&identity).filter(|identity| {
        label(&identity.metadata, labels::RESOURCE_SLICE_NAME) == Some(&key.name)
            && identity.spec.type_ == Some(IdentityType::ResourceSlice)
            && identity.spec.cluster_id.as_deref() == Some(peer)
    });
    let status = identity.and_then(|identity| identity.status.as_ref());
    let kubeconfig = status.and_then(|status| status.kubeconfig_secret_ref.as_ref());

    Ok(kubeconfig.map(|kubeconfig| Source {
        key,
        slice,
        peer,
        kubeconfig,
    }))
}

/// Checks that nothing else has the name of a slice's VirtualNode. VirtualNodes are named as their Nodes, so their names
/// are unique in the cluster. Objects outside of tenant namespaces, which more users may create, claim no name.
fn check_name(
    local: &Local<'_>,
    (key, slice): (&Key, &ResourceSlice),
    peer: &str,
) -> Result<(), Refusal> {
    let is_of_peer = |key: &Key| local.peer_of(&key.namespace).is_some();
    let mut nodes = local.virtual_nodes.indexed(BY_NAME, &key.name);
    let other = nodes.find(|(other, node)| {
        let is_own = *other == key && owner(&node.metadata) == Some(&key.name);
        !is_own && is_of_peer(other)
    });
    if let Some((other, _)) = other {
        let message = format!(
            "VirtualNode {other} exists and is not of this ResourceSlice: delete it, or give the slice another name"
        );
        return Err(("VirtualNodeExists", message));
    }
    let age = |key: &Key, slice: &ResourceSlice| {
        let created = slice.metadata.creation_timestamp.clone();
        (created, key.clone())
    };
    let slices = local.slices.indexed(BY_NAME, &key.name);
    let mut slices = slices.filter(|(other, it)| is_local(it) && is_of_peer(other));
    if let Some((other, _)) = slices.find(|(other, it)| age(other, it) < age(key, slice)) {
        let message = format!(
            "ResourceSlice {other} is older and has the same name: give one of the two another name"
        );
        return Err(("DuplicateName", message));
    }

    foreign_node(local, &key.name, peer).map_or(Ok(()), Err)
}

/// Returns whether the user wants a VirtualNode.
fn is_requested(slice: &ResourceSlice) -> bool {
    let value = annotation(&slice.metadata, annotations::CREATE_VIRTUAL_NODE);
    value.is_some_and(|value| !value.is_empty() && value != "false")
}

fn desired(
    present: Option<&VirtualNode>,
    source: &Source<'_>,
    bounds: &mut Bounds<'_>,
) -> VirtualNode {
    let mut node = present.cloned().unwrap_or_else(|| {
        let mut node = VirtualNode::new(&source.key.name, VirtualNodeSpec::default());
        node.metadata.namespace = Some(source.key.namespace.clone());
        node
    });
    let (key, peer) = (source.key, source.peer);
    set_owner(&mut node.metadata, source.slice);
    let labels = node.metadata.labels.get_or_insert_default();
    labels.insert(labels::REMOTE_CLUSTER_ID.to_owned(), peer.to_owned());
    labels.insert(labels::RESOURCE_SLICE_NAME.to_owned(), key.name.clone());
    let status = source.slice.status.clone().unwrap_or_default();
    let spec = &mut node.spec;
    spec.cluster_id = Some(peer.to_owned());
    spec.kubeconfig_secret_ref = Some(source.kubeconfig.clone());
    spec.labels = bounds.node_labels(&status.node_labels);
    spec.labels
        .insert(labels::REMOTE_CLUSTER_ID.to_owned(), peer.to_owned());
    let resources = bounds.resources(&status.resources);
    spec.resource_quota.get_or_insert_default().hard = Some(resources);
    spec.storage_classes = bounds.storage_classes(&status.storage_classes);
    spec.ingress_classes = bounds.ingress_classes(&status.ingress_classes);
    spec.load_balancer_classes = bounds.load_balancer_classes(&status.load_balancer_classes);
    let selector = bounds.node_selector(&status.node_selector);
    // As upstream's, an empty one leaves the selector of a user.
    if !selector.is_empty() {
        spec.offloading_patch.get_or_insert_default().node_selector = selector;
    }

    node
}
