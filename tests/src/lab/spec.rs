//! The specification of a laboratory.

use ipnet::Ipv4Net;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The clusters of a laboratory and their peerings.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// The clusters, with unique names.
    pub clusters: Vec<ClusterSpec>,
    /// The peerings, at most one for each pair of clusters.
    pub peerings: Vec<PeeringSpec>,
}

impl Spec {
    /// A laboratory without clusters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a cluster.
    #[must_use]
    pub fn cluster(mut self, cluster: ClusterSpec) -> Self {
        self.clusters.push(cluster);
        self
    }

    /// Adds a peering with the default MTU.
    #[must_use]
    pub fn peering(mut self, client: &str, server: &str) -> Self {
        self.peerings.push(PeeringSpec::new(client, server));
        self
    }
}

/// The specification of a cluster. The defaults are those of Kubernetes and Liqo, so
/// that all clusters have the same addresses.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    /// The cluster ID; also the prefix of node names.
    pub name: String,
    /// The pod CIDRs; each node has its own part of each.
    pub pod_cidrs: Vec<Ipv4Net>,
    /// The service CIDR.
    pub service_cidr: Ipv4Net,
    /// The external CIDR: addresses of nodes and IP objects for peers.
    pub external_cidr: Ipv4Net,
    /// Number of nodes, at most [`NODES_MAX`].
    pub nodes: usize,
    /// Number of gateway pods, which are spread over the nodes.
    pub replicas: usize,
    /// Number of lanes (packet loops) of each gateway.
    pub lanes: u8,
    /// How its gateways are exposed where they have the server role.
    pub exposure: Exposure,
    /// Puts the cluster behind a NAT router whose UDP flows expire after this time
    /// without packets.
    pub nat: Option<Duration>,
    /// The MTU of the link between the cluster and the core of the underlay.
    pub uplink_mtu: u32,
    /// Puts a [relay](crate::fault::relay) into that link.
    pub relayed: bool,
    /// Whether nodes hash ports, too, when they spread flows over nexthops
    /// (`fib_multipath_hash_policy`).
    pub spread_by_port: bool,
}

impl ClusterSpec {
    /// A cluster with one node and one gateway.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            pod_cidrs: vec![net([10, 244, 0, 0], 16)],
            service_cidr: net([10, 96, 0, 0], 12),
            external_cidr: net([10, 70, 0, 0], 16),
            nodes: 1,
            replicas: 1,
            lanes: 1,
            exposure: Exposure::NodePort,
            nat: None,
            uplink_mtu: MTU,
            relayed: false,
            spread_by_port: true,
        }
    }

    /// Sets the number of nodes.
    #[must_use]
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// Sets the number of gateway pods.
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Sets the number of lanes of each gateway.
    #[must_use]
    pub fn lanes(mut self, lanes: u8) -> Self {
        self.lanes = lanes;
        self
    }

    /// Sets the pod CIDRs.
    #[must_use]
    pub fn pod_cidrs(mut self, cidrs: impl IntoIterator<Item = Ipv4Net>) -> Self {
        self.pod_cidrs = cidrs.into_iter().collect();
        self
    }

    /// Sets how the gateways are exposed.
    #[must_use]
    pub fn exposure(mut self, exposure: Exposure) -> Self {
        self.exposure = exposure;
        self
    }

    /// Puts the cluster behind a NAT router.
    #[must_use]
    pub fn behind_nat(mut self, timeout: Duration) -> Self {
        self.nat = Some(timeout);
        self
    }

    /// Sets the MTU of the link to the core.
    #[must_use]
    pub fn uplink_mtu(mut self, mtu: u32) -> Self {
        self.uplink_mtu = mtu;
        self
    }

    /// Puts a relay into the link to the core.
    #[must_use]
    pub fn relayed(mut self) -> Self {
        self.relayed = true;
        self
    }
}

/// How a cluster's gateways are exposed to peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// A port of every node, forwarded to the ready gateways.
    NodePort,
    /// A load balancer's address, forwarded to the ready gateways.
    LoadBalancer,
}

/// A peering between two clusters.
#[derive(Clone, Debug)]
pub struct PeeringSpec {
    /// The cluster whose gateways initiate handshakes.
    pub client: String,
    /// The cluster whose gateways are exposed.
    pub server: String,
    /// The upper bound of the tunnel's MTU.
    pub mtu: u16,
}

impl PeeringSpec {
    /// Creates a peering with Liqo's default MTU.
    pub fn new(client: &str, server: &str) -> Self {
        Self {
            client: client.to_owned(),
            server: server.to_owned(),
            mtu: TUNNEL_MTU,
        }
    }

    /// Returns the peer of `cluster`, or `None` if `cluster` is not part of the peering.
    pub fn remote_of(&self, cluster: &str) -> Option<&str> {
        match cluster {
            _ if cluster == self.client => Some(&self.server),
            _ if cluster == self.server => Some(&self.client),
            _ => None,
        }
    }
}

/// Number of node links that the address plan of a cluster has room for.
pub const NODES_MAX: usize = 60;

/// The UDP port of gateways in their pods, Liqo's default.
pub const GATEWAY_PORT: u16 = 51840;

/// The port of every node that forwards to the gateways.
pub const NODE_PORT: u16 = 30840;

/// The MTU of Ethernet without jumbo frames.
pub const MTU: u32 = 1500;

/// Liqo's default MTU of the tunnel.
const TUNNEL_MTU: u16 = 1340;

fn net(address: [u8; 4], prefix_len: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::from(address), prefix_len)
}
