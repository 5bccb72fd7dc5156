//! Facts about the cluster itself: cluster ID, CIDRs, nodes and gateway.

use super::Local;
use crate::network::item::WorkItem;
use crate::network::kind::{Key, Kind};
use control_api::networking::configuration::ClusterCidrs;
use control_api::networking::endpoint::InternalEndpoint;
use control_api::networking::gateway_server::ServiceType;
use control_api::{Network, labels};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Key of the cluster ID in its ConfigMap.
const CLUSTER_ID: &str = "CLUSTER_ID";

/// Facts about the cluster, derived from its objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cluster {
    /// ID of this cluster; `None` before the ConfigMap exists.
    pub(crate) id: Option<String>,
    /// CIDRs that peers receive; `None` until all are allocated.
    pub(crate) cidrs: Option<ClusterCidrs>,
    /// The Network of the external CIDR.
    pub(crate) external: Option<Key>,
    /// The nodes that run pods.
    pub(crate) nodes: Nodes,
    /// CIDRs of the cluster itself, each with a description.
    pub(crate) internal: BTreeSet<(Ipv4Net, &'static str)>,
    /// Endpoint of a ready gateway for the nodes.
    pub(crate) gateway: Option<InternalEndpoint>,
    /// Number of ready replicas of the gateway, and of all.
    pub(crate) replicas: (usize, usize),
}

/// The addresses of the nodes that run pods. A change of a node costs O(log n).
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Nodes {
    /// Address at which peers reach each ready node.
    external: BTreeMap<Key, String>,
    /// The addresses of each node.
    addresses: BTreeMap<Key, BTreeSet<Ipv4Addr>>,
    /// Number of nodes that have an address.
    internal: BTreeMap<Ipv4Addr, usize>,
}

/// A change of a node.
#[derive(Debug)]
pub(crate) struct NodeChange {
    /// Addresses that the node has gained or lost.
    addresses: BTreeSet<Ipv4Addr>,
    /// Whether the address at which peers reach the node has changed.
    is_external: bool,
}

impl Nodes {
    /// Returns the addresses of the ready nodes at which peers reach them, by the names of the nodes.
    pub(crate) fn external(&self) -> Vec<String> {
        self.external.values().cloned().collect()
    }

    /// Replaces a node.
    pub(crate) fn replace(&mut self, key: &Key, new: Option<&Node>) -> NodeChange {
        let after = internal_addresses(new);
        let before = if after.is_empty() {
            self.addresses.remove(key)
        } else {
            self.addresses.insert(key.clone(), after.clone())
        };
        let before = before.unwrap_or_default();
        for address in &after {
            *self.internal.entry(*address).or_default() += 1;
        }
        for address in &before {
            if let Some(count) = self.internal.get_mut(address) {
                *count -= 1;
                if *count == 0 {
                    self.internal.remove(address);
                }
            }
        }
        let external = new.filter(|node| is_real(node) && is_ready(node));
        let external = external.and_then(address);
        let former = match external.clone() {
            Some(external) => self.external.insert(key.clone(), external),
            None => self.external.remove(key),
        };

        NodeChange {
            addresses: before.symmetric_difference(&after).copied().collect(),
            is_external: former != external,
        }
    }
}

/// Returns all addresses of a node that runs pods.
fn internal_addresses(node: Option<&Node>) -> BTreeSet<Ipv4Addr> {
    let status = node
        .filter(|node| is_real(node))
        .and_then(|it| it.status.as_ref());
    let addresses = status.and_then(|it| it.addresses.as_ref());
    let addresses = addresses.into_iter().flatten();
    addresses.filter_map(|it| it.address.parse().ok()).collect()
}

/// Types of addresses of nodes, in order of preference for other clusters, which is upstream's.
pub(crate) const ADDRESS_TYPES: [&str; 5] = [
    "ExternalDNS",
    "ExternalIP",
    "InternalDNS",
    "InternalIP",
    "Hostname",
];

impl Cluster {
    /// Returns whether the facts besides those of nodes depend on an object.
    pub(crate) fn depends_on(namespace: &str, kind: Kind, key: &Key) -> bool {
        matches!(kind, Kind::Pod | Kind::ConfigMap)
            || kind == Kind::Network && key.namespace == namespace
    }

    /// Derives the facts from the objects of Liqo's namespace and from `nodes`.
    pub(crate) fn of(local: &Local<'_>, nodes: Nodes) -> Self {
        let pods = local.pods.within(local.namespace);
        let pods: Vec<_> = pods
            .map(|(_, pod)| pod)
            .filter(|pod| !is_terminating(&pod.metadata))
            .collect();
        let ready: Vec<_> = pods.iter().filter_map(|pod| endpoint(pod)).collect();

        Self {
            id: cluster_id(local),
            cidrs: cidrs(local),
            external: network_of_type(local, labels::NETWORK_TYPE_EXTERNAL).next(),
            nodes,
            internal: internal(local),
            replicas: (ready.len(), pods.len()),
            gateway: ready.into_iter().next(),
        }
    }
}

impl Local<'_> {
    /// Returns the CIDR and the description of an address of the cluster itself, or of a remapped address of a peer.
    pub(crate) fn internal(&self, address: Ipv4Addr) -> Option<(Ipv4Net, &'static str)> {
        let own = self.cluster().internal.iter().copied();
        let of_peers = self.networks.iter().filter(|(key, network)| {
            let labels = network.metadata.labels.as_ref();
            let is_of_peer =
                labels.is_some_and(|labels| labels.contains_key(labels::CONFIGURATION_CIDR_TYPE));
            is_of_peer && self.is_tenant(&key.namespace)
        });
        let of_peers = of_peers
            .filter_map(|(_, network)| Some((effective_cidr(network)?, "inside a CIDR of a peer")));

        if self.cluster().nodes.internal.contains_key(&address) {
            return Some((address.into(), "the address of a node"));
        }
        own.chain(of_peers)
            .find(|(cidr, _)| cidr.contains(&address))
    }

    /// Returns the work items that a change of a node causes.
    pub(crate) fn items_of_node(&self, change: &NodeChange) -> BTreeSet<WorkItem> {
        let cidrs = change.addresses.iter().copied().map(Ipv4Net::from);
        let mut items: BTreeSet<_> = cidrs.flat_map(|cidr| self.templates_in(cidr)).collect();
        if change.is_external {
            let servers = self.servers.iter().filter(|(_, server)| {
                let endpoint = server.spec.endpoint.as_ref();
                endpoint.is_some_and(|it| it.service_type == ServiceType::NodePort)
            });
            let peers = servers.map(|(key, _)| self.peer_of(Kind::GatewayServer, key));
            items.extend(peers.map(WorkItem::Peer));
        }

        items
    }

    /// Returns the work items that a change of the facts causes.
    pub(crate) fn items_of_cluster(&self, old: &Cluster) -> BTreeSet<WorkItem> {
        let new = self.cluster();
        let mut items = BTreeSet::new();
        if old.id != new.id || old.cidrs != new.cidrs {
            let all = self.configurations.iter();
            items.extend(all.map(|(key, _)| WorkItem::Configuration(key.clone())));
        }
        for (cidr, _) in old.internal.symmetric_difference(&new.internal) {
            items.extend(self.templates_in(*cidr));
        }
        if old.external != new.external {
            items.extend(self.ips.iter().map(|(key, _)| WorkItem::Ip(key.clone())));
        }
        if (&old.id, &old.gateway, old.replicas) != (&new.id, &new.gateway, new.replicas) {
            items.extend(self.peer_items());
        }

        items
    }
}

/// Returns whether a node runs pods and does not represent a peer.
pub(crate) fn is_real(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let node_type = labels.and_then(|labels| labels.get(labels::NODE_TYPE));
    node_type.is_none_or(|node_type| node_type != labels::NODE_TYPE_VIRTUAL)
}

/// Returns whether an object is being deleted.
pub(crate) fn is_terminating(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// Returns the cluster ID in its ConfigMap; `None` for other ConfigMaps, such as those that other controllers follow.
pub(crate) fn id_of(map: &ConfigMap) -> Option<&str> {
    let name = map.metadata.labels.as_ref()?.get(labels::APP_NAME)?;
    let data = map.data.as_ref();
    let data = data.filter(|_| name == labels::CLUSTER_ID_CONFIG_MAP)?;
    data.get(CLUSTER_ID).map(String::as_str)
}

fn cluster_id(local: &Local<'_>) -> Option<String> {
    let mut maps = local.config_maps.within(local.namespace);
    maps.find_map(|(_, map)| id_of(map)).map(str::to_owned)
}

/// Returns the Networks of a type in Liqo's namespace.
fn network_of_type<'a>(local: &Local<'a>, type_: &'a str) -> impl Iterator<Item = Key> + 'a {
    let networks = local.networks.within(local.namespace);
    networks
        .filter(move |(_, network)| {
            let labels = network.metadata.labels.as_ref();
            let found = labels.and_then(|labels| labels.get(labels::NETWORK_TYPE));
            found.is_some_and(|found| found == type_) && !is_terminating(&network.metadata)
        })
        .map(|(key, _)| key.clone())
}

fn internal(local: &Local<'_>) -> BTreeSet<(Ipv4Net, &'static str)> {
    let types = [
        (labels::NETWORK_TYPE_POD, "inside the pod CIDR"),
        (labels::NETWORK_TYPE_SERVICE, "inside the Service CIDR"),
        (labels::NETWORK_TYPE_EXTERNAL, "inside the external CIDR"),
        (labels::NETWORK_TYPE_INTERNAL, "inside the internal CIDR"),
    ];
    let networks = types.into_iter().flat_map(|(type_, what)| {
        let networks = network_of_type(local, type_);
        networks.filter_map(move |key| Some((effective_cidr(local.networks.get(&key)?)?, what)))
    });
    networks.collect()
}

/// Returns the CIDR of a Network of a peer; `None` for other Networks.
pub(super) fn cidr_of_peer(network: &Network) -> Option<Ipv4Net> {
    let labels = network.metadata.labels.as_ref()?;
    let is_of_peer = labels.contains_key(labels::CONFIGURATION_CIDR_TYPE);
    is_of_peer.then(|| effective_cidr(network))?
}

/// Returns the allocated CIDR of a Network, or the requested one before allocation.
fn effective_cidr(network: &Network) -> Option<Ipv4Net> {
    let status = network.status.as_ref();
    let status = status.and_then(|status| status.cidr.as_deref());
    status.unwrap_or(&network.spec.cidr).parse().ok()
}

fn cidrs(local: &Local<'_>) -> Option<ClusterCidrs> {
    let of_type = |network_type| {
        network_of_type(local, network_type)
            .map(|key| local.networks.get(&key)?.status.as_ref()?.cidr.clone())
            .collect::<Option<Vec<_>>>()
    };
    let pod = of_type(labels::NETWORK_TYPE_POD)?;
    let external = of_type(labels::NETWORK_TYPE_EXTERNAL)?;

    (!pod.is_empty() && !external.is_empty()).then_some(ClusterCidrs { pod, external })
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

fn address(node: &Node) -> Option<String> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    ADDRESS_TYPES.iter().find_map(|type_| {
        let found = addresses.iter().find(|it| it.type_ == *type_)?;
        (!found.address.is_empty()).then(|| found.address.clone())
    })
}

fn endpoint(pod: &Pod) -> Option<InternalEndpoint> {
    let status = pod.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let is_ready = conditions.any(|it| it.type_ == "Ready" && it.status == "True");
    let ip = status.pod_ip.clone()?;

    is_ready.then(|| InternalEndpoint {
        ip: Some(ip),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
    })
}
