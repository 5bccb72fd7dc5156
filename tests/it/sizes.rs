//! Tests of large packets, small MTUs, and the ICMP errors about them.

use crate::fixture::{
    MILAN, Pair, ROME, SAME, SOON, assert_nothing_broken, eventually, without_offloads,
};
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;
use tests::fault::mtu;
use tests::lab::link::End;
use tests::lab::spec::{ClusterSpec, Spec};
use tests::lab::{Lab, wait};
use tests::packet::Direction;
use tests::traffic::capture::Capture;
use tests::traffic::ping::Ping;
use tests::traffic::traceroute::{self, Probe};
use tests::traffic::{tcp, udp};

/// Liqo's default MTU of the tunnel. The routes to remote pods have the same MTU.
const TUNNEL_MTU: u16 = 1340;

#[test]
fn large_packets_pass_over_an_underlay_of_1500() {
    large_packets_pass(1500);
}

#[test]
fn large_packets_pass_over_an_underlay_of_1400() {
    large_packets_pass(1400);
}

#[test]
fn large_packets_pass_over_an_underlay_of_1280() {
    large_packets_pass(1280);
}

fn large_packets_pass(underlay: u32) {
    let cluster = |name| ClusterSpec::new(name).uplink_mtu(underlay);
    let spec = Spec::new()
        .cluster(cluster(ROME))
        .cluster(cluster(MILAN))
        .peering(ROME, MILAN);
    let pair = Pair::up(spec);
    let server = tcp::Server::start(&pair.milan.netns, SAME, 7000).unwrap();
    let _echo = udp::Echo::start(&pair.milan.netns, SAME, 7001).unwrap();

    let outcome = tcp::transfer(&pair.rome.netns, pair.to_milan(7000), 10 << 20).unwrap();
    assert_eq!(outcome.bytes, server.received());
    for size in [1400, 9000, udp::DATAGRAM_MAX] {
        let payload: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
        // The first datagram may be lost, because it causes the discovery of the MTU.
        eventually(&format!("{size} bytes to pass over {underlay}"), || {
            let to = pair.to_milan(7001);
            Ok(udp::is_echoed(&pair.rome.netns, to, &payload))
        });
    }
    let ping = Ping {
        size: 65_507,
        // Several requests at a time would exceed the receive buffer of the socket.
        interval: Some(Duration::from_millis(500)),
        ..Ping::default()
    };
    let report = ping.run(&pair.rome.netns, pair.milan_seen).unwrap();
    assert!(report.is_complete(), "{}", report.text);
    assert_nothing_broken(&pair.lab, &[&pair.rome, &pair.milan]);
}

#[test]
fn tcp_survives_a_smaller_mtu_with_icmp_errors() {
    tcp_survives_a_smaller_mtu(false);
}

#[test]
fn tcp_survives_a_smaller_mtu_without_icmp_errors() {
    tcp_survives_a_smaller_mtu(true);
}

fn tcp_survives_a_smaller_mtu(silent: bool) {
    let pair = Pair::small();
    let _server = tcp::Server::start(&pair.milan.netns, SAME, 7000).unwrap();
    let stream = tcp::Stream::start(&pair.rome.netns, pair.to_milan(7000), 2 << 20).unwrap();
    stream.wait_for_progress(SOON).unwrap();

    shrink(&pair.lab, 1280, silent);

    let late = Duration::from_secs(15);
    stream.wait_for_progress(late).unwrap();
    stream.wait_for_progress(late).unwrap();
    stream.finish().unwrap();
    // Routers fragment the gateways' datagrams until the gateways have discovered the path MTU.
    let core = pair.lab.underlay().core();
    wait::until(DISCOVERY, "datagrams without fragmentation", || {
        let fragments = Capture::packets(core, "to-milan", |packet| packet.is_fragment())?;
        tcp::transfer(&pair.rome.netns, pair.to_milan(7000), 1 << 20)?;
        Ok(fragments.finish()?.is_empty())
    })
    .unwrap();
}

/// The time within which the gateways must discover the path MTU. A gateway verifies the path MTU
/// every 5 s, waits for three lost probes, and then searches in three rounds.
pub(crate) const DISCOVERY: Duration = Duration::from_secs(20);

#[test]
fn tcp_segments_are_clamped_to_the_tunnel() {
    let pair = Pair::small();
    without_offloads(&pair.lab, &pair.milan);
    let capture = Capture::packets(&pair.milan.netns, "eth0", |packet| {
        packet.tcp().is_some_and(|tcp| tcp.flags & 2 != 0)
    })
    .unwrap();
    let _server = tcp::Server::start(&pair.milan.netns, SAME, 7000).unwrap();

    tcp::transfer(&pair.rome.netns, pair.to_milan(7000), 1 << 20).unwrap();

    let frames = capture.finish().unwrap();
    let syn = frames
        .iter()
        .find(|frame| frame.direction == Direction::In)
        .unwrap();
    let mss = syn.ipv4().unwrap().tcp().unwrap().mss().unwrap();
    assert!(mss <= TUNNEL_MTU - 40, "the SYN announces {mss}");
    assert!(mss > 1000, "the SYN announces {mss}");
}

#[test]
fn a_packet_larger_than_the_tunnels_mtu_causes_an_icmp_error_with_the_mtu() {
    let pair = Pair::small();
    let ping = Ping {
        count: 2,
        size: 1400,
        dont_fragment: true,
        ..Ping::default()
    };

    let report = ping.run(&pair.rome.netns, pair.milan_seen).unwrap();

    assert_eq!(report.received, 0);
    assert!(
        report.text.contains(&format!("mtu = {TUNNEL_MTU}"))
            || report.text.contains(&format!("mtu={TUNNEL_MTU}")),
        "{}",
        report.text
    );
}

#[test]
fn an_icmp_error_of_a_closed_port_reaches_the_right_socket() {
    let pair = Pair::small();

    let to_milan = udp::exchange(&pair.rome.netns, pair.to_milan(9), b"?", SOON);
    let to_rome = udp::exchange(&pair.milan.netns, pair.to_rome(9), b"?", SOON);

    for outcome in [to_milan, to_rome] {
        assert_eq!(
            outcome.unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
    }
}

#[test]
fn a_smaller_mtu_behind_the_remote_node_is_reported_to_the_sender() {
    let mut pair = Pair::small();
    let far = pair
        .lab
        .add_pod(MILAN, 1, Ipv4Addr::new(10, 244, 1, 99))
        .unwrap();
    let node = pair.lab.cluster(MILAN).node(1);
    let ends = [
        End {
            netns: &node.netns,
            device: &far.node_device,
        },
        End {
            netns: &far.netns,
            device: "eth0",
        },
    ];
    mtu::set(ends, 1000).unwrap();

    let seen = pair.lab.seen_from(ROME, MILAN, far.address).unwrap();
    let ping = Ping {
        size: 1200,
        dont_fragment: true,
        ..Ping::default()
    };
    let report = ping.run(&pair.rome.netns, seen).unwrap();

    assert!(report.text.contains("1000"), "{}", report.text);
}

#[test]
fn a_traceroute_ends_at_the_pod() {
    let pair = Pair::small();
    let _server = tcp::Server::start(&pair.milan.netns, SAME, 7000).unwrap();

    for probe in [Probe::Udp, Probe::Icmp, Probe::Tcp(7000)] {
        let hops = traceroute::hops(&pair.rome.netns, pair.milan_seen, probe).unwrap();

        let own_node = Ipv4Addr::new(10, 244, 1, 1);
        assert_eq!(hops.first(), Some(&Some(own_node)), "{probe:?}: {hops:?}");
        assert_eq!(
            hops.last(),
            Some(&Some(pair.milan_seen)),
            "{probe:?}: {hops:?}"
        );
        assert!(hops.len() <= 5, "{probe:?}: {hops:?}");
        // The first hop is rome's own node. At later hops, an address of the pod CIDR would be an
        // original address of milan, which has the same pod CIDR.
        for hop in hops.iter().flatten().skip(1) {
            let own = pair.lab.cluster(ROME).spec.pod_cidrs[0];
            assert!(!own.contains(hop), "{probe:?}: {hops:?}");
        }
    }
}

/// Reduces the MTU of both clusters' uplinks, and suppresses ICMP errors if `silent` is set.
fn shrink(lab: &Lab, size: u32, silent: bool) {
    let core = lab.underlay().core();
    if silent {
        mtu::silence(core).unwrap();
    }
    for cluster in lab.clusters() {
        if silent {
            mtu::silence(&cluster.edge).unwrap();
        }
        let device = format!("to-{}", cluster.name());
        let ends = [
            End {
                netns: core,
                device: &device,
            },
            End {
                netns: &cluster.edge,
                device: "up",
            },
        ];
        mtu::set(ends, size).unwrap();
    }
}
