//! Tests of several peers with the same addresses at one gateway.

use crate::fixture::{MILAN, PARIS, ROME, SAME, SOON, eventually};
use std::net::{IpAddr, SocketAddrV4};
use std::time::Duration;
use tests::lab::Lab;
use tests::lab::pod::Pod;
use tests::lab::spec::{ClusterSpec, PeeringSpec, Spec};
use tests::traffic::{ping, tcp, udp};

const OSLO: &str = "oslo";

#[test]
fn three_clusters_with_the_same_addresses_reach_each_other() {
    let names = [ROME, MILAN, PARIS];
    let mut lab = Lab::up(all_peer(&names)).unwrap();
    let pods: Vec<Pod> = names
        .iter()
        .map(|name| lab.add_pod(name, 1, SAME).unwrap())
        .collect();
    let servers: Vec<tcp::Server> = pods
        .iter()
        .map(|pod| tcp::Server::start(&pod.netns, SAME, 7000).unwrap())
        .collect();

    for from in &pods {
        for to in pods.iter().filter(|to| to.cluster != from.cluster) {
            let seen = lab.seen_from(&from.cluster, &to.cluster, SAME).unwrap();
            tcp::transfer(&from.netns, SocketAddrV4::new(seen, 7000), 1 << 20).unwrap();
            assert!(ping::reaches(&from.netns, seen).unwrap());
        }
    }

    for (pod, server) in pods.iter().zip(&servers) {
        let mut clients = server.client_addresses();
        let mut expected: Vec<IpAddr> = names
            .iter()
            .filter(|name| **name != pod.cluster)
            .map(|name| lab.seen_from(&pod.cluster, name, SAME).unwrap().into())
            .collect();
        clients.sort_unstable();
        expected.sort_unstable();
        assert_eq!(clients, expected, "at {}", pod.cluster);
    }
}

#[test]
fn adding_and_removing_a_peer_does_not_disturb_another() {
    let mut lab = Lab::up(all_peer(&[ROME, MILAN, PARIS])).unwrap();
    let rome = lab.add_pod(ROME, 1, SAME).unwrap();
    let milan = lab.add_pod(MILAN, 1, SAME).unwrap();
    let server = tcp::Server::start(&milan.netns, SAME, 7000).unwrap();
    let seen = lab.seen_from(ROME, MILAN, SAME).unwrap();
    let to = SocketAddrV4::new(seen, 7000);
    let stream = tcp::Stream::start(&rome.netns, to, 4 << 20).unwrap();
    stream.wait_for_progress(SOON).unwrap();

    lab.add_cluster(ClusterSpec::new(OSLO)).unwrap();
    lab.add_peering(PeeringSpec::new(ROME, OSLO)).unwrap();
    lab.start().unwrap();
    lab.wait_until_connected(Duration::from_secs(20)).unwrap();
    let oslo = lab.add_pod(OSLO, 1, SAME).unwrap();
    let echo = udp::Echo::start(&oslo.netns, SAME, 7000).unwrap();
    let oslo_seen = lab.seen_from(ROME, OSLO, SAME).unwrap();
    let to_oslo = SocketAddrV4::new(oslo_seen, 7000);
    eventually("a reply of the fourth cluster", || {
        Ok(udp::is_echoed(&rome.netns, to_oslo, b"hei"))
    });
    lab.remove_peering(ROME, OSLO).unwrap();
    lab.write_fabrics().unwrap();
    eventually("the fourth cluster to be unreachable", || {
        Ok(!udp::is_echoed(&rome.netns, to_oslo, b"hei"))
    });
    stream.wait_for_progress(SOON).unwrap();

    let outcome = stream.finish().unwrap();
    assert!(outcome.longest_gap < Duration::from_secs(1), "{outcome:?}");
    assert_eq!(server.clients().len(), 1);
    assert!(!echo.clients().is_empty());
}

/// Specifies clusters with one node and one gateway each, and a peering between each two clusters.
fn all_peer(names: &[&str]) -> Spec {
    let mut spec = Spec::new();
    for (index, name) in names.iter().enumerate() {
        spec = spec.cluster(ClusterSpec::new(name));
        for earlier in &names[..index] {
            spec = spec.peering(earlier, name);
        }
    }

    spec
}
