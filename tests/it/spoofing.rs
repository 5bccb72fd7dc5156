//! Tests of pods with CAP_NET_RAW that forge the outer addresses of nodes and gateways, and of
//! peers that send packets to the nodes' tunnels.

use crate::fixture::{MILAN, Pair, ROME, SAME, eventually, two};
use anyhow::ensure;
use ebpf_common::settings::{GATEWAY_MAC, NODE_MAC, OVERLAY_PORT, OVERLAY_VNI};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
};
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd as _;
use tests::lab::Lab;
use tests::lab::netns::Netns;
use tests::lab::pod::Pod;
use tests::lab::status;
use tests::packet::PacketSocket;
use tests::traffic::frame::{udp_frame, vxlan_header};
use tests::traffic::{ping, udp};

/// Number of nodes of the attacked cluster. Each node runs one gateway.
const NODES: usize = 2;

/// The UDP port of the pod that is the target of the forged packets.
const TARGET_PORT: u16 = 7000;

#[test]
fn a_pod_cannot_send_to_a_node_as_a_gateway() {
    let mut attack = Attack::up();
    let echo = udp::Echo::start(&attack.pair.rome.netns, SAME, TARGET_PORT).unwrap();
    let inner = Inner {
        macs: [GATEWAY_MAC, NODE_MAC],
        source: attack.pair.to_milan(TARGET_PORT),
        destination: SocketAddrV4::new(SAME, TARGET_PORT),
    };
    let nodes = attack.nodes();

    // The pod at the inner destination address is on the first node.
    for forged in attack.gateways() {
        attack.send(forged, SocketAddrV4::new(nodes[0], OVERLAY_PORT), &inner);
    }

    attack.assert_dropped("outer-reverse-path", 2, &[&echo]);
    attack.assert_genuine_traffic_flows();
}

#[test]
fn a_pod_cannot_send_to_a_gateway_as_a_node() {
    let mut attack = Attack::up();
    let echo = udp::Echo::start(&attack.pair.milan.netns, SAME, TARGET_PORT).unwrap();
    let inner = attack.inner_to_milan();

    for gateway in attack.gateways() {
        for forged in attack.nodes() {
            attack.send(forged, SocketAddrV4::new(gateway, OVERLAY_PORT), &inner);
        }
    }

    attack.assert_dropped("outer-reverse-path", 4, &[&echo]);
    attack.assert_genuine_traffic_flows();
}

#[test]
fn a_service_does_not_lead_forged_packets_to_a_node_or_gateway() {
    let mut attack = Attack::up();
    let [rome, milan] = [&attack.pair.rome.netns, &attack.pair.milan.netns]
        .map(|netns| udp::Echo::start(netns, SAME, TARGET_PORT).unwrap());
    let node = attack.nodes()[0];
    let gateway = attack.gateways()[0];
    let [to_node, to_gateway] = [SERVICE, SERVICE + 1].map(|port| SocketAddrV4::new(node, port));
    attack.install_service(to_node.port(), node);
    attack.install_service(to_gateway.port(), gateway);
    let from_gateway = Inner {
        macs: [GATEWAY_MAC, NODE_MAC],
        source: attack.pair.to_milan(TARGET_PORT),
        destination: SocketAddrV4::new(SAME, TARGET_PORT),
    };
    let from_node = attack.inner_to_milan();

    let forged_node = attack.nodes()[1];
    attack.pods.truncate(1);
    attack.send(gateway, to_node, &from_gateway);
    attack.send(forged_node, to_gateway, &from_node);

    attack.assert_dropped("outer-translated", 2, &[&rome, &milan]);
    attack.assert_genuine_traffic_flows();
}

/// A CNI's tunnel does not authenticate packets, and an overlay frame inside it would pass the
/// reverse path check. The route agent therefore drops packets from peers to tunnels.
#[test]
fn a_peer_cannot_send_to_the_tunnels_of_a_node() {
    let pair = Pair::small();
    let node = &pair.lab.cluster(ROME).node(1).netns;
    let own = pair.lab.mapped(ROME, "node-rome-1").unwrap();
    let seen = pair.lab.seen_from(MILAN, ROME, own).unwrap();
    let drops = || status::drops(&statuses(&pair.lab, 1)[0], "inner-tunnel");
    let before = drops();

    for port in [TARGET_PORT, 4789, 6081, 8472] {
        let _echo = udp::Echo::start(node, [0, 0, 0, 0], port).unwrap();
        let to = SocketAddrV4::new(seen, port);
        let is_echoed = udp::is_echoed(&pair.milan.netns, to, b"forged");
        assert_eq!(is_echoed, port == TARGET_PORT, "port {port}");
    }
    for protocol in [IP_IN_IP, IPV6_IN_IP, GRE] {
        send_raw(&pair.milan.netns, seen, protocol);
    }

    eventually("six drops", || Ok(drops() == before + 6));
}

/// IP protocols of tunnels.
const IP_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;

/// Sends an IPv4 packet of this protocol. The kernel fills in the source address and the checksum.
fn send_raw(netns: &Netns, destination: Ipv4Addr, protocol: u8) {
    const TTL: u8 = 64;

    let mut packet = [0; 40];
    packet[0] = 0x45;
    packet[8..10].copy_from_slice(&[TTL, protocol]);
    packet[16..20].copy_from_slice(&destination.octets());
    let to = SockaddrIn::from(SocketAddrV4::new(destination, 0));
    netns.run(|| {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Raw);
        let socket = socket.unwrap();
        sendto(socket.as_raw_fd(), &packet, &to, MsgFlags::empty()).unwrap();
    });
}

/// UDP port of the first Service. The second Service has the next port.
const SERVICE: u16 = 9000;

/// Two peered clusters, with a hostile pod on each node of rome.
struct Attack {
    pair: Pair,
    pods: Vec<Pod>,
    /// The status of each node's route agent before the attack.
    before: Vec<Value>,
}

/// The inner packet of a forged VXLAN packet.
struct Inner {
    /// Source and destination, in this order.
    macs: [[u8; 6]; 2],
    source: SocketAddrV4,
    destination: SocketAddrV4,
}

impl Attack {
    fn up() -> Self {
        let mut pair = Pair::up(two(NODES, NODES));
        let pods = [(1, [10, 244, 1, 66]), (2, [10, 244, 2, 66])]
            .map(|(node, address)| pair.lab.add_pod(ROME, node, address).unwrap());
        let before = statuses(&pair.lab, NODES);

        Self {
            pair,
            pods: pods.into(),
            before,
        }
    }

    fn nodes(&self) -> Vec<Ipv4Addr> {
        let nodes = self.pair.lab.cluster(ROME).nodes.iter();
        nodes.map(|node| node.internal_ip).collect()
    }

    fn gateways(&self) -> Vec<Ipv4Addr> {
        let gateways = self.pair.lab.cluster(ROME).gateways.iter();
        gateways.map(|gateway| gateway.pod.address).collect()
    }

    /// Returns an inner packet from rome's pod to milan's pod. The MAC addresses are those of
    /// packets from a node to a gateway.
    fn inner_to_milan(&self) -> Inner {
        Inner {
            macs: [NODE_MAC, GATEWAY_MAC],
            source: SocketAddrV4::new(SAME, TARGET_PORT),
            destination: self.pair.to_milan(TARGET_PORT),
        }
    }

    /// Sends an overlay frame with a forged outer source from every hostile pod.
    fn send(&mut self, forged: Ipv4Addr, to: SocketAddrV4, inner: &Inner) {
        let frame = udp_frame(inner.macs, inner.source, inner.destination, b"forged");
        let payload = [&vxlan_header(OVERLAY_VNI)[..], &frame].concat();
        for pod in &self.pods {
            let nodes = &self.pair.lab.cluster(ROME).nodes;
            let node = nodes.iter().find(|node| node.name == pod.node).unwrap();
            let router = PacketSocket::open(&node.netns, &pod.node_device).unwrap();
            let socket = PacketSocket::open(&pod.netns, "eth0").unwrap();
            let source = SocketAddrV4::new(forged, OVERLAY_PORT);
            let outer = udp_frame([socket.mac(), router.mac()], source, to, &payload);
            assert!(socket.send(&outer).unwrap());
        }
    }

    /// Translates a port of the first node to the overlay port of `endpoint`, as kube-proxy does
    /// for a Service.
    fn install_service(&self, port: u16, endpoint: Ipv4Addr) {
        let node = &self.pair.lab.cluster(ROME).node(1).netns;
        let ruleset = format!(
            "table inet service-{port} {{
                chain prerouting {{
                    type nat hook prerouting priority -100; policy accept;
                    udp dport {port} dnat ip to {endpoint}:{OVERLAY_PORT}
                }}
            }}"
        );
        node.exec("nft", &["-f", "-"], &ruleset).unwrap();
    }

    /// Waits until the node of each hostile pod has counted `expected` more drops, and asserts that
    /// no forged packet has reached `targets`.
    fn assert_dropped(&self, reason: &str, expected: u64, targets: &[&udp::Echo]) {
        let drops = |status: &Value| status::drops(status, reason);
        eventually(
            &format!("{expected} drops by {reason} on each node"),
            || {
                let arrived: Vec<_> = targets.iter().flat_map(|it| it.clients()).collect();
                ensure!(arrived.is_empty(), "forged packets arrived: {arrived:?}");
                let after = statuses(&self.pair.lab, NODES);
                let mut counted = after.iter().zip(&self.before).take(self.pods.len());
                Ok(counted.all(|(after, before)| drops(after) == drops(before) + expected))
            },
        );
    }

    fn assert_genuine_traffic_flows(&self) {
        let Pair { rome, milan, .. } = &self.pair;
        for (pod, seen) in [(rome, self.pair.milan_seen), (milan, self.pair.rome_seen)] {
            assert!(
                ping::reaches(&pod.netns, seen).unwrap(),
                "{} to {seen}",
                pod.name
            );
        }
        for pod in &self.pods {
            let seen = self.pair.lab.seen_from(ROME, MILAN, SAME).unwrap();
            assert!(
                ping::reaches(&pod.netns, seen).unwrap(),
                "{} to {seen}",
                pod.name
            );
        }
    }
}

/// Returns the status of the route agent on each of the first `nodes` nodes of rome.
fn statuses(lab: &Lab, nodes: usize) -> Vec<Value> {
    (1..=nodes)
        .map(|node| lab.agent_status(ROME, node).unwrap())
        .collect()
}
