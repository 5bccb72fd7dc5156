//! Tests of clusters with the same pod CIDR.

use crate::fixture::{Pair, SAME, assert_nothing_broken, without_offloads};
use std::net::IpAddr;
use std::time::Duration;
use tests::packet::Direction;
use tests::traffic::capture::Capture;
use tests::traffic::{checksum, ping, tcp, udp};

#[test]
fn pods_with_the_same_address_exchange_tcp_in_both_directions() {
    let pair = Pair::small();
    let in_milan = tcp::Server::start(&pair.milan.netns, SAME, 7000).unwrap();
    let in_rome = tcp::Server::start(&pair.rome.netns, SAME, 7000).unwrap();

    tcp::transfer(&pair.rome.netns, pair.to_milan(7000), 5 << 20).unwrap();
    tcp::transfer(&pair.milan.netns, pair.to_rome(7000), 5 << 20).unwrap();

    assert_eq!(in_milan.client_addresses(), [IpAddr::from(pair.rome_seen)]);
    assert_eq!(in_rome.client_addresses(), [IpAddr::from(pair.milan_seen)]);
    assert_nothing_broken(&pair.lab, &[&pair.rome, &pair.milan]);
}

#[test]
fn pods_with_the_same_address_exchange_udp_and_icmp_in_both_directions() {
    let pair = Pair::small();
    let in_milan = udp::Echo::start(&pair.milan.netns, SAME, 7000).unwrap();
    let in_rome = udp::Echo::start(&pair.rome.netns, SAME, 7000).unwrap();

    assert!(udp::is_echoed(
        &pair.rome.netns,
        pair.to_milan(7000),
        b"ave"
    ));
    assert!(udp::is_echoed(
        &pair.milan.netns,
        pair.to_rome(7000),
        b"ave"
    ));
    assert!(ping::reaches(&pair.rome.netns, pair.milan_seen).unwrap());
    assert!(ping::reaches(&pair.milan.netns, pair.rome_seen).unwrap());

    assert_eq!(in_milan.clients()[0].ip(), IpAddr::from(pair.rome_seen));
    assert_eq!(in_rome.clients()[0].ip(), IpAddr::from(pair.milan_seen));
    assert_nothing_broken(&pair.lab, &[&pair.rome, &pair.milan]);
}

#[test]
fn each_cluster_remaps_the_other_to_a_prefix_of_its_own() {
    let pair = Pair::small();

    let own = &pair.lab.cluster("rome").spec.pod_cidrs[0];

    assert!(!own.contains(&pair.milan_seen), "{}", pair.milan_seen);
    assert!(!own.contains(&pair.rome_seen), "{}", pair.rome_seen);
    let host_part = |address: std::net::Ipv4Addr| address.to_bits() & own.hostmask().to_bits();
    assert_eq!(host_part(pair.milan_seen), host_part(SAME));
    assert_eq!(host_part(pair.rome_seen), host_part(SAME));
    let echo = udp::Echo::start(&pair.milan.netns, SAME, 7000).unwrap();
    assert!(udp::is_echoed(
        &pair.rome.netns,
        pair.to_milan(7000),
        b"ave"
    ));
    assert_eq!(echo.clients()[0].ip(), IpAddr::from(pair.rome_seen));
}

#[test]
fn every_received_packet_has_correct_checksums() {
    let pair = Pair::small();
    let mut captures = Vec::new();
    for pod in [&pair.rome, &pair.milan] {
        without_offloads(&pair.lab, pod);
        captures.push(Capture::packets(&pod.netns, "eth0", |_| true).unwrap());
    }
    let server = tcp::Server::start(&pair.milan.netns, SAME, 7000).unwrap();
    let _echo = udp::Echo::start(&pair.milan.netns, SAME, 7001).unwrap();

    tcp::transfer(&pair.rome.netns, pair.to_milan(7000), 2 << 20).unwrap();
    for size in [0, 1, 2, 17, 1000, 1200, 5000] {
        let payload = vec![7; size];
        assert!(udp::is_echoed(
            &pair.rome.netns,
            pair.to_milan(7001),
            &payload
        ));
    }
    assert!(ping::reaches(&pair.rome.netns, pair.milan_seen).unwrap());
    // The port is closed, so milan's pod sends an ICMP error that quotes the packet.
    let second = Duration::from_secs(1);
    udp::exchange(&pair.rome.netns, pair.to_milan(9), b"?", second).unwrap_err();

    for (capture, least) in captures.into_iter().zip([50, 500]) {
        let frames = capture.finish().unwrap();
        let arrived: Vec<_> = frames
            .iter()
            .filter(|frame| frame.direction == Direction::In)
            .filter_map(|frame| frame.ipv4())
            .collect();
        assert!(arrived.len() > least, "only {} arrived", arrived.len());
        for packet in arrived {
            let faults = checksum::faults(&packet);
            assert!(faults.is_empty(), "{faults:?} in {packet:?}");
        }
    }
    assert_eq!(server.received(), 2 << 20);
    assert_nothing_broken(&pair.lab, &[&pair.rome, &pair.milan]);
}
