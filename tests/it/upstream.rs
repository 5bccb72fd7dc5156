//! Peers of another make: upstream Liqo's gateways and plain `wireguard-go`.

use crate::fixture::{MILAN, Pair, ROME, SAME, SOON, eventually, gateway_drops, two};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::time::Duration;
use tests::lab::fabric::{Remote, Role};
use tests::lab::spec::{ClusterSpec, GATEWAY_PORT, Spec};
use tests::lab::{Lab, wait};
use tests::traffic::{ping, tcp, udp};
use tests::upstream::{Setting, Upstream};

const VENICE: &str = "venice";

/// The address of venice's pod, to itself: inside everybody's pod CIDR.
const VENICE_POD: Ipv4Addr = Ipv4Addr::new(10, 244, 9, 9);

#[test]
fn an_upstream_server_and_a_client_of_ours_talk() {
    let world = World::up(two(1, 1), Side::Server);

    world.talk();
    // Towards a gateway of ours nothing changes beside it.
    assert!(ping::reaches(&world.pair.rome.netns, world.pair.milan_seen).unwrap());
}

#[test]
fn an_upstream_client_and_a_server_of_ours_talk() {
    let world = World::up(two(1, 1), Side::Client);

    world.talk();
    assert!(ping::reaches(&world.pair.rome.netns, world.pair.milan_seen).unwrap());
}

#[test]
fn an_upstream_client_is_served_by_one_of_two_replicas() {
    let world = World::up(two(2, 2), Side::Client);

    world.talk();
}

#[test]
fn an_upstream_client_is_served_by_a_gateway_of_several_lanes() {
    let world = World::up(with_lanes(two(2, 2), 3), Side::Client);

    world.talk();
    world.every_flow_takes_the_one_session();
    assert!(ping::reaches(&world.pair.rome.netns, world.pair.milan_seen).unwrap());
}

#[test]
fn an_upstream_server_is_called_by_a_gateway_of_several_lanes() {
    let world = World::up(with_lanes(two(2, 2), 3), Side::Server);

    world.talk();
    world.every_flow_takes_the_one_session();
    assert!(ping::reaches(&world.pair.rome.netns, world.pair.milan_seen).unwrap());
}

fn with_lanes(mut spec: Spec, lanes: u8) -> Spec {
    for cluster in &mut spec.clusters {
        cluster.lanes = lanes;
    }
    spec
}

#[test]
fn a_lost_session_is_made_anew() {
    let world = World::up(two(1, 1), Side::Client);
    world.talk();
    let key = world.pair.lab.public_key(ROME, VENICE).unwrap();
    let first = world.venice.wireguard.latest_handshake().unwrap();

    // Its state is gone, as after 180 s of silence or a restart.
    world.venice.wireguard.remove_peer(key).unwrap();
    world
        .venice
        .wireguard
        .set_peer(key, Some(node_port(&world.pair.lab)))
        .unwrap();

    // WireGuard asks for a handshake again only after 5 s (section 6.4 of its paper).
    wait::until(SOON * 4, "a new handshake", || {
        Ok(world.venice.wireguard.latest_handshake()? >= first.max(1))
    })
    .unwrap();
    world.talk();
}

#[test]
fn a_peer_that_roams_keeps_its_session() {
    let world = World::up(two(1, 1), Side::Client);
    let to = SocketAddrV4::new(SAME, 7100);
    let server = tcp::Server::start(&world.pair.rome.netns, SAME, 7100).unwrap();
    let stream = tcp::Stream::start(&world.venice.netns, to, 1 << 20).unwrap();
    stream.wait_for_progress(SOON).unwrap();
    let handshake = world.venice.wireguard.latest_handshake().unwrap();

    world.venice.wireguard.listen(GATEWAY_PORT + 1).unwrap();
    stream.wait_for_progress(SOON).unwrap();
    stream.wait_for_progress(SOON).unwrap();

    stream.finish().unwrap();
    assert_eq!(server.clients().len(), 1);
    assert_eq!(
        world.venice.wireguard.latest_handshake().unwrap(),
        handshake,
        "no new handshake was needed"
    );
}

#[test]
fn a_peer_that_sends_what_it_may_not_is_dropped_and_counted() {
    let world = World::up(two(1, 1), Side::Client);
    let echo = udp::Echo::start(&world.pair.rome.netns, SAME, 7200).unwrap();
    let device = world.venice.wireguard.device();
    let forged = Ipv4Addr::new(198, 51, 100, 7);
    tests::lab::link::ip(
        &world.venice.netns,
        &[
            format!("addr add {forged}/32 dev {device}"),
            format!("route replace {SAME}/32 dev {device} src {forged}"),
        ],
    )
    .unwrap();

    let to = SocketAddrV4::new(SAME, 7200);
    let second = Duration::from_secs(1);
    udp::exchange(&world.venice.netns, to, b"forged", second).unwrap_err();

    eventually("it to be counted", || {
        Ok(gateway_drops(&world.pair.lab, ROME, "source-not-allowed") > 0)
    });
    assert!(echo.clients().is_empty(), "{:?}", echo.clients());
}

#[test]
fn a_peer_behind_forgetful_nat_stays_reachable() {
    let timeout = Duration::from_secs(2);
    let spec = Spec::new()
        .cluster(ClusterSpec::new(ROME).behind_nat(timeout))
        .cluster(ClusterSpec::new(MILAN))
        .peering(ROME, MILAN);
    let pair = Pair::up(spec);
    let _echo = udp::Echo::start(&pair.rome.netns, SAME, 7000).unwrap();

    // Longer than the router remembers; only probes keep the way open.
    std::thread::sleep(timeout * 2);

    assert!(udp::is_echoed(
        &pair.milan.netns,
        pair.to_rome(7000),
        b"ave"
    ));
}

/// What venice is, in the peering with rome.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Server,
    Client,
}

/// Rome and milan, and venice, which is not ours and peers with rome.
struct World {
    // Before the laboratory, so that its process ends by itself.
    venice: Upstream,
    pair: Pair,
    /// How rome sees venice's pod.
    venice_seen: Ipv4Addr,
}

impl World {
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
        tests::lab::wait::until(SOON * 4, "probes both ways", || {
            Ok(venice.pings() > 0 && venice.pongs() > 0)
        })
        .unwrap();

        Self {
            venice_seen: lab.seen_from(ROME, VENICE, VENICE_POD).unwrap(),
            pair: Pair::of(lab),
            venice,
        }
    }

    /// Asserts traffic of all kinds both ways. Venice remaps nothing, so it uses
    /// rome's original addresses.
    fn talk(&self) {
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

    /// Sends datagrams of so many flows that without a rule some would come to each lane.
    fn every_flow_takes_the_one_session(&self) {
        let echo = udp::Echo::start(&self.venice.netns, VENICE_POD, 0).unwrap();
        let to_venice = SocketAddrV4::new(self.venice_seen, echo.address().port());
        for number in 0..32_u8 {
            let is_echoed = udp::is_echoed(&self.pair.rome.netns, to_venice, &[number]);
            assert!(is_echoed, "flow {number}");
        }
    }
}

/// Where rome's gateways are reached.
fn node_port(lab: &Lab) -> SocketAddrV4 {
    let (addresses, port) = lab.cluster(ROME).endpoint();
    SocketAddrV4::new(addresses[0], port)
}
