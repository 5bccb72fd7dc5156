//! The specification of a laboratory.

use ipnet::Ipv4Net;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The clusters of a laboratory, and the peerings between them.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// The clusters, whose names must be unique.
    pub clusters: Vec<ClusterSpec>,
    /// The peerings. Each pair of clusters has at most one.
    pub peerings: Vec<PeeringSpec>,
}

impl Spec {
    /// Returns the specification of a laboratory without clusters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a cluster, and returns the specification.
    #[must_use]
    pub fn cluster(mut self, cluster: ClusterSpec) -> Self {
        self.clusters.push(cluster);
        self
    }

    /// Adds a peering between two clusters with Liqo's default MTU.
    #[must_use]
    pub fn peering(mut self, client: &str, server: &str) -> Self {
        self.peerings.push(PeeringSpec::new(client, server));
        self
    }
}

/// The specification of a cluster. The defaults are those of Kubernetes and Liqo, so all clusters
/// have the same CIDRs by default.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    /// The cluster ID, which is also the prefix of node names. It has at most 12 letters.
    pub name: String,
    /// The pod CIDRs. Each node has a part of each CIDR.
    pub pod_cidrs: Vec<Ipv4Net>,
    /// The CIDR of Services, which remapped CIDRs must not overlap. Tests install the rules that
    /// translate ClusterIPs.
    pub service_cidr: Ipv4Net,
    /// The external CIDR, with the addresses at which peers reach nodes and IP objects.
    pub external_cidr: Ipv4Net,
    /// Number of nodes, from 1 to [`NODES_MAX`].
    pub nodes: usize,
    /// Number of gateway pods, which are distributed over the nodes.
    pub replicas: usize,
    /// Number of lanes (packet loops) of each gateway.
    pub lanes: u8,
    /// Kind of Service by which peers in the client role reach the gateways.
    pub exposure: Exposure,
    /// If set, the edge router is a NAT router. UDP flows expire after this time without packets.
    pub nat: Option<Duration>,
    /// MTU in bytes of nodes and pods.
    pub node_mtu: u32,
    /// MTU in bytes of the link between the cluster's edge router and the core router.
    pub uplink_mtu: u32,
    /// Whether the link between edge router and core router has a [relay](crate::fault::relay).
    pub relayed: bool,
    /// Whether nodes select nexthops by addresses and ports instead of addresses only (sysctl
    /// `fib_multipath_hash_policy`).
    pub spread_by_port: bool,
}

impl ClusterSpec {
    /// Returns the specification of a cluster with one node and one gateway.
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
            node_mtu: MTU,
            uplink_mtu: MTU,
            relayed: false,
            spread_by_port: true,
        }
    }

    /// Sets the number of nodes, from 1 to [`NODES_MAX`].
    #[must_use]
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// Sets the number of gateway pods, which may exceed the number of nodes.
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Sets the number of lanes (packet loops) of each gateway.
    #[must_use]
    pub fn lanes(mut self, lanes: u8) -> Self {
        self.lanes = lanes;
        self
    }

    /// Replaces the pod CIDRs, of which there must be at least one.
    #[must_use]
    pub fn pod_cidrs(mut self, cidrs: impl IntoIterator<Item = Ipv4Net>) -> Self {
        self.pod_cidrs = cidrs.into_iter().collect();
        self
    }

    /// Sets the kind of Service by which peers reach the gateways.
    #[must_use]
    pub fn exposure(mut self, exposure: Exposure) -> Self {
        self.exposure = exposure;
        self
    }

    /// Makes the edge router a NAT router. UDP flows expire after `timeout` without packets.
    #[must_use]
    pub fn behind_nat(mut self, timeout: Duration) -> Self {
        self.nat = Some(timeout);
        self
    }

    /// Sets the MTU in bytes of nodes and pods.
    #[must_use]
    pub fn node_mtu(mut self, mtu: u32) -> Self {
        self.node_mtu = mtu;
        self
    }

    /// Sets the MTU in bytes of the link between edge router and core router.
    #[must_use]
    pub fn uplink_mtu(mut self, mtu: u32) -> Self {
        self.uplink_mtu = mtu;
        self
    }

    /// Inserts a [relay](crate::fault::relay) into the link between edge router and core router.
    #[must_use]
    pub fn relayed(mut self) -> Self {
        self.relayed = true;
        self
    }
}

/// The kind of Service by which peers reach a cluster's gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// Every node forwards [`NODE_PORT`] to the ready gateways.
    NodePort,
    /// A load balancer forwards [`GATEWAY_PORT`] of its address to the ready gateways.
    LoadBalancer,
}

/// A peering between two clusters.
#[derive(Clone, Debug)]
pub struct PeeringSpec {
    /// The cluster whose gateways initiate handshakes.
    pub client: String,
    /// The cluster whose gateways are exposed.
    pub server: String,
    /// Upper bound of the tunnel's MTU in bytes.
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

/// Maximum number of nodes per cluster. The address plan has links for this number of nodes.
pub const NODES_MAX: usize = 60;

/// UDP port on which gateways listen in their pods. It is Liqo's default.
pub const GATEWAY_PORT: u16 = 51840;

/// UDP port that every node forwards to the gateways.
pub const NODE_PORT: u16 = 30840;

/// Default MTU of links in bytes, as on Ethernet without jumbo frames.
pub const MTU: u32 = 1500;

/// Liqo's default MTU of the tunnel in bytes.
const TUNNEL_MTU: u16 = 1340;

fn net(address: [u8; 4], prefix_len: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::from(address), prefix_len)
}
