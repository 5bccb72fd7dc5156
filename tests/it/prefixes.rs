//! Tests of pod CIDRs and of single addresses, with and without remapping.

use crate::fixture::{MILAN, ROME, SAME, SOON};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use tests::lab::Lab;
use tests::lab::spec::{ClusterSpec, Spec};
use tests::traffic::{tcp, udp};

#[test]
fn every_pod_cidr_of_a_cluster_is_reachable() {
    let cidrs = ["10.244.0.0/16", "10.200.0.0/16", "192.168.7.0/24"];
    let milan = ClusterSpec::new(MILAN).pod_cidrs(cidrs.map(|cidr| cidr.parse().unwrap()));
    let spec = Spec::new()
        .cluster(ClusterSpec::new(ROME))
        .cluster(milan)
        .peering(ROME, MILAN);
    let mut lab = Lab::up(spec).unwrap();
    let rome = lab.add_pod(ROME, 1, SAME).unwrap();

    for address in ["10.244.1.10", "10.200.1.10", "192.168.7.70"] {
        let address: Ipv4Addr = address.parse().unwrap();
        let pod = lab.add_pod(MILAN, 1, address).unwrap();
        let _echo = udp::Echo::start(&pod.netns, address, 7000).unwrap();
        let seen = lab.seen_from(ROME, MILAN, address).unwrap();

        assert!(
            udp::is_echoed(&rome.netns, SocketAddrV4::new(seen, 7000), b"ave"),
            "{address} as {seen}"
        );
    }
}

#[test]
fn a_small_cidr_in_use_is_remapped_into_a_pool() {
    let cidr = "192.168.7.0/24".parse().unwrap();
    let cluster = |name| ClusterSpec::new(name).pod_cidrs([cidr]);
    let spec = Spec::new()
        .cluster(cluster(ROME))
        .cluster(cluster(MILAN))
        .peering(ROME, MILAN);
    let mut lab = Lab::up(spec).unwrap();
    let address = Ipv4Addr::new(192, 168, 7, 70);
    let rome = lab.add_pod(ROME, 1, address).unwrap();
    let milan = lab.add_pod(MILAN, 1, address).unwrap();
    let server = tcp::Server::start(&milan.netns, address, 7000).unwrap();
    let seen = lab.seen_from(ROME, MILAN, address).unwrap();

    tcp::transfer(&rome.netns, SocketAddrV4::new(seen, 7000), 1 << 20).unwrap();

    assert_ne!(seen.octets()[..3], address.octets()[..3]);
    assert_eq!(seen.octets()[3], address.octets()[3]);
    let rome_seen = lab.seen_from(MILAN, ROME, address).unwrap();
    assert_eq!(server.client_addresses(), [IpAddr::from(rome_seen)]);
}

#[test]
fn a_free_cidr_is_not_remapped() {
    let milan = ClusterSpec::new(MILAN).pod_cidrs(["10.150.0.0/16".parse().unwrap()]);
    let spec = Spec::new()
        .cluster(ClusterSpec::new(ROME))
        .cluster(milan)
        .peering(ROME, MILAN);
    let mut lab = Lab::up(spec).unwrap();
    let address = Ipv4Addr::new(10, 150, 1, 10);
    let rome = lab.add_pod(ROME, 1, SAME).unwrap();
    let milan = lab.add_pod(MILAN, 1, address).unwrap();
    let server = tcp::Server::start(&milan.netns, address, 7000).unwrap();

    tcp::transfer(&rome.netns, SocketAddrV4::new(address, 7000), 1 << 20).unwrap();

    assert_eq!(lab.seen_from(ROME, MILAN, address).unwrap(), address);
    assert_eq!(lab.seen_from(MILAN, ROME, SAME).unwrap(), SAME);
    assert_eq!(server.client_addresses(), [IpAddr::from(SAME)]);
}

#[test]
fn an_external_host_is_reached_at_its_mapped_address() {
    let spec = Spec::new()
        .cluster(ClusterSpec::new(ROME))
        .cluster(ClusterSpec::new(MILAN).nodes(2))
        .peering(ROME, MILAN);
    let mut lab = Lab::build(spec).unwrap();
    let host = lab.add_host().unwrap();
    lab.map_address(MILAN, "printer", host.address, true)
        .unwrap();
    lab.start().unwrap();
    lab.wait_until_connected(crate::fixture::SOON * 4).unwrap();
    let rome = lab.add_pod(ROME, 1, SAME).unwrap();
    let server = tcp::Server::start(&host.netns, host.address, 7000).unwrap();

    let mapped = lab.mapped(MILAN, "printer").unwrap();
    let seen = lab.seen_from(ROME, MILAN, mapped).unwrap();
    tcp::transfer(&rome.netns, SocketAddrV4::new(seen, 7000), 1 << 20).unwrap();

    let nodes: Vec<IpAddr> = lab
        .cluster(MILAN)
        .nodes
        .iter()
        .map(|node| node.internal_ip.into())
        .collect();
    let clients = server.client_addresses();
    assert!(
        clients.iter().all(|client| nodes.contains(client)),
        "{clients:?}"
    );
}

#[test]
fn a_pod_is_reached_at_its_own_and_its_mapped_address() {
    let spec = crate::fixture::two(1, 1);
    let mut lab = Lab::build(spec).unwrap();
    lab.map_address(MILAN, "database", SAME, false).unwrap();
    lab.start().unwrap();
    lab.wait_until_connected(SOON * 4).unwrap();
    let rome = lab.add_pod(ROME, 1, SAME).unwrap();
    let milan = lab.add_pod(MILAN, 1, SAME).unwrap();
    let server = tcp::Server::start(&milan.netns, SAME, 7000).unwrap();

    let mapped = lab.mapped(MILAN, "database").unwrap();
    for address in [SAME, mapped] {
        let seen = lab.seen_from(ROME, MILAN, address).unwrap();
        tcp::transfer(&rome.netns, SocketAddrV4::new(seen, 7000), 1 << 20).unwrap();
    }

    let rome_seen = lab.seen_from(MILAN, ROME, SAME).unwrap();
    assert_eq!(server.client_addresses(), [IpAddr::from(rome_seen); 2]);
}
