//! Generates the desired state of clusters of several sizes, and events that change the state.

use crate::view::View;
use control_fabric::{Fabric, MappedIp, Node, Peer, Replica, Role, Target};
use ipam::Remap;
use ipnet::Ipv4Net;
use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;

/// Name of the node for which the benchmark plans the kernel state.
pub(crate) const NODE: &str = "node-00000";

/// Size of a cluster in the benchmark: the number of its nodes, and of its remote clusters.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    nodes: u32,
    clusters: u32,
}

/// Sizes of the measured clusters. Kubernetes supports at most 5,000 nodes.
pub(crate) const SIZES: [Size; 3] = [
    Size {
        nodes: 50,
        clusters: 10,
    },
    Size {
        nodes: 500,
        clusters: 100,
    },
    Size {
        nodes: 5_000,
        clusters: 1_000,
    },
];

/// Number of IP objects for hosts outside the cluster. Every node translates these addresses.
const OUTSIDE: u32 = 100;

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} nodes, {} clusters", self.nodes, self.clusters)
    }
}

/// Returns the desired state of a cluster of this size with three gateway replicas.
pub(crate) fn of(size: Size) -> Fabric {
    let outside = (0..OUTSIDE).map(|number| mapped(number, 0xcb00_7100, Target::Outside));
    let nodes: Vec<_> = (0..size.nodes).map(node).collect();
    let of_nodes = (nodes.iter()).map(|node| MappedIp {
        name: format!("node-{}", node.name),
        namespace: String::new(),
        spec_ip: node.internal_ip,
        status_ip: node.external_ip,
        masquerade: false,
        target: Target::Node(node.name.clone()),
    });

    Fabric {
        cluster_id: "home".to_owned(),
        pod_cidrs: vec![cidr(0x0af0_0000, 12)],
        service_cidrs: vec![cidr(0x0a60_0000, 12)],
        external_cidr: cidr(0x0a46_0000, 16),
        ips: of_nodes.chain(outside).collect(),
        nodes: nodes.into(),
        replicas: (0..3).map(replica).collect(),
        peers: (0..size.clusters).map(peer).collect(),
    }
}

/// Returns a view in which every gateway replica reaches every remote cluster.
pub(crate) fn all_up(fabric: &Fabric) -> View {
    let mut view = View::default();
    for replica in &fabric.replicas {
        let clusters = fabric.peers.iter().map(|peer| peer.cluster_id.clone());
        view.serves(&replica.name, clusters.collect::<BTreeSet<_>>());
    }

    view
}

/// Returns events that change the cluster `fabric`. A tuple contains the name of an event, and the
/// fabric and the view after the event.
pub(crate) fn events(fabric: &Fabric) -> Vec<(&'static str, Fabric, View)> {
    let before = all_up(fabric);
    let mut without = View::default();
    for replica in &fabric.replicas[1..] {
        let clusters = fabric.peers.iter().map(|peer| peer.cluster_id.clone());
        without.serves(&replica.name, clusters.collect::<BTreeSet<_>>());
    }
    let with = |change: &dyn Fn(&mut Fabric)| {
        let mut fabric = fabric.clone();
        change(&mut fabric);
        fabric
    };
    let node_joins = with(&|fabric| fabric.nodes.push(node(9_999)));
    let cluster_joins = with(&|fabric| fabric.peers.push(peer(9_999)));
    let address_added = with(&|fabric| {
        let ip = mapped(OUTSIDE, 0xcb00_7100, Target::Outside);
        fabric.ips.push(ip);
    });
    let reached = all_up(&cluster_joins);

    vec![
        ("a replica is lost", fabric.clone(), without),
        ("a node joins", node_joins, before.clone()),
        ("a cluster joins", cluster_joins, reached),
        ("an address is mapped", address_added, before),
    ]
}

fn node(number: u32) -> Node {
    Node {
        name: format!("node-{number:05}"),
        internal_ip: Ipv4Addr::from_bits(0xac10_0001 + number),
        pod_cidrs: vec![cidr(0x0af0_0000 + (number % 4_096) * 256, 24)],
        external_ip: Ipv4Addr::from_bits(0x0a46_0001 + number),
        ready: true,
    }
}

fn replica(number: u32) -> Replica {
    Replica {
        name: format!("gateway-{number}"),
        address: Ipv4Addr::from_bits(0x0af0_0064 + number * 256),
        node: format!("node-{number:05}"),
        ready: true,
    }
}

/// Creates a remote cluster with a pod CIDR of 16,384 addresses. All remote clusters have the same
/// original CIDRs, so each gets its own remapped CIDRs.
fn peer(number: u32) -> Peer {
    let remapped = |first: u32| cidr(first + number * 0x4000, 18);
    let remap = |from, to| Remap::new(from, to).expect("prefixes of equal length");

    Peer {
        cluster_id: format!("cluster-{number:05}"),
        pods: vec![remap(cidr(0x0af4_0000, 18), remapped(0x1400_0000))],
        external: vec![remap(cidr(0x0a46_0000, 18), remapped(0x2800_0000))],
        role: Role::Server { port: 51_840 },
        mtu: 1_340,
        key_secret: format!("gw-{number:05}"),
        public_key: [7; 32],
        gateway_name: format!("{number:05}"),
    }
}

fn mapped(number: u32, first: u32, target: Target) -> MappedIp {
    MappedIp {
        name: format!("outside-{number}"),
        namespace: String::new(),
        spec_ip: Ipv4Addr::from_bits(first + number),
        status_ip: Ipv4Addr::from_bits(0x0a46_8000 + number),
        masquerade: false,
        target,
    }
}

fn cidr(address: u32, prefix_len: u8) -> Ipv4Net {
    let address = Ipv4Addr::from_bits(address);

    Ipv4Net::new(address, prefix_len).expect("a prefix length")
}
