//! Tests of traffic between nodes and remote pods or nodes.

use crate::fixture::{MILAN, Pair, ROME, SAME, SOON, two};
use std::net::{IpAddr, SocketAddrV4};
use tests::lab::Lab;
use tests::traffic::{ping, tcp, udp};

#[test]
fn a_node_reaches_a_remote_pod_and_gets_replies() {
    let pair = Pair::small();
    let node = pair.lab.cluster(ROME).node(1);
    let server = tcp::Server::start(&pair.milan.netns, SAME, 7000).unwrap();

    tcp::transfer(&node.netns, pair.to_milan(7000), 1 << 20).unwrap();

    assert!(ping::reaches(&node.netns, pair.milan_seen).unwrap());
    let own = pair.lab.mapped(ROME, "node-rome-1").unwrap();
    let seen = pair.lab.seen_from(MILAN, ROME, own).unwrap();
    assert_eq!(server.client_addresses(), [IpAddr::from(seen)]);
}

#[test]
fn every_node_has_its_own_address_towards_remote_pods() {
    let pair = Pair::together();
    let echo = udp::Echo::start(&pair.milan.netns, SAME, 7000).unwrap();

    for node in &pair.lab.cluster(ROME).nodes {
        assert!(udp::is_echoed(&node.netns, pair.to_milan(7000), b"ave"));
    }

    let expected: Vec<IpAddr> = ["node-rome-1", "node-rome-2"]
        .iter()
        .map(|name| {
            let own = pair.lab.mapped(ROME, name).unwrap();
            pair.lab.seen_from(MILAN, ROME, own).unwrap().into()
        })
        .collect();
    let clients: Vec<IpAddr> = echo.clients().iter().map(|client| client.ip()).collect();
    assert_eq!(clients, expected);
}

#[test]
fn a_pod_reaches_a_remote_host_network_pod_at_its_mapped_address() {
    let pair = Pair::together();
    let node = pair.lab.cluster(MILAN).node(2);
    let server = tcp::Server::start(&node.netns, [0, 0, 0, 0], 7000).unwrap();

    let mapped = pair.lab.mapped(MILAN, "node-milan-2").unwrap();
    let seen = pair.lab.seen_from(ROME, MILAN, mapped).unwrap();
    tcp::transfer(&pair.rome.netns, SocketAddrV4::new(seen, 7000), 1 << 20).unwrap();

    assert_eq!(server.client_addresses(), [IpAddr::from(pair.rome_seen)]);
}

#[test]
fn a_server_bound_to_a_nodes_address_is_reached_through_an_ip_object() {
    let mut lab = Lab::build(two(2, 1)).unwrap();
    let node = lab.cluster(MILAN).node(2);
    let (netns, address) = (node.netns.clone(), node.internal_ip);
    lab.map_address(MILAN, "host-pod", address, false).unwrap();
    lab.start().unwrap();
    lab.wait_until_connected(SOON * 4).unwrap();
    let pair = Pair::of(lab);
    let server = tcp::Server::start(&netns, address, 7000).unwrap();

    let mapped = pair.lab.mapped(MILAN, "host-pod").unwrap();
    let seen = pair.lab.seen_from(ROME, MILAN, mapped).unwrap();
    tcp::transfer(&pair.rome.netns, SocketAddrV4::new(seen, 7000), 1 << 20).unwrap();

    assert_eq!(server.client_addresses(), [IpAddr::from(pair.rome_seen)]);
}

#[test]
fn two_nodes_of_two_clusters_reach_each_other() {
    let pair = Pair::small();
    let [rome, milan] = [ROME, MILAN].map(|name| pair.lab.cluster(name).node(1));
    let _echo = udp::Echo::start(&milan.netns, [0, 0, 0, 0], 7000).unwrap();

    let mapped = pair.lab.mapped(MILAN, "node-milan-1").unwrap();
    let seen = pair.lab.seen_from(ROME, MILAN, mapped).unwrap();

    assert!(ping::reaches(&rome.netns, seen).unwrap());
    assert!(udp::is_echoed(
        &rome.netns,
        SocketAddrV4::new(seen, 7000),
        b"ave"
    ));
}
