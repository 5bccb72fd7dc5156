//! The checked view of a cluster's objects: what the processes act on.

use ipam::Remap;
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// The fabric of one cluster, checked: nothing in here needs another look.
///
/// Each list is sorted by name, peers by cluster id.
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
    pub nodes: Vec<Node>,
    /// The gateway replicas of this cluster.
    pub replicas: Vec<Replica>,
    /// The clusters this one talks to.
    pub peers: Vec<Peer>,
    /// Single addresses that the peers reach under one of the external CIDR.
    pub ips: Vec<MappedIp>,
}

/// A node of this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name of the Kubernetes node.
    pub name: String,
    /// Its address on the underlay, the outer address of the overlay.
    pub internal_ip: Ipv4Addr,
    /// The prefixes of the pods it runs, as far as they are known: an address of none of them may
    /// be on any node.
    pub pod_cidrs: Vec<Ipv4Net>,
    /// Its address of the external CIDR (`status.ip` of the IP object `node-NAME`).
    pub external_ip: Ipv4Addr,
    /// Whether its condition `Ready` is true; a node without that condition is ready.
    pub ready: bool,
}

/// A replica of this cluster's gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Name of the gateway pod.
    pub name: String,
    /// Address of the pod, the outer address of the overlay.
    pub address: Ipv4Addr,
    /// The node it runs on.
    pub node: String,
    /// Whether its end point is ready; an end point that does not say is ready.
    pub ready: bool,
}

/// A remote cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its identity.
    pub cluster_id: String,
    /// Its pod CIDRs, from the original one to the one seen here.
    pub pods: Vec<Remap>,
    /// Its external CIDRs, from the original one to the one seen here.
    pub external: Vec<Remap>,
    /// Which side of the tunnel this cluster is.
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

/// Which side of a tunnel a gateway is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Waits for the peer's handshakes.
    Server {
        /// The UDP port that the peer is told.
        port: u16,
    },
    /// Starts the handshakes.
    Client {
        /// Host names or addresses of the peer's end points; never empty.
        addresses: Vec<String>,
        /// The UDP port of all of them.
        port: u16,
    },
}

/// An address that peers reach under another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedIp {
    /// Name of the IP object.
    pub name: String,
    /// The address itself.
    pub spec_ip: Ipv4Addr,
    /// The address of the external CIDR it is reached under.
    pub status_ip: Ipv4Addr,
    /// Whether nodes hide the source from it.
    pub masquerade: bool,
    /// What the address is.
    pub target: Target,
}

/// What a mapped address is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A node of this cluster, by name.
    Node(String),
    /// A pod of this cluster.
    Pod {
        /// The node whose pod CIDRs contain it, if one's do.
        node: Option<String>,
    },
    /// A pod or a mapped address of a peer.
    Remote {
        /// The peer.
        cluster_id: String,
        /// The address as the peer itself knows it.
        original: Ipv4Addr,
    },
    /// The ClusterIP of a Service of this cluster. No other IP object has the same `spec.ip`.
    Service,
    /// An address that is neither ours nor a peer's.
    Outside,
}

impl Fabric {
    /// Returns the CIDRs of `peer` as seen here: pods first, then external ones.
    pub fn remote_cidrs(peer: &Peer) -> impl Iterator<Item = Ipv4Net> {
        peer.pods.iter().chain(&peer.external).map(Remap::to)
    }

    /// Returns the peer of that cluster id.
    pub fn peer(&self, cluster_id: &str) -> Option<&Peer> {
        let order = |peer: &Peer| peer.cluster_id.as_str().cmp(cluster_id);
        let found = self.peers.binary_search_by(order);

        Some(&self.peers[found.ok()?])
    }

    /// Returns the node of that name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        let order = |node: &Node| node.name.as_str().cmp(name);
        let found = self.nodes.binary_search_by(order);

        Some(&self.nodes[found.ok()?])
    }

    /// Returns the address under which senders of unknown origin appear: the first of the external CIDR.
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

/// Returns the last address of an external CIDR, because ipam allocates it last.
fn echo_responder(external: Ipv4Net) -> Option<Ipv4Addr> {
    (external.prefix_len() < 31).then(|| external.broadcast())
}

impl Peer {
    /// Returns the remapped address of the peer's echo responders, which this cluster's nodes probe.
    ///
    /// The PONGs of the peer's gateways report whether its nodes run an echo responder.
    pub fn echo_responder(&self) -> Option<Ipv4Addr> {
        echo_responder(self.external.first()?.to())
    }

    /// Returns the address under which its senders of unknown origin are seen here: the first one of
    /// its (remapped) external CIDR.
    pub fn unknown_source(&self) -> Option<Ipv4Addr> {
        self.external.first().map(|remap| remap.to().network())
    }
}
