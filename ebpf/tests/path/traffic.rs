//! Tests of pod traffic through the programs: TCP, UDP, ping and ICMP errors.

use super::lab::{DEADLINE, Lab, MSS, PEER, STRANGER, command, options, tables};
use super::mirror::with_mirror;
use super::tap::VNET_HEADER;
use ebpf::{Datapath, Settings};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

const TIMEOUT: Option<Duration> = Some(DEADLINE);

fn attach(lab: &Lab) -> Datapath {
    let mut datapath = lab.gateway.run(|| Datapath::attach(options())).unwrap();
    datapath.apply(&tables()).unwrap();
    datapath
}

/// Opens a UDP socket of the pod with this address.
fn socket(lab: &Lab, address: &str) -> UdpSocket {
    let socket = lab.node.run(|| UdpSocket::bind(address).unwrap());
    socket.set_read_timeout(TIMEOUT).unwrap();
    socket
}

#[test]
fn the_engine_reads_the_peer_from_the_frame_and_the_original_addresses() {
    let lab = Lab::new();
    let _datapath = attach(&lab);

    let pod = socket(&lab, "10.244.1.10:7000");
    pod.send_to(b"payload", "10.245.1.20:7001").unwrap();
    let mut frame = None;
    super::lab::wait_for("a frame at the TAP", || {
        frame = lab.tap.read();
        frame.is_some()
    });

    let frame = frame.unwrap().split_off(VNET_HEADER);
    assert_eq!(frame[..6], Settings::default().peer_mac(PEER));
    assert_eq!(frame[12..14], [0x08, 0x00]);
    assert_eq!(frame[26..30], [10, 244, 1, 10]);
    assert_eq!(frame[30..34], [10, 244, 1, 20]);
    assert_eq!(frame[42..], *b"payload");
}

#[test]
fn pods_with_equal_addresses_exchange_datagrams_and_see_each_other_remapped() {
    let lab = Lab::new();
    let datapath = attach(&lab);
    let (client, server) = (
        socket(&lab, "10.244.1.10:7000"),
        socket(&lab, "10.244.1.20:7000"),
    );

    with_mirror(&lab.tap, |_| {
        // The node sends the datagrams that exceed the MTU in fragments.
        for len in [0, 1, 100, 1392, 1393, 4000, 60_000] {
            let payload = vec![0x5a; len];
            let mut buffer = vec![0; 70_000];
            client.send_to(&payload, "10.245.1.20:7000").unwrap();
            let (got, from) = server.recv_from(&mut buffer).unwrap();
            assert_eq!(buffer[..got], payload);
            assert_eq!(from, "10.245.1.10:7000".parse::<SocketAddr>().unwrap());

            server.send_to(&payload, from).unwrap();
            let (got, from) = client.recv_from(&mut buffer).unwrap();
            assert_eq!(buffer[..got], payload);
            assert_eq!(from, "10.245.1.20:7000".parse::<SocketAddr>().unwrap());
        }
    });

    assert_eq!(lab.node_counter("Udp", "InCsumErrors"), 0);
    assert_eq!(lab.node_counter("Udp", "InErrors"), 0);
    let counters = datapath.counters().unwrap();
    assert_eq!(counters["overlay_forwarded"], counters["tap_forwarded"]);
}

#[test]
fn a_stream_crosses_intact_in_super_packets_with_clamped_segments() {
    const LEN: usize = 8 << 20;
    let lab = Lab::new();
    let datapath = attach(&lab);
    let listener = lab
        .node
        .run(|| TcpListener::bind("10.244.1.20:80").unwrap());
    let sent: Vec<u8> = (0..LEN).map(|at| (at * 7 % 251) as u8).collect();

    let (received, longest) = with_mirror(&lab.tap, |seen| {
        let received = thread::scope(|scope| {
            let server = scope.spawn(|| {
                let (mut stream, from) = listener.accept().unwrap();
                assert_eq!(from.ip().to_string(), "10.245.1.10");
                let mut received = Vec::new();
                stream.set_read_timeout(TIMEOUT).unwrap();
                stream.read_to_end(&mut received).unwrap();
                received
            });
            let mut client = lab.node.run(|| {
                let to = "10.245.1.20:80".parse().unwrap();
                TcpStream::connect_timeout(&to, DEADLINE).unwrap()
            });
            client.set_write_timeout(TIMEOUT).unwrap();
            client.write_all(&sent).unwrap();
            drop(client);
            server.join().unwrap()
        });
        (received, seen.longest.load(Ordering::Relaxed))
    });

    assert!(received == sent, "{} bytes of {LEN}", received.len());
    assert!(longest > 30_000, "no super-packet: {longest} bytes at most");
    assert_eq!(lab.node_counter("Tcp", "InCsumErrors"), 0);
    assert_eq!(lab.node_counter("Tcp", "InErrs"), 0);
    // The overlay program clamps the SYN and the SYN-ACK. The TAP program then finds an MSS that is
    // low enough.
    assert_eq!(datapath.counters().unwrap()["mss_clamped"], 2);
    assert!(usize::from(MSS) < longest);
}

#[test]
fn pings_get_replies_whole_or_in_fragments() {
    let lab = Lab::new();
    let _datapath = attach(&lab);

    with_mirror(&lab.tap, |_| {
        for size in [0, 56, 1400, 9000, 60_000] {
            lab.node.run(|| {
                command(&format!(
                    "ping -c 2 -i 0.05 -W 3 -s {size} -I 10.244.1.10 10.245.1.20"
                ))
            });
        }
    });

    assert_eq!(lab.node_counter("Icmp", "InCsumErrors"), 0);
}

#[test]
fn an_unreachable_port_refuses_the_sockets_connection() {
    let lab = Lab::new();
    let _datapath = attach(&lab);
    let pod = socket(&lab, "10.244.1.10:7000");
    pod.connect("10.245.1.20:9").unwrap();

    with_mirror(&lab.tap, |_| {
        pod.send(b"payload").unwrap();
        let refused = pod.recv(&mut [0; 10]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn frames_from_an_unknown_node_or_another_network_are_dropped() {
    let lab = Lab::new();
    let datapath = attach(&lab);
    let pod = socket(&lab, "10.244.1.10:7000");
    let send = |route: &str| {
        lab.node.command(&format!(
            "ip route replace 10.245.9.9/32 {route} dev liqo-overlay"
        ));
        pod.send_to(b"in", "10.245.9.9:1").unwrap();
    };
    let count = |name| datapath.counters().unwrap()[name];

    send(&format!("encap ip id 27761 src {STRANGER} dst 172.18.0.10"));
    super::lab::wait_for("the stranger is counted", || {
        count("overlay_unknown_node") == 1
    });
    send("encap ip id 5 dst 172.18.0.10");
    super::lab::wait_for("the network is counted", || count("overlay_wrong_vni") == 1);

    assert_eq!(count("overlay_forwarded"), 0);
    assert!(lab.tap.read().is_none());
}

#[test]
fn a_probe_gets_a_reply_while_the_heartbeat_is_fresh() {
    use ebpf::Heartbeat;
    use ebpf_common::probe::{LEN, Probe};

    let lab = Lab::new();
    let mut datapath = attach(&lab);
    let node = socket(&lab, "10.244.1.10:6092");
    let request = Probe::request(5, 6);
    let send_request = || {
        node.send_to(&request.encode(), "169.254.19.1:6092")
            .unwrap()
    };

    send_request();
    super::lab::wait_for("the probe is refused", || {
        datapath.counters().unwrap()["overlay_probe_stale"] == 1
    });
    datapath
        .beat(&Heartbeat::new(false, 42, [true, false, true]))
        .unwrap();
    send_request();
    let mut payload = [0; LEN + 1];
    let (len, from) = node.recv_from(&mut payload).unwrap();

    let reply = Probe::parse(&payload[..len]).unwrap();
    assert_eq!(from, "169.254.19.1:6092".parse::<SocketAddr>().unwrap());
    assert_eq!((reply.sequence(), reply.sent()), (5, 6));
    assert_eq!((reply.body.count(), reply.body.digest()), (3, 42));
    assert!(reply.body.is_up(0) && !reply.body.is_up(1) && reply.body.is_up(2));
    assert_eq!(lab.node_counter("Udp", "InCsumErrors"), 0);
}
