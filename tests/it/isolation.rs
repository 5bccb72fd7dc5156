//! Tests that packets neither leak out of the tunnel nor can be injected into it.

use crate::fixture::{MILAN, Pair, ROME, SAME, SOON, eventually, gateway_drops, two};
use ebpf_common::settings::{GATEWAY_MAC, NODE_MAC, OVERLAY_PORT, OVERLAY_VNI};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;
use tests::lab::Lab;
use tests::lab::netns::Netns;
use tests::lab::status::{self, serving_replicas};
use tests::traffic::capture::Capture;
use tests::traffic::frame::{udp_frame, vxlan_header};
use tests::traffic::ping::Ping;
use tests::traffic::{ping, tcp, udp};

#[test]
fn without_a_live_gateway_packets_are_refused_and_none_leaks() {
    let mut pair = Pair::together();
    let leaks = leak_captures(&pair.lab, pair.milan_seen);
    assert!(ping::reaches(&pair.rome.netns, pair.milan_seen).unwrap());

    for number in [1, 2] {
        pair.lab.gateway(ROME, number).kill().unwrap();
    }
    eventually("the node to remove its gateways", || {
        Ok(serving_replicas(&pair.lab.agent_status(ROME, 1)?).is_empty())
    });
    assert_refused(&pair);

    for leak in leaks {
        assert_eq!(leak.finish().unwrap().len(), 0, "packets left in the clear");
    }
}

#[test]
fn a_node_whose_gateways_never_ran_refuses_packets() {
    let mut lab = Lab::build(two(1, 1)).unwrap();
    lab.write_fabrics().unwrap();
    lab.start_agent(ROME, 1).unwrap();
    let pair = Pair::of(lab);
    let leaks = leak_captures(&pair.lab, pair.milan_seen);
    eventually("the route agent to install its routes", || {
        let report = Ping::default().run(&pair.rome.netns, pair.milan_seen)?;
        Ok(report.text.contains("Unreachable"))
    });

    assert_refused(&pair);

    let after: usize = leaks
        .into_iter()
        .map(|leak| {
            // Only UDP packets count as leaks, because the pings began before the route agent was
            // ready.
            leak.finish()
                .unwrap()
                .iter()
                .filter(|frame| frame.ipv4().is_some_and(|packet| packet.udp().is_some()))
                .count()
        })
        .sum();
    assert_eq!(after, 0, "packets left in the clear");
}

#[test]
fn a_removed_peer_is_unreachable_during_and_after_its_removal() {
    let mut pair = Pair::small();
    assert!(ping::reaches(&pair.rome.netns, pair.milan_seen).unwrap());

    pair.lab.remove_peering(ROME, MILAN).unwrap();
    pair.lab.write_fabrics().unwrap();

    eventually("milan to be unreachable", || {
        Ok(!ping::reaches(&pair.rome.netns, pair.milan_seen)?)
    });
    eventually("the route agent to remove the peer", || {
        let status = pair.lab.agent_status(ROME, 1)?;
        Ok(status["peers"].as_array().is_none_or(Vec::is_empty))
    });
}

#[test]
fn vxlan_from_unknown_sources_is_dropped_and_counted_by_nodes() {
    let mut pair = Pair::together();
    let unknown = pair.lab.add_pod(ROME, 2, [10, 244, 2, 66]).unwrap();
    let host = pair.lab.add_host().unwrap();
    let echo = udp::Echo::start(&pair.rome.netns, SAME, 7000).unwrap();
    let node = pair.lab.cluster(ROME).node(1).internal_ip;
    let before = agent_drops(&pair.lab);

    let forged = vxlan(
        [GATEWAY_MAC, NODE_MAC],
        SocketAddrV4::new(pair.milan_seen, 7000),
        SocketAddrV4::new(SAME, 7000),
    );
    for from in [&unknown.netns, &host.netns] {
        send(from, Ipv4Addr::UNSPECIFIED, node, &forged);
    }

    eventually("both packets to be counted", || {
        Ok(agent_drops(&pair.lab) >= before + 2)
    });
    assert!(echo.clients().is_empty(), "{:?}", echo.clients());
}

#[test]
fn vxlan_from_unknown_sources_is_dropped_and_counted_by_gateways() {
    let mut pair = Pair::small();
    let unknown = pair.lab.add_pod(ROME, 1, [10, 244, 1, 66]).unwrap();
    let echo = udp::Echo::start(&pair.milan.netns, SAME, 7000).unwrap();
    let gateway = pair.lab.cluster(ROME).gateway(1).pod.address;

    let forged = vxlan(
        [NODE_MAC, GATEWAY_MAC],
        SocketAddrV4::new(SAME, 7000),
        pair.to_milan(7000),
    );
    let edge = &pair.lab.cluster(ROME).edge;
    for from in [&unknown.netns, edge] {
        send(from, Ipv4Addr::UNSPECIFIED, gateway, &forged);
    }

    eventually("both packets to be counted", || {
        Ok(gateway_drops(&pair.lab, ROME, "overlay_unknown_node") >= 2)
    });
    assert!(echo.clients().is_empty(), "{:?}", echo.clients());
}

#[test]
fn a_node_cannot_send_from_the_sources_of_other_networks() {
    let pair = Pair::small();
    let echo = udp::Echo::start(&pair.milan.netns, SAME, 7000).unwrap();
    let gateway = pair.lab.cluster(ROME).gateway(1).pod.address;
    let node = pair.lab.cluster(ROME).node(1);

    let forged = vxlan(
        [NODE_MAC, GATEWAY_MAC],
        "198.51.100.7:7000".parse().unwrap(),
        pair.to_milan(7000),
    );
    send(&node.netns, node.internal_ip, gateway, &forged);

    eventually("the drop to be counted", || {
        Ok(gateway_drops(&pair.lab, ROME, "overlay_unknown_source") >= 1)
    });
    assert!(echo.clients().is_empty(), "{:?}", echo.clients());
}

#[test]
fn dropped_packets_are_logged_with_the_reason_on_request() {
    let mut pair = Pair::small();
    let target = pair.to_milan(7000);
    let gateway = pair.lab.gateway(ROME, 1);
    gateway.push_arg("--log-drops");
    gateway.restart().unwrap();
    pair.lab.wait_until_connected(SOON).unwrap();
    let address = pair.lab.cluster(ROME).gateway(1).pod.address;
    let node = pair.lab.cluster(ROME).node(1);
    let (netns, node) = (node.netns.clone(), node.internal_ip);

    let forged = vxlan(
        [NODE_MAC, GATEWAY_MAC],
        "198.51.100.7:7000".parse().unwrap(),
        target,
    );
    send(&netns, node, address, &forged);

    eventually("the forged packet in the log", || {
        let log = pair.lab.gateway(ROME, 1).log();
        let is_logged = |line: &str| {
            line.contains("dropped a packet")
                && line.contains("overlay_unknown_source")
                && line.contains("198.51.100.7")
        };
        Ok(log.lines().any(is_logged))
    });
}

#[test]
fn nothing_crosses_the_underlay_in_the_clear() {
    let pair = Pair::small();
    let core = pair.lab.underlay().core();
    let wire = Capture::packets(core, "to-milan", |_| true).unwrap();
    let server = tcp::Server::start(&pair.milan.netns, SAME, 7000).unwrap();

    tcp::transfer(&pair.rome.netns, pair.to_milan(7000), 1 << 20).unwrap();

    assert_eq!(server.received(), 1 << 20);
    let frames = wire.finish().unwrap();
    assert!(frames.len() > 10, "only {} frames", frames.len());
    // The payload consists of consecutive 8-byte numbers, and `plain` is two of them. A single number
    // could occur by chance: the six zero bytes of a message counter and two bytes of ciphertext.
    let plain = [50_000_u64, 50_001].map(u64::to_be_bytes).concat();
    for frame in &frames {
        let packet = frame.ipv4().unwrap();
        assert_eq!(packet.protocol(), 17, "{packet:?}");
        assert!(
            !frame
                .bytes
                .windows(plain.len())
                .any(|window| window == plain),
            "payload in the clear"
        );
    }
}

/// Asserts that rome's pod and node get ICMP errors for packets to milan.
fn assert_refused(pair: &Pair) {
    // The kernel sends five ICMP errors at once to each source, then one per second (`ip_error` in
    // `net/ipv4/route.c`). The kernel drops further packets without an error.
    for netns in [&pair.rome.netns, &pair.lab.cluster(ROME).node(1).netns] {
        eventually("a datagram to be refused", || {
            let wait = Duration::from_millis(500);
            let reply = udp::exchange(netns, pair.to_milan(7000), b"?", wait);
            let error = reply.expect_err("milan is unreachable");
            Ok(matches!(
                error.kind(),
                std::io::ErrorKind::HostUnreachable | std::io::ErrorKind::NetworkUnreachable
            ))
        });
    }
    let ping = Ping {
        interval: Some(Duration::from_millis(1100)),
        ..Ping::default()
    };
    let report = ping.run(&pair.rome.netns, pair.milan_seen).unwrap();
    assert!(
        report.text.contains("Unreachable"),
        "{}{}",
        report.text,
        routes(pair)
    );
}

/// Returns the route to milan on rome's first node, and the status of the node's route agent.
fn routes(pair: &Pair) -> String {
    let netns = &pair.lab.cluster(ROME).node(1).netns;
    let to = pair.milan_seen.to_string();
    let get = netns.output("ip", &["route", "get", &to], "").unwrap();
    let nexthops = netns.output("ip", &["nexthop"], "").unwrap();
    let [get, nexthops] =
        [get, nexthops].map(|it| String::from_utf8_lossy(&it.stdout).into_owned());

    format!(
        "{get}{nexthops}{:#}",
        pair.lab.agent_status(ROME, 1).unwrap()
    )
}

/// Captures packets to `address` on the uplinks of rome's nodes.
fn leak_captures(lab: &Lab, address: Ipv4Addr) -> Vec<Capture> {
    lab.cluster(ROME)
        .nodes
        .iter()
        .map(|node| {
            Capture::packets(&node.netns, "eth0", move |packet| {
                packet.destination() == address
            })
            .unwrap()
        })
        .collect()
}

/// Returns the number of packets that the route agent of rome's first node reports as dropped.
fn agent_drops(lab: &Lab) -> u64 {
    let status = lab.agent_status(ROME, 1).unwrap();
    status::all_drops(&status)
}

/// Builds the UDP payload of a VXLAN packet, with an inner UDP datagram.
fn vxlan(macs: [[u8; 6]; 2], source: SocketAddrV4, destination: SocketAddrV4) -> Vec<u8> {
    let inner = udp_frame(macs, source, destination, b"forged");
    [&vxlan_header(OVERLAY_VNI)[..], &inner].concat()
}

fn send(netns: &Netns, source: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) {
    netns.run(|| {
        let socket = UdpSocket::bind((source, 0)).unwrap();
        socket.send_to(payload, (to, OVERLAY_PORT)).unwrap();
    });
}
