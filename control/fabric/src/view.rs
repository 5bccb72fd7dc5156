//! The checked desired state of a cluster, which gateways and route agents apply.

use ipam::Remap;
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

mod list;

pub use list::{Difference, Keyed, List};

/// The checked fabric of one cluster: no consumer validates a part of it again.
///
/// Each list is sorted by name, peers by cluster ID. Copies share the elements of the lists, and
/// [`Fabric::changes_since`] returns the elements that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fabric {
    /// Identity of this cluster.
    pub cluster_id: String,
    /// CIDRs of this cluster's pods.
    pub pod_cidrs: Vec<Ipv4Net>,
    /// CIDRs of this cluster's services.
    pub service_cidrs: Vec<Ipv4Net>,
    /// This cluster's external CIDR, from which nodes and mapped addresses get theirs.
    pub external_cidr: Ipv4Net,
    /// The nodes of this cluster.
    pub nodes: List<Node>,
    /// The gateway replicas of this cluster.
    pub replicas: Vec<Replica>,
    /// The remote clusters.
    pub peers: List<Peer>,
    /// Addresses that the peers reach by an address of the external CIDR.
    pub ips: List<MappedIp>,
}

/// The differences between two fabrics.
#[derive(Debug, PartialEq, Eq)]
pub struct FabricChange<'a> {
    /// Whether the cluster ID or a CIDR of this cluster has changed.
    pub is_of_cluster: bool,
    /// Whether a gateway replica has changed.
    pub is_of_replicas: bool,
    /// Whether [`Fabric::echo_responder`] may have changed.
    pub is_of_echo_responder: bool,
    /// The changed nodes.
    pub nodes: Vec<Difference<'a, Node>>,
    /// The changed peers.
    pub peers: Vec<Difference<'a, Peer>>,
    /// The changed addresses.
    pub ips: Vec<Difference<'a, MappedIp>>,
}

/// A node of this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name of the Kubernetes node.
    pub name: String,
    /// Address on the underlay, which is the outer address of the overlay.
    pub internal_ip: Ipv4Addr,
    /// Pod CIDRs of the node; empty if they are unknown. A pod address outside all nodes' pod CIDRs may be on any
    /// node.
    pub pod_cidrs: Vec<Ipv4Net>,
    /// Address of the external CIDR (`status.ip` of the IP object `node-NAME`).
    pub external_ip: Ipv4Addr,
    /// Whether the condition `Ready` of the node is true; a node without that condition is ready.
    pub ready: bool,
}

/// A replica of this cluster's gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Name of the gateway pod.
    pub name: String,
    /// Address of the pod, which is the outer address of the overlay.
    pub address: Ipv4Addr,
    /// Name of the node on which the replica runs.
    pub node: String,
    /// Whether the endpoint is ready; an endpoint without this condition is ready.
    pub ready: bool,
}

/// A remote cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Cluster ID of the peer.
    pub cluster_id: String,
    /// Pod CIDRs, from the original to the remapped CIDR.
    pub pods: Vec<Remap>,
    /// External CIDRs, from the original to the remapped CIDR.
    pub external: Vec<Remap>,
    /// Role of this cluster's gateway.
    pub role: Role,
    /// Upper bound of the inner MTU, in bytes.
    pub mtu: u16,
    /// Name of the Secret that holds this cluster's private key for the peer.
    pub key_secret: String,
    /// The peer's WireGuard public key.
    pub public_key: [u8; 32],
    /// Name of the GatewayServer or GatewayClient.
    pub gateway_name: String,
}

/// Role of a gateway in the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Waits for the peer's handshakes.
    Server {
        /// UDP port that this cluster publishes to the peer.
        port: u16,
    },
    /// Starts the handshakes.
    Client {
        /// Host names or addresses of the peer's endpoints; never empty.
        addresses: Vec<String>,
        /// UDP port of each endpoint.
        port: u16,
    },
}

/// An address that peers reach by a mapped address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedIp {
    /// Name of the IP object.
    pub name: String,
    /// Namespace of the IP object; empty if a file omits it.
    pub namespace: String,
    /// The original address.
    pub spec_ip: Ipv4Addr,
    /// The mapped address, which is in the external CIDR.
    pub status_ip: Ipv4Addr,
    /// Whether nodes masquerade the source of packets to the address.
    pub masquerade: bool,
    /// Owner of the original address.
    pub target: Target,
}

/// Owner of the original address of an IP object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A node of this cluster, by name.
    Node(String),
    /// A pod of this cluster.
    Pod {
        /// The node whose pod CIDRs contain the address; `None` if there is none.
        node: Option<String>,
    },
    /// A pod or a mapped address of a peer.
    Remote {
        /// Cluster ID of the peer.
        cluster_id: String,
        /// The address in the peer's own CIDRs, before the remapping.
        original: Ipv4Addr,
    },
    /// The ClusterIP of a Service of this cluster. No other IP object has the same `spec.ip`.
    Service,
    /// An address outside this cluster and its peers.
    Outside,
}

impl Fabric {
    /// Returns the remapped CIDRs of `peer`: pod CIDRs, then external CIDRs.
    pub fn remote_cidrs(peer: &Peer) -> impl Iterator<Item = Ipv4Net> {
        peer.pods.iter().chain(&peer.external).map(Remap::to)
    }

    /// Returns the peer with this cluster ID.
    pub fn peer(&self, cluster_id: &str) -> Option<&Peer> {
        self.peers.find((cluster_id, "")).map(|peer| &**peer)
    }

    /// Returns the node with this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.find((name, "")).map(|node| &**node)
    }

    /// Returns the differences from `old`.
    pub fn changes_since<'a>(&'a self, old: &'a Self) -> FabricChange<'a> {
        let mut change = FabricChange {
            is_of_cluster: self.cluster_id != old.cluster_id
                || self.pod_cidrs != old.pod_cidrs
                || self.service_cidrs != old.service_cidrs
                || self.external_cidr != old.external_cidr,
            is_of_replicas: self.replicas != old.replicas,
            is_of_echo_responder: self.external_cidr != old.external_cidr,
            nodes: self.nodes.differences(&old.nodes),
            peers: self.peers.differences(&old.peers),
            ips: self.ips.differences(&old.ips),
        };
        let address = echo_responder(self.external_cidr);
        change.is_of_echo_responder |= address.is_some_and(|it| change.is_about(it));

        change
    }

    /// Returns this fabric without nodes, peers and IP objects.
    #[must_use]
    pub fn without_elements(&self) -> Self {
        Self {
            nodes: List::default(),
            peers: List::default(),
            ips: List::default(),
            ..self.clone()
        }
    }

    /// Returns the address that replaces unknown source addresses: the first address of the external CIDR.
    pub fn unknown_source(&self) -> Ipv4Addr {
        self.external_cidr.network()
    }

    /// Returns the address of this cluster's echo responders, which reply to the peers' end-to-end
    /// checks; each node runs one.
    ///
    /// Returns `None` if a node or an IP object uses that address, or if the external CIDR is too
    /// small.
    pub fn echo_responder(&self) -> Option<Ipv4Addr> {
        let nodes = self.nodes.iter().map(|node| node.external_ip);
        let mut used = nodes.chain(self.ips.iter().map(|ip| ip.status_ip));
        echo_responder(self.external_cidr).filter(|address| used.all(|used| used != *address))
    }
}

/// Returns the last address of an external CIDR, which `ipam` allocates last.
fn echo_responder(external: Ipv4Net) -> Option<Ipv4Addr> {
    (external.prefix_len() < 31).then(|| external.broadcast())
}

impl FabricChange<'_> {
    /// Returns whether a changed node or IP object has this address of the external CIDR, or had it.
    fn is_about(&self, address: Ipv4Addr) -> bool {
        let nodes = self.nodes.iter().flat_map(Difference::both);
        let ips = self.ips.iter().flat_map(Difference::both);
        let addresses = nodes.map(|node| node.external_ip);
        let mut addresses = addresses.chain(ips.map(|ip| ip.status_ip));

        addresses.any(|it| it == address)
    }

    /// Returns whether the fabrics are equal.
    pub fn is_empty(&self) -> bool {
        let is_same_cluster = !self.is_of_cluster && !self.is_of_replicas;
        is_same_cluster && self.nodes.is_empty() && self.peers.is_empty() && self.ips.is_empty()
    }
}

impl Keyed for Node {
    fn key(&self) -> (&str, &str) {
        (&self.name, "")
    }
}

impl Keyed for Peer {
    fn key(&self) -> (&str, &str) {
        (&self.cluster_id, "")
    }
}

impl Keyed for MappedIp {
    fn key(&self) -> (&str, &str) {
        (&self.name, &self.namespace)
    }
}

impl Peer {
    /// Returns the remapped address of the peer's echo responders, which this cluster's nodes probe.
    ///
    /// The PONGs of the peer's gateways report whether its nodes run an echo responder.
    pub fn echo_responder(&self) -> Option<Ipv4Addr> {
        echo_responder(self.external.first()?.to())
    }

    /// Returns the address that replaces unknown source addresses of the peer: the first address of its remapped
    /// external CIDR.
    pub fn unknown_source(&self) -> Option<Ipv4Addr> {
        self.external.first().map(|remap| remap.to().network())
    }
}
