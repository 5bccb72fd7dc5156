//! The values of a virtual kubelet, from the objects of the peer and of this cluster.

use super::options;
use crate::authentication::{cluster_id, label};
use crate::offloading::bounds::{Bounds, NAME_LEN_MAX};
use crate::offloading::objects::{BY_NAME, Local, Refusal, foreign_node};
use control_api::networking::configuration::ClusterCidrs;
use control_api::{Configuration, VirtualNode, VkOptionsTemplateSpec, labels};
use control_runtime::Key;
use std::collections::BTreeSet;

/// Settings of virtual kubelets.
#[derive(Clone, Debug)]
pub(crate) struct Kubelets {
    /// Namespace of Liqo.
    pub(crate) namespace: String,
    /// Further namespaces with objects of peers.
    pub(crate) tenant_namespaces: Vec<String>,
    /// Image of the virtual kubelets whose VkOptionsTemplate names none.
    pub(crate) image: String,
}

/// The values of a virtual kubelet.
pub(super) struct Source<'a> {
    /// The VirtualNode.
    pub(super) key: &'a Key,
    /// Cluster ID of the provider.
    pub(super) peer: &'a str,
    /// Cluster ID of this cluster.
    pub(super) home: &'a str,
    /// Namespace of Liqo.
    pub(super) liqo: &'a str,
    /// Pod CIDRs of this cluster.
    pub(super) pod_cidrs: Vec<&'a str>,
    /// CIDRs of the provider, once they are remapped.
    pub(super) remapped: Remapped<'a>,
    /// CIDRs in which this cluster or another peer has addresses, if networking with the provider is off. Else empty.
    pub(super) reserved: BTreeSet<&'a str>,
    /// Addresses of the IPs of this cluster's API server; empty without networking.
    pub(super) api_servers: BTreeSet<&'a str>,
    /// Secret with the kubeconfig for the provider.
    pub(super) secret: &'a str,
    pub(super) options: VkOptionsTemplateSpec,
}

/// CIDRs of a provider, each with the CIDR that it is remapped to.
#[derive(Debug, Default)]
pub(super) struct Remapped<'a> {
    pub(super) pod: Vec<(&'a str, &'a str)>,
    pub(super) external: Vec<(&'a str, &'a str)>,
}

/// Returns the values of the virtual kubelet of a VirtualNode; `None` while the ID of this cluster is unknown.
///
/// # Errors
///
/// Returns a refusal if there cannot be a virtual kubelet.
pub(super) fn source<'a>(
    local: &Local<'a>,
    kubelets: &'a Kubelets,
    (key, node): (&'a Key, &'a VirtualNode),
    bounds: &mut Bounds<'_>,
) -> Result<Option<Source<'a>>, Refusal> {
    let peer = check(local, key, node)?;
    let Some(secret) = secret_of(node) else {
        let message = "spec.kubeconfigSecretRef is missing: name the Secret with the kubeconfig for the provider";
        return Err(("KubeconfigMissing", message.to_owned()));
    };
    check_secret(local, &Key::new(&*key.namespace, secret), peer)?;
    let defaults = (kubelets.namespace.as_str(), kubelets.image.as_str());
    let options = options::find(local, node, defaults, bounds)?;
    let home = cluster_id(local.cache, &kubelets.namespace);
    let remapped = remapped(local, &key.namespace, peer);
    let api_servers = match remapped.external.is_empty() {
        true => BTreeSet::new(),
        false => api_servers(local, &kubelets.namespace),
    };

    Ok(home.map(|home| Source {
        key,
        peer,
        home,
        liqo: &kubelets.namespace,
        pod_cidrs: cidrs(local, &kubelets.namespace, &[labels::NETWORK_TYPE_POD]),
        reserved: reserved(local, &kubelets.namespace, (&key.namespace, peer)),
        remapped,
        api_servers,
        secret,
        options,
    }))
}

/// Checks that a VirtualNode may have a virtual kubelet, and returns the cluster ID of the provider.
pub(super) fn check<'a>(
    local: &Local<'a>,
    key: &Key,
    node: &VirtualNode,
) -> Result<&'a str, Refusal> {
    let Some(peer) = local.peer_of(&key.namespace) else {
        let message = format!(
            "namespace {} is not the tenant namespace of a peer: create the VirtualNode in the tenant namespace",
            key.namespace
        );
        return Err(("NotTenantNamespace", message));
    };
    let other = node.spec.cluster_id.as_deref().filter(|id| *id != peer);
    if let Some(other) = other {
        let message = format!(
            "spec.clusterID is `{other}`, but namespace {} is the tenant namespace of `{peer}`: move the VirtualNode",
            key.namespace
        );
        return Err(("NotTenantNamespace", message));
    }
    if key.name.len() > NAME_LEN_MAX {
        let message = format!(
            "metadata.name has {} characters, but the labels of the Node contain it: use {NAME_LEN_MAX} at most",
            key.name.len()
        );
        return Err(("NameTooLong", message));
    }
    let age = |key: &Key, node: &VirtualNode| {
        let created = node.metadata.creation_timestamp.clone();
        (created, key.clone())
    };
    let named = local.virtual_nodes.indexed(BY_NAME, &key.name);
    let mut named = named.filter(|(other, _)| local.peer_of(&other.namespace).is_some());
    if let Some((other, _)) = named.find(|(other, it)| age(other, it) < age(key, node)) {
        let message = format!(
            "VirtualNode {other} is older and has the same name, which is that of its Node: use another name"
        );
        return Err(("DuplicateName", message));
    }

    foreign_node(local, &key.name, peer).map_or(Ok(peer), Err)
}

/// Checks that a Secret is not labelled as the kubeconfig for another cluster than the provider: the virtual kubelet would
/// create the pods there. A Secret without the label, or that is missing so far, is accepted.
fn check_secret(local: &Local<'_>, secret: &Key, peer: &str) -> Result<(), Refusal> {
    let found = local.secrets.get(secret);
    let found = found.and_then(|it| label(&it.metadata, labels::REMOTE_CLUSTER_ID));
    let Some(other) = found.filter(|id| *id != peer) else {
        return Ok(());
    };
    let message = format!(
        "label {} of Secret {secret} is `{other}`, but the VirtualNode is of `{peer}`: name the Secret with the kubeconfig for \
         `{peer}` in spec.kubeconfigSecretRef",
        labels::REMOTE_CLUSTER_ID
    );

    Err(("OtherProvider", message))
}

/// Returns the name of the Secret with the kubeconfig of a VirtualNode.
pub(in crate::offloading) fn secret_of(node: &VirtualNode) -> Option<&str> {
    let secret = node.spec.kubeconfig_secret_ref.as_ref()?;

    Some(secret.name.as_str()).filter(|name| !name.is_empty())
}

/// Returns the CIDRs of this cluster of some types.
fn cidrs<'a>(local: &Local<'a>, liqo: &str, types: &[&str]) -> Vec<&'a str> {
    let networks = local.networks.within(liqo);
    let networks = networks.filter(|(_, network)| {
        let type_ = label(&network.metadata, labels::NETWORK_TYPE);
        type_.is_some_and(|it| types.contains(&it))
    });
    let cidrs = networks.filter_map(|(_, network)| {
        let allocated = network.status.as_ref().and_then(|it| it.cidr.as_deref());
        allocated.or(Some(network.spec.cidr.as_str()))
    });

    cidrs.filter(|cidr| !cidr.is_empty()).collect()
}

/// Returns the addresses of the IPs of this cluster's API server. Only those in the namespace of Liqo count, because others may be
/// those of users.
fn api_servers<'a>(local: &Local<'a>, liqo: &str) -> BTreeSet<&'a str> {
    let ips = local.ips.within(liqo);
    let ips = ips
        .filter(|(_, ip)| label(&ip.metadata, labels::IP_TYPE) == Some(labels::IP_TYPE_API_SERVER));
    let addresses = ips.filter_map(|(_, ip)| ip.status.as_ref()?.ip.as_deref());

    addresses.filter(|it| !it.is_empty()).collect()
}

/// Returns the CIDRs of this cluster, and those that other peers are remapped to, if `peer` has no Configuration. Without them, an
/// address of the peer's pods could be that of a pod here. Empty if the pod CIDRs are unknown, because then no address is safe.
fn reserved<'a>(
    local: &Local<'a>,
    liqo: &str,
    (namespace, peer): (&str, &str),
) -> BTreeSet<&'a str> {
    let pods = [labels::NETWORK_TYPE_POD];
    let is_known = !cidrs(local, liqo, &pods).is_empty();
    if !is_known || configuration(local, namespace, peer).is_some() {
        return BTreeSet::new();
    }
    let types = [
        labels::NETWORK_TYPE_POD,
        labels::NETWORK_TYPE_SERVICE,
        labels::NETWORK_TYPE_EXTERNAL,
        labels::NETWORK_TYPE_INTERNAL,
    ];
    let of_peers = local.configurations.iter();
    let of_peers = of_peers.filter(|(key, _)| local.peer_of(&key.namespace).is_some());
    let of_peers = of_peers.filter_map(|(_, it)| it.status.as_ref()?.remote.as_ref());
    let of_peers = of_peers.flat_map(|it| it.cidr.pod.iter().chain(&it.cidr.external));
    let of_peers = of_peers.map(String::as_str).filter(|it| !it.is_empty());

    cidrs(local, liqo, &types)
        .into_iter()
        .chain(of_peers)
        .collect()
}

/// Returns the Configuration of a peer, which exists if networking with it is on.
fn configuration<'a>(local: &Local<'a>, namespace: &str, peer: &str) -> Option<&'a Configuration> {
    let mut configurations = local.configurations.within(namespace);
    let of_peer =
        configurations.find(|(_, it)| label(&it.metadata, labels::REMOTE_CLUSTER_ID) == Some(peer));

    of_peer.map(|(_, it)| it)
}

fn remapped<'a>(local: &Local<'a>, namespace: &str, peer: &str) -> Remapped<'a> {
    let cidrs = configuration(local, namespace, peer).and_then(|configuration| {
        let original = configuration.spec.remote.as_ref()?;
        let remapped = configuration.status.as_ref()?.remote.as_ref()?;
        Some((&original.cidr, &remapped.cidr))
    });
    let Some((original, remapped)) = cidrs else {
        return Remapped::default();
    };
    let pairs = |cidrs: fn(&ClusterCidrs) -> &Vec<String>| -> Vec<(&'a str, &'a str)> {
        let (from, to) = (cidrs(original), cidrs(remapped));
        if from.len() != to.len() || to.iter().any(String::is_empty) {
            return Vec::new();
        }
        let pairs = from.iter().zip(to);
        pairs
            .map(|(from, to)| (from.as_str(), to.as_str()))
            .collect()
    };
    Remapped {
        pod: pairs(|cidrs| &cidrs.pod),
        external: pairs(|cidrs| &cidrs.external),
    }
}
