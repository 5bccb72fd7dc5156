//! Fixtures for unit tests: the desired state of a cluster, network namespaces, and a simulated
//! gateway.

use control_fabric::{Fabric, MappedIp, Node, Peer, Replica, Role, Target};
use ipam::Remap;
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

pub(crate) mod gateway;
pub(crate) mod netns;

pub(crate) use netns::{Namespace, eventually, in_netns, run};

/// Returns the content of a fabric file, which describes the cluster of [`fabric`] with only one
/// peer.
pub(crate) fn fabric_file() -> String {
    let mut objects = control_fabric::parse(include_str!("testing/fabric.yaml")).unwrap();
    control_fabric::plan(&mut objects).unwrap();

    objects.to_yaml()
}

/// Returns the desired state of a cluster with two nodes, two gateway replicas and two peers.
pub(crate) fn fabric() -> Fabric {
    Fabric {
        cluster_id: "rome".into(),
        pod_cidrs: vec![net("10.244.0.0/16")],
        service_cidrs: vec![net("10.96.0.0/12")],
        external_cidr: net("10.70.0.0/16"),
        nodes: vec![node("rome-1", 1), node("rome-2", 2)].into(),
        replicas: vec![
            replica("gw-1", "172.16.0.11"),
            replica("gw-2", "172.16.0.12"),
        ],
        peers: vec![
            peer("milan", "10.245.0.0/16", "10.71.0.0/16"),
            peer("turin", "10.246.0.0/16", "10.72.0.0/16"),
        ]
        .into(),
        ips: vec![].into(),
    }
}

/// Creates a node; `number` is the last octet of its InternalIP.
pub(crate) fn node(name: &str, number: u8) -> Node {
    Node {
        name: name.into(),
        internal_ip: Ipv4Addr::new(172, 16, 0, number),
        pod_cidrs: vec![net(&format!("10.244.{number}.0/24"))],
        external_ip: Ipv4Addr::new(10, 70, 0, number),
        ready: true,
    }
}

/// Creates a gateway replica on the node rome-1.
pub(crate) fn replica(name: &str, address: &str) -> Replica {
    Replica {
        name: name.into(),
        address: ip(address),
        node: "rome-1".into(),
        ready: true,
    }
}

/// Creates a peer with the remapped pod CIDR `pods` and the remapped external CIDR `external`.
pub(crate) fn peer(cluster_id: &str, pods: &str, external: &str) -> Peer {
    Peer {
        cluster_id: cluster_id.into(),
        pods: vec![remap("10.244.0.0/16", pods)],
        external: vec![remap("10.70.0.0/16", external)],
        role: Role::Server { port: 51840 },
        mtu: 1340,
        key_secret: format!("gw-{cluster_id}"),
        public_key: [7; 32],
        gateway_name: cluster_id.into(),
    }
}

pub(crate) fn mapped(spec_ip: &str, status_ip: &str, target: Target) -> MappedIp {
    MappedIp {
        name: spec_ip.into(),
        namespace: String::new(),
        spec_ip: ip(spec_ip),
        status_ip: ip(status_ip),
        masquerade: false,
        target,
    }
}

pub(crate) fn net(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}

pub(crate) fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn remap(from: &str, to: &str) -> Remap {
    Remap::new(net(from), net(to)).unwrap()
}
