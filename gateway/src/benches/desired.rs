//! Measures the translation of the desired state into eBPF map entries and peers of the engine.

use crate::tables::{Indices, peers, tables};
use control_fabric::{Fabric, MappedIp, Node, Peer, Role, Target};
use cpu_time::CpuTime;
use criterion::{BenchmarkId, Criterion};
use ipam::Remap;
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::Ipv4Addr;

/// Numbers of nodes and of peers.
///
/// The number of IP objects for addresses outside of the cluster equals the number of peers.
const SIZES: [(u32, u32); 3] = [(50, 10), (500, 100), (5_000, 1_000)];

/// Number of prefixes of each peer.
const PREFIXES: u32 = 10;

pub(crate) fn all(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("gateway");
    group.sample_size(10);
    for (nodes, peer_count) in SIZES {
        let size = format!("{nodes} nodes, {peer_count} peers");
        let fabric = fabric(nodes, peer_count);
        let mut indices = Indices::default();
        indices.assign(&fabric);
        let keys: BTreeMap<_, _> = (fabric.peers.iter())
            .map(|peer| (peer.cluster_id.clone(), super::simulation::key_of(0x51, 0)))
            .collect();

        group.bench_function(BenchmarkId::new("assign indices", &size), |bencher| {
            bencher.iter(|| {
                let mut indices = indices.clone();
                indices.assign(black_box(&fabric));
                indices
            });
        });
        group.bench_function(BenchmarkId::new("tables", &size), |bencher| {
            bencher.iter(|| tables(black_box(&fabric), &indices));
        });
        group.bench_function(BenchmarkId::new("peers", &size), |bencher| {
            bencher.iter(|| peers(black_box(&fabric), &indices, &keys));
        });
    }
    group.finish();
}

fn fabric(nodes: u32, peers: u32) -> Fabric {
    let nodes: Vec<_> = (0..nodes).map(node).collect();
    let of_nodes = nodes.iter().map(|node| MappedIp {
        name: format!("node-{}", node.name),
        namespace: String::new(),
        spec_ip: node.internal_ip,
        status_ip: node.external_ip,
        masquerade: false,
        target: Target::Node(node.name.clone()),
    });
    let outside = (0..peers).map(|number| MappedIp {
        name: format!("outside-{number:05}"),
        namespace: String::new(),
        spec_ip: Ipv4Addr::from_bits(0xcb00_7100 + number),
        status_ip: Ipv4Addr::from_bits(0x0a46_8000 + number),
        masquerade: false,
        target: Target::Outside,
    });

    Fabric {
        cluster_id: "home".to_owned(),
        pod_cidrs: vec![cidr(0x0a80_0000, 9)],
        service_cidrs: vec![cidr(0x0a60_0000, 12)],
        external_cidr: cidr(0x0a46_0000, 16),
        ips: of_nodes.chain(outside).collect(),
        nodes: nodes.into(),
        replicas: Vec::new(),
        peers: (0..peers).map(peer).collect(),
    }
}

fn node(number: u32) -> Node {
    Node {
        name: format!("node-{number:05}"),
        internal_ip: Ipv4Addr::from_bits(0xc0a8_0001 + number),
        pod_cidrs: vec![cidr(0x0a80_0000 + number * 256, 24)],
        external_ip: Ipv4Addr::from_bits(0x0a46_0001 + number),
        ready: true,
    }
}

fn peer(number: u32) -> Peer {
    let remap = |prefix: u32| {
        let from = cidr(0x0af4_0000 + prefix * 256, 24);
        let to = cidr(0x1400_0000 + (number * PREFIXES + prefix) * 256, 24);
        Remap::new(from, to).expect("both prefixes have 24 bits")
    };

    Peer {
        cluster_id: format!("cluster-{number:05}"),
        pods: (0..PREFIXES).map(remap).collect(),
        external: Vec::new(),
        role: Role::Server { port: 51_840 },
        mtu: 1_340,
        key_secret: "gw".to_owned(),
        public_key: [7; 32],
        gateway_name: format!("{number:05}"),
    }
}

fn cidr(address: u32, prefix_len: u8) -> Ipv4Net {
    let address = Ipv4Addr::from_bits(address);

    Ipv4Net::new(address, prefix_len).expect("a prefix length")
}
