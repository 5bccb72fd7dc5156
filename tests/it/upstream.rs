//! Tests of peers with upstream Liqo's gateway or with plain `wireguard-go`.

use crate::fixture::{MILAN, Pair, ROME, SAME, SOON, eventually, gateway_drops, two};
use crate::services::{self, KubeProxy};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::time::Duration;
use tests::lab::fabric::{Remote, Role};
use tests::lab::spec::{ClusterSpec, GATEWAY_PORT, Spec};
use tests::lab::{Lab, wait};
use tests::traffic::{ping, tcp, udp};
use tests::upstream::{Setting, Upstream};

const VENICE: &str = "venice";

/// The original address of venice's pod. All clusters have the same pod CIDR.
const VENICE_POD: Ipv4Addr = Ipv4Addr::new(10, 244, 9, 9);

#[test]
fn our_client_connects_to_an_upstream_server() {
    let clusters = Clusters::up(two(1, 1), Side::Server);

    clusters.assert_connected();
    // Rome still has a session with milan, whose gateway is this project's own.
    assert!(ping::reaches(&clusters.pair.rome.netns, clusters.pair.milan_seen).unwrap());
}

#[test]
fn an_upstream_client_connects_to_our_server() {
    let clusters = Clusters::up(two(1, 1), Side::Client);

    clusters.assert_connected();
    assert!(ping::reaches(&clusters.pair.rome.netns, clusters.pair.milan_seen).unwrap());
}

#[test]
fn an_upstream_client_is_served_by_one_of_two_replicas() {
    let clusters = Clusters::up(two(2, 2), Side::Client);

    clusters.assert_connected();
}

#[test]
fn an_upstream_client_is_served_by_a_gateway_of_several_lanes() {
    let clusters = Clusters::up(with_lanes(two(2, 2), 3), Side::Client);

    clusters.assert_connected();
    clusters.assert_all_flows_use_the_session();
    assert!(ping::reaches(&clusters.pair.rome.netns, clusters.pair.milan_seen).unwrap());
}

#[test]
fn a_gateway_of_several_lanes_connects_to_an_upstream_server() {
    let clusters = Clusters::up(with_lanes(two(2, 2), 3), Side::Server);

    clusters.assert_connected();
    clusters.assert_all_flows_use_the_session();
    assert!(ping::reaches(&clusters.pair.rome.netns, clusters.pair.milan_seen).unwrap());
}

fn with_lanes(mut spec: Spec, lanes: u8) -> Spec {
    for cluster in &mut spec.clusters {
        cluster.lanes = lanes;
    }
    spec
}

#[test]
fn a_lost_session_is_replaced_by_a_new_handshake() {
    let clusters = Clusters::up(two(1, 1), Side::Client);
    clusters.assert_connected();
    let key = clusters.pair.lab.public_key(ROME, VENICE).unwrap();
    let first = clusters.venice.wireguard.latest_handshake().unwrap();

    // Removing the peer deletes its session, as a restart of `wireguard-go` would.
    clusters.venice.wireguard.remove_peer(key).unwrap();
    clusters
        .venice
        .wireguard
        .set_peer(key, Some(node_port(&clusters.pair.lab)))
        .unwrap();

    // WireGuard repeats an initiation only after 5 s (section 6.4 of the WireGuard paper).
    wait::until(SOON * 4, "a new handshake", || {
        Ok(clusters.venice.wireguard.latest_handshake()? >= first.max(1))
    })
    .unwrap();
    clusters.assert_connected();
}

#[test]
fn a_peer_that_roams_keeps_its_session() {
    let clusters = Clusters::up(two(1, 1), Side::Client);
    let to = SocketAddrV4::new(SAME, 7100);
    let server = tcp::Server::start(&clusters.pair.rome.netns, SAME, 7100).unwrap();
    let stream = tcp::Stream::start(&clusters.venice.netns, to, 1 << 20).unwrap();
    stream.wait_for_progress(SOON).unwrap();
    let handshake = clusters.venice.wireguard.latest_handshake().unwrap();

    clusters.venice.wireguard.listen(GATEWAY_PORT + 1).unwrap();
    stream.wait_for_progress(SOON).unwrap();
    stream.wait_for_progress(SOON).unwrap();

    stream.finish().unwrap();
    assert_eq!(server.clients().len(), 1);
    assert_eq!(
        clusters.venice.wireguard.latest_handshake().unwrap(),
        handshake,
        "roaming caused a new handshake"
    );
}

#[test]
fn packets_from_outside_the_allowed_ips_are_dropped_and_counted() {
    let clusters = Clusters::up(two(1, 1), Side::Client);
    let echo = udp::Echo::start(&clusters.pair.rome.netns, SAME, 7200).unwrap();
    let device = clusters.venice.wireguard.device();
    let forged = Ipv4Addr::new(198, 51, 100, 7);
    tests::lab::link::ip(
        &clusters.venice.netns,
        &[
            format!("addr add {forged}/32 dev {device}"),
            format!("route replace {SAME}/32 dev {device} src {forged}"),
        ],
    )
    .unwrap();

    let to = SocketAddrV4::new(SAME, 7200);
    let second = Duration::from_secs(1);
    udp::exchange(&clusters.venice.netns, to, b"forged", second).unwrap_err();

    eventually("the drop to be counted", || {
        Ok(gateway_drops(&clusters.pair.lab, ROME, "source-not-allowed") > 0)
    });
    assert!(echo.clients().is_empty(), "{:?}", echo.clients());
}

/// A peer reaches a ClusterIP only through an IP object, even if it sends to the ClusterIP itself.
#[test]
fn packets_to_a_cluster_ip_are_dropped_and_counted() {
    let service = Ipv4Addr::new(10, 96, 0, 10);
    let mut clusters = Clusters::up(two(1, 1), Side::Client);
    let node = &clusters.pair.lab.cluster(ROME).node(1).netns;
    services::install(KubeProxy::Nftables, node, service, &[SAME]);
    let echo = udp::Echo::start(&clusters.pair.rome.netns, SAME, services::TARGET).unwrap();
    clusters
        .pair
        .lab
        .map_address(ROME, "web", service, false)
        .unwrap();
    clusters.pair.lab.write_fabric(ROME).unwrap();
    let mapped = clusters.pair.lab.mapped(ROME, "web").unwrap();
    let device = clusters.venice.wireguard.device();
    let route = |to| format!("route add {to}/32 dev {device} src {VENICE_POD}");
    let routes = [route(service), route(mapped)];
    tests::lab::link::ip(&clusters.venice.netns, &routes).unwrap();
    let [direct, through_object] =
        [service, mapped].map(|it| SocketAddrV4::new(it, services::PORT));
    eventually("the IP object to be reachable", || {
        Ok(udp::is_echoed(
            &clusters.venice.netns,
            through_object,
            b"ave",
        ))
    });
    let served = echo.clients().len();

    assert!(!udp::is_echoed(&clusters.venice.netns, direct, b"ave"));

    eventually("the drop to be counted", || {
        Ok(gateway_drops(&clusters.pair.lab, ROME, "tap_unknown_destination") > 0)
    });
    assert_eq!(echo.clients().len(), served);
}

#[test]
fn a_peer_behind_nat_with_short_timeouts_stays_reachable() {
    let timeout = Duration::from_secs(2);
    let spec = Spec::new()
        .cluster(ClusterSpec::new(ROME).behind_nat(timeout))
        .cluster(ClusterSpec::new(MILAN))
        .peering(ROME, MILAN);
    let pair = Pair::up(spec);
    let _echo = udp::Echo::start(&pair.rome.netns, SAME, 7000).unwrap();

    // The sleep is longer than the NAT time-out, so only the gateways' probes keep the NAT entry.
    std::thread::sleep(timeout * 2);

    assert!(udp::is_echoed(
        &pair.milan.netns,
        pair.to_rome(7000),
        b"ave"
    ));
}

/// The gateway role of venice in the peering with rome.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Server,
    Client,
}

/// Rome and milan, and venice with an upstream gateway. Venice is peered with rome.
struct Clusters {
    // This field is dropped before the laboratory, because dropping the laboratory kills venice's
    // process.
    venice: Upstream,
    pair: Pair,
    /// The remapped address of venice's pod in rome.
    venice_seen: Ipv4Addr,
}

impl Clusters {
    fn up(spec: Spec, side: Side) -> Self {
        let mut lab = Lab::build(spec).unwrap();
        let (host, wireguard) = lab.add_wireguard(1).unwrap();
        let role = match side {
            Side::Client => Role::Server,
            Side::Server => Role::Client {
                addresses: vec![host.address.to_string()],
                port: GATEWAY_PORT,
            },
        };
        let remote = Remote {
            pod_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
            external_cidr: "10.70.0.0/16".parse().unwrap(),
            role,
            mtu: 1340,
            public_key: wireguard.key().public(),
        };
        lab.add_remote(ROME, VENICE, remote).unwrap();
        let setting = Setting {
            remote_id: ROME.to_owned(),
            remote_key: lab.public_key(ROME, VENICE).unwrap(),
            endpoint: (side == Side::Client).then(|| node_port(&lab)),
            pod: VENICE_POD,
            remote_prefixes: vec!["10.244.0.0/16".parse().unwrap()],
        };
        lab.start().unwrap();
        let venice = Upstream::start(wireguard, &host, &setting).unwrap();
        lab.wait_until_connected(SOON * 4).unwrap();
        tests::lab::wait::until(SOON * 4, "probes in both directions", || {
            Ok(venice.pings() > 0 && venice.pongs() > 0)
        })
        .unwrap();

        Self {
            venice_seen: lab.seen_from(ROME, VENICE, VENICE_POD).unwrap(),
            pair: Pair::of(lab),
            venice,
        }
    }

    /// Asserts that TCP and ICMP work in both directions. Venice does not remap, so it uses rome's
    /// original addresses.
    fn assert_connected(&self) {
        let rome = &self.pair.rome;
        let in_rome = tcp::Server::start(&rome.netns, SAME, 0).unwrap();
        let in_venice = tcp::Server::start(&self.venice.netns, VENICE_POD, 0).unwrap();
        let to_venice = SocketAddrV4::new(self.venice_seen, in_venice.address().port());

        tcp::transfer(&self.venice.netns, in_rome.address(), 2 << 20).unwrap();
        tcp::transfer(&rome.netns, to_venice, 2 << 20).unwrap();
        assert!(ping::reaches(&rome.netns, self.venice_seen).unwrap());
        assert!(ping::reaches(&self.venice.netns, SAME).unwrap());

        assert_eq!(in_rome.client_addresses(), [IpAddr::from(self.venice_seen)]);
        assert_eq!(in_venice.client_addresses(), [IpAddr::from(SAME)]);
    }

    /// Asserts that 32 flows receive replies. The peer has a single session, which the flows of all
    /// lanes must use.
    fn assert_all_flows_use_the_session(&self) {
        let echo = udp::Echo::start(&self.venice.netns, VENICE_POD, 0).unwrap();
        let to_venice = SocketAddrV4::new(self.venice_seen, echo.address().port());
        for number in 0..32_u8 {
            let is_echoed = udp::is_echoed(&self.pair.rome.netns, to_venice, &[number]);
            assert!(is_echoed, "flow {number}");
        }
    }
}

/// Returns the endpoint of rome's gateways.
fn node_port(lab: &Lab) -> SocketAddrV4 {
    let (addresses, port) = lab.cluster(ROME).endpoint();
    SocketAddrV4::new(addresses[0], port)
}
