//! Tests of the laboratory's network, without gateways and route agents.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};
use tests::fault::relay::{Faults, Relay};
use tests::lab::link::{End, ip};
use tests::lab::netns::Netns;
use tests::lab::spec::{ClusterSpec, Exposure, GATEWAY_PORT, NODE_PORT, Spec};
use tests::lab::{Identity, Lab, wait};
use tests::traffic::capture::Capture;
use tests::traffic::ping::{self, Ping};
use tests::traffic::traceroute::{self, Probe};
use tests::traffic::{checksum, counters, tcp, udp};

const SOON: Duration = Duration::from_secs(2);

#[test]
fn pods_of_a_cluster_reach_each_other_at_their_own_addresses() {
    let mut lab = Lab::build(Spec::new().cluster(ClusterSpec::new("rome").nodes(2))).unwrap();
    let a = lab.add_pod("rome", 1, [10, 244, 1, 10]).unwrap();
    let b = lab.add_pod("rome", 2, [10, 244, 2, 10]).unwrap();
    let echo = udp::Echo::start(&b.netns, b.address, 0).unwrap();

    assert!(ping::reaches(&a.netns, b.address).unwrap());
    assert!(udp::is_echoed(&a.netns, echo.address(), b"hello"));
    assert_eq!(echo.clients()[0].ip(), IpAddr::from(a.address));
}

#[test]
fn clusters_with_the_same_addresses_are_isolated() {
    let spec = Spec::new()
        .cluster(ClusterSpec::new("rome"))
        .cluster(ClusterSpec::new("milan"));
    let mut lab = Lab::build(spec).unwrap();
    let a = lab.add_pod("rome", 1, [10, 244, 1, 10]).unwrap();
    let b = lab.add_pod("milan", 1, [10, 244, 1, 11]).unwrap();

    let echo = udp::Echo::start(&b.netns, b.address, 7000).unwrap();

    assert!(!udp::is_echoed(&a.netns, echo.address(), b"hello"));
}

#[test]
fn packets_that_leave_a_cluster_have_the_address_of_a_node() {
    let mut lab = Lab::build(Spec::new().cluster(ClusterSpec::new("rome"))).unwrap();
    let pod = lab.add_pod("rome", 1, [10, 244, 1, 10]).unwrap();
    let host = lab.add_host().unwrap();
    let server = tcp::Server::start(&host.netns, host.address, 0).unwrap();

    tcp::transfer(&pod.netns, server.address(), 1 << 20).unwrap();

    let node = lab.cluster("rome").node(1).internal_ip;
    assert_eq!(server.client_addresses(), [IpAddr::from(node)]);
}

#[test]
fn a_node_port_spreads_flows_over_all_gateways() {
    let spec = Spec::new().cluster(ClusterSpec::new("rome").nodes(2).replicas(2));
    let mut lab = Lab::build(spec).unwrap();
    let host = lab.add_host().unwrap();
    let echoes = gateway_echoes(&lab);

    let node = lab.cluster("rome").node(1).internal_ip;
    let to = SocketAddrV4::new(node, NODE_PORT);
    for _ in 0..30 {
        assert!(udp::is_echoed(&host.netns, to, b"hello"));
    }

    for echo in echoes {
        assert!(
            !echo.clients().is_empty(),
            "{} received no datagram",
            echo.address()
        );
    }
}

#[test]
fn a_load_balancer_uses_only_ready_gateways() {
    let rome = ClusterSpec::new("rome").nodes(2).replicas(2);
    let spec = Spec::new().cluster(rome.exposure(Exposure::LoadBalancer));
    let mut lab = Lab::build(spec).unwrap();
    let host = lab.add_host().unwrap();
    let echoes = gateway_echoes(&lab);
    lab.cluster_mut("rome").gateways[0].ready = false;
    lab.cluster("rome").expose().unwrap();

    let (addresses, port) = lab.cluster("rome").endpoint();
    let to = SocketAddrV4::new(addresses[0], port);
    for _ in 0..10 {
        assert!(udp::is_echoed(&host.netns, to, b"hello"));
    }

    assert!(echoes[0].clients().is_empty());
    assert_eq!(echoes[1].clients().len(), 10);
}

#[test]
fn nat_forgets_a_flow_after_two_seconds() {
    let rome = ClusterSpec::new("rome").behind_nat(Duration::from_secs(2));
    let mut lab = Lab::build(Spec::new().cluster(rome)).unwrap();
    let pod = lab.add_pod("rome", 1, [10, 244, 1, 10]).unwrap();
    let host = lab.add_host().unwrap();
    let echo = udp::Echo::start(&host.netns, host.address, 0).unwrap();

    assert!(udp::is_echoed(&pod.netns, echo.address(), b"hello"));

    let known = || {
        let table = lab.cluster("rome").edge.exec("conntrack", &["-L"], "")?;
        anyhow::Ok(table.contains("udp"))
    };
    assert!(known().unwrap());
    let started = Instant::now();
    wait::until(Duration::from_secs(6), "the flow to be removed", || {
        Ok(!known()?)
    })
    .unwrap();
    assert!(started.elapsed() > Duration::from_millis(900));
}

#[test]
fn a_relay_injects_the_configured_faults() {
    let (_identity, relay, a, _b) = relayed_pair();
    let ping = Ping {
        count: 50,
        interval: Some(Duration::from_millis(2)),
        timeout: Duration::from_secs(1),
        ..Ping::default()
    };
    let to = Ipv4Addr::new(192, 0, 2, 2);

    assert_eq!(ping.run(&a, to).unwrap().received, 50);

    let set = |faults| relay.set(faults);
    set(Faults {
        loss: 0.3,
        ..Faults::default()
    });
    let lossy = ping.run(&a, to).unwrap();
    assert!((5..45).contains(&lossy.received), "{}", lossy.text);

    set(Faults {
        delay: Duration::from_millis(20),
        ..Faults::default()
    });
    let slow = ping.run(&a, to).unwrap();
    assert_eq!(slow.received, 50);
    assert!(
        slow.rtt.unwrap() > Duration::from_millis(39),
        "{}",
        slow.text
    );

    set(Faults {
        duplicate: 1.0,
        ..Faults::default()
    });
    let double = ping.run(&a, to).unwrap();
    assert!(double.text.contains("DUP!"), "{}", double.text);

    set(Faults {
        blocked: true,
        ..Faults::default()
    });
    assert_eq!(ping.run(&a, to).unwrap().received, 0);

    let tally = relay.tally();
    assert!(tally.dropped > 0 && tally.duplicated >= 50, "{tally:?}");
}

#[test]
fn a_relay_reorders_but_loses_nothing() {
    let (_identity, relay, a, b) = relayed_pair();
    let echo = udp::Echo::start(&b, [192, 0, 2, 2], 0).unwrap();
    relay.set(Faults {
        reorder: 0.3,
        ..Faults::default()
    });
    let capture = Capture::packets(&b, "eth0", |packet| {
        packet.udp().is_some_and(|udp| udp.payload.len() == 8)
    })
    .unwrap();

    let flow = udp::Flow::start(&a, echo.address(), Duration::from_millis(1)).unwrap();
    wait::until(SOON, "200 replies", || Ok(flow.replies() >= 200)).unwrap();
    let outcome = flow.finish();

    assert_eq!(outcome.lost(), 0, "{outcome:?}");
    let numbers: Vec<u64> = capture
        .finish()
        .unwrap()
        .iter()
        .filter(|frame| frame.direction == tests::packet::Direction::In)
        .filter_map(|frame| {
            Some(u64::from_be_bytes(
                frame.ipv4()?.udp()?.payload.try_into().ok()?,
            ))
        })
        .collect();
    assert!(!numbers.is_sorted(), "nothing was reordered");
}

#[test]
fn a_tcp_transfer_survives_a_bad_link() {
    let (_identity, relay, a, b) = relayed_pair();
    let server = tcp::Server::start(&b, [192, 0, 2, 2], 0).unwrap();
    relay.set(Faults {
        loss: 0.01,
        reorder: 0.05,
        duplicate: 0.05,
        ..Faults::default()
    });

    let outcome = tcp::transfer(&a, server.address(), 2_000_003).unwrap();

    assert_eq!(outcome.bytes, 2_000_003);
    assert_eq!(server.received(), 2_000_003);
}

#[test]
fn a_stalled_stream_shows_its_gap() {
    let (_identity, relay, a, b) = relayed_pair();
    let server = tcp::Server::start(&b, [192, 0, 2, 2], 0).unwrap();
    let stream = tcp::Stream::start(&a, server.address(), 1 << 20).unwrap();
    stream.wait_for_progress(SOON).unwrap();

    relay.set(Faults {
        blocked: true,
        ..Faults::default()
    });
    std::thread::sleep(Duration::from_millis(400));
    relay.set(Faults::default());
    stream.wait_for_progress(SOON).unwrap();

    let outcome = stream.finish().unwrap();
    let gap = outcome.longest_gap;
    assert!(
        (Duration::from_millis(350)..Duration::from_secs(2)).contains(&gap),
        "{gap:?}"
    );
}

#[test]
fn captured_packets_of_a_device_without_offloads_have_correct_checksums() {
    let (_identity, _relay, a, b) = relayed_pair();
    let capture = Capture::packets(&a, "eth0", |packet| packet.protocol() == 6).unwrap();
    let server = tcp::Server::start(&b, [192, 0, 2, 2], 0).unwrap();

    tcp::transfer(&a, server.address(), 100_000).unwrap();

    let frames = capture.finish().unwrap();
    assert!(frames.len() > 70, "{} frames", frames.len());
    for frame in &frames {
        let packet = frame.ipv4().unwrap();
        assert!(checksum::faults(&packet).is_empty(), "{packet:?}");
    }
    let syn = frames[0].ipv4().unwrap();
    assert_eq!(syn.tcp().unwrap().mss(), Some(1460));
    assert!(counters::broken(&b).unwrap().is_empty());
}

#[test]
fn a_closed_port_and_the_hops_of_a_path_are_reported() {
    let spec = Spec::new().cluster(ClusterSpec::new("rome").nodes(2));
    let mut lab = Lab::build(spec).unwrap();
    let a = lab.add_pod("rome", 1, [10, 244, 1, 10]).unwrap();
    let b = lab.add_pod("rome", 2, [10, 244, 2, 10]).unwrap();

    let closed = SocketAddrV4::new(b.address, 9);
    let refusal = udp::exchange(&a.netns, closed, b"?", SOON).unwrap_err();
    let hops = traceroute::hops(&a.netns, b.address, Probe::Udp).unwrap();

    assert_eq!(refusal.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(hops.len(), 4, "node, edge, node, pod: {hops:?}");
    assert_eq!(hops.last(), Some(&Some(b.address)));
}

#[test]
fn the_network_of_two_clusters_takes_three_seconds_and_leaves_nothing() {
    let before = namespaces();
    let spec = Spec::new()
        .cluster(ClusterSpec::new("rome").nodes(2).replicas(2))
        .cluster(ClusterSpec::new("milan").nodes(2).replicas(2))
        .peering("rome", "milan");

    let started = Instant::now();
    let lab = Lab::build(spec).unwrap();
    let elapsed = started.elapsed();

    assert!(elapsed < Duration::from_secs(3), "it took {elapsed:?}");
    let id = lab.identity().id().to_owned();
    drop(lab);
    let after = namespaces();
    assert!(
        !after.iter().any(|name| name.contains(&id)),
        "{before:?} {after:?}"
    );
}

#[test]
fn a_killed_node_is_unreachable() {
    let spec = Spec::new().cluster(ClusterSpec::new("rome").nodes(2).replicas(2));
    let mut lab = Lab::build(spec).unwrap();
    let a = lab.add_pod("rome", 1, [10, 244, 1, 10]).unwrap();
    let gateway = lab.cluster("rome").gateway(2).pod.address;
    assert!(ping::reaches(&a.netns, gateway).unwrap());

    lab.kill_node("rome", 2).unwrap();

    assert!(!ping::reaches(&a.netns, gateway).unwrap());
}

/// Starts an echo server on the gateway's port in each gateway pod of `rome`.
fn gateway_echoes(lab: &Lab) -> Vec<udp::Echo> {
    lab.cluster("rome")
        .gateways
        .iter()
        .map(|gateway| {
            let pod = &gateway.pod;
            udp::Echo::start(&pod.netns, pod.address, GATEWAY_PORT).unwrap()
        })
        .collect()
}

fn relayed_pair() -> (std::sync::Arc<Identity>, Relay, Netns, Netns) {
    let identity = Identity::claim().unwrap();
    let a = Netns::create(&identity, "a").unwrap();
    let b = Netns::create(&identity, "b").unwrap();
    let end = |netns| End {
        netns,
        device: "eth0",
    };
    let relay = Relay::between(&identity, "relay", end(&a), end(&b), 1500).unwrap();
    for (netns, address) in [(&a, "192.0.2.1"), (&b, "192.0.2.2")] {
        let address = format!("addr add {address}/24 dev eth0");
        ip(netns, &[&*address, "link set eth0 up", "link set lo up"]).unwrap();
    }

    (identity, relay, a, b)
}

fn namespaces() -> Vec<String> {
    let entries = std::fs::read_dir("/run/netns").unwrap();
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}
