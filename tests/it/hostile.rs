//! Tests that hostile datagrams and frames are dropped and counted.

use crate::fixture::{MILAN, Pair, ROME, SAME, SOON, eventually, gateway_drops, without_offloads};
use ebpf_common::settings::{GATEWAY_MAC, NODE_MAC, OVERLAY_PORT, OVERLAY_VNI};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::process::Command;
use tests::lab::link::{self, End};
use tests::lab::underlay::Host;
use tests::packet::{Direction, PacketSocket};
use tests::traffic::capture::{Capture, Frame};
use tests::traffic::frame::vxlan_header;
use tests::traffic::{ping, tcp, udp};

/// Message types of WireGuard, in the first byte of a message.
const INITIATION: u8 = 1;
const DATA: u8 = 4;

/// Upper bound in bytes for the growth of a gateway's memory under a flood.
const GROWTH_MAX: u64 = 4 << 20;

#[test]
fn replayed_datagrams_are_dropped_and_counted() {
    let wire = Wire::tap();
    let frames = wire.record(DATA);

    let before = gateway_drops(&wire.pair.lab, MILAN, "replayed");
    wire.inject(&frames);

    eventually("the replays to be counted", || {
        Ok(gateway_drops(&wire.pair.lab, MILAN, "replayed") >= before + frames.len() as u64)
    });
    wire.assert_alive();
}

#[test]
fn tampered_datagrams_are_dropped_and_counted() {
    let wire = Wire::tap();
    let mut frames = wire.record(DATA);
    for frame in &mut frames {
        // The message counter follows 42 bytes of Ethernet, IPv4 and UDP headers and 8 bytes of
        // WireGuard. The counter is little endian. A changed counter passes the replay check.
        frame.bytes[42 + 8 + 2] ^= 1;
        // The kernel would drop a datagram with a wrong UDP checksum. Zero means no checksum.
        frame.bytes[40..42].fill(0);
    }

    wire.inject(&frames);

    eventually("the changes to be counted", || {
        Ok(gateway_drops(&wire.pair.lab, MILAN, "invalid-tag") >= frames.len() as u64)
    });
    wire.assert_alive();
}

#[test]
fn a_gateways_memory_is_closed_to_processes_that_may_not_trace() {
    let mut pair = Pair::small();
    let pid = pair.lab.gateway(ROME, 1).pid().unwrap();
    let reads = |program: &str, arguments: &[&str]| {
        let file = format!("/proc/{pid}/environ");
        let output = Command::new(program).args(arguments).arg(file).output();
        output.unwrap().status.success()
    };
    // Each of these capabilities permits a process to read the memory of another. CAP_PERFMON does
    // so since Linux 6.16, and CAP_SYS_ADMIN includes CAP_PERFMON.
    let untraceable = [
        "--bounding-set=-sys_ptrace,-perfmon,-sys_admin",
        "--inh-caps=-sys_ptrace,-perfmon,-sys_admin",
        "cat",
    ];
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let core = limits.lines().find(|line| line.contains("core file"));

    assert!(
        reads("cat", &[]),
        "a process with CAP_SYS_PTRACE cannot read the memory"
    );
    assert!(
        !reads("setpriv", &untraceable),
        "a process without CAP_SYS_PTRACE reads the memory"
    );
    let core: Vec<_> = core.unwrap().split_whitespace().collect();
    assert_eq!(core[4..6], ["0", "0"]);
}

#[test]
fn garbage_is_dropped_and_counted_by_reason() {
    let wire = Wire::tap();
    let long = vec![DATA; 60_000];
    let mut unknown = vec![0x5a; 64];
    unknown[..4].copy_from_slice(&[DATA, 0, 0, 0]);
    let mut initiation = vec![0x5a; 148];
    initiation[..4].copy_from_slice(&[INITIATION, 0, 0, 0]);

    wire.send(&[&[], &[DATA], &[9; 40], &[DATA; 31], &long], 20);
    wire.send(&[&unknown], 20);
    wire.send(&[&initiation], 20);

    for reason in ["malformed", "unknown-receiver", "invalid-mac"] {
        eventually(reason, || {
            Ok(gateway_drops(&wire.pair.lab, MILAN, reason) > 0)
        });
    }
    wire.assert_alive();
}

#[test]
fn a_flood_of_handshakes_causes_cookie_replies_and_costs_no_memory() {
    let mut wire = Wire::tap();
    wire.pair.lab.gateway(ROME, 1).restart().unwrap();
    let initiation = wire.recorded(INITIATION).remove(0);
    wire.pair.lab.wait_until_connected(SOON * 4).unwrap();
    let message = initiation
        .ipv4()
        .and_then(|packet| Some(packet.udp()?.payload.to_owned()))
        .unwrap();
    let server = tcp::Server::start(&wire.pair.milan.netns, SAME, 7000).unwrap();
    let to = wire.pair.to_milan(7000);
    let stream = tcp::Stream::start(&wire.pair.rome.netns, to, 1 << 20).unwrap();
    let before = wire.pair.lab.gateway(MILAN, 1).usage().unwrap();

    for _ in 0..20 {
        wire.send(&[&message], 2_000);
        stream.wait_for_progress(SOON).unwrap();
    }

    let after = wire.pair.lab.gateway(MILAN, 1).usage().unwrap();
    let cookies = gateway_drops(&wire.pair.lab, MILAN, "cookie-sent");
    assert!(cookies > 0, "no cookie was sent");
    assert!(
        after.resident_bytes < before.resident_bytes + GROWTH_MAX,
        "from {before:?} to {after:?}"
    );
    stream.finish().unwrap();
    assert_eq!(server.clients().len(), 1);
}

#[test]
fn malformed_frames_from_the_overlay_are_dropped_and_counted() {
    let pair = Pair::small();
    let node = pair.lab.cluster(ROME).node(1);
    let gateway = pair.lab.cluster(ROME).gateway(1).pod.address;
    let ethernet = [&GATEWAY_MAC[..], &NODE_MAC[..], &[0x08, 0x00]].concat();
    let bodies: [&[u8]; 6] = [
        &[],
        &[0x45],
        &[0x45; 19],
        &[0x4f; 24],
        &[0x65; 60],
        &[0xff; 1200],
    ];

    node.netns.run(|| {
        let socket = UdpSocket::bind((node.internal_ip, 0)).unwrap();
        for body in bodies {
            let frame = [&vxlan_header(OVERLAY_VNI)[..], &ethernet, body].concat();
            socket.send_to(&frame, (gateway, OVERLAY_PORT)).unwrap();
        }
    });

    eventually("the drops to be counted", || {
        Ok(gateway_drops(&pair.lab, ROME, "overlay_malformed") >= 3)
    });
    assert!(ping::reaches(&pair.rome.netns, pair.milan_seen).unwrap());
}

/// With an MSS of 88 bytes, a super-packet of bulk data has several hundred segments. Each segment
/// costs as much to encrypt as a packet.
#[test]
fn super_packets_of_tiny_segments_are_dropped_and_their_connection_goes_on() {
    let pair = Pair::small();
    let netns = &pair.milan.netns;
    let route = netns.exec("ip", &["-4", "route", "show", "default"], "");
    let change = format!("-4 route change {} advmss 88", route.unwrap().trim());
    let words: Vec<_> = change.split_whitespace().collect();
    netns.exec("ip", &words, "").unwrap();
    let _server = tcp::Server::start(netns, SAME, 7000).unwrap();

    let stream = tcp::Stream::start(&pair.rome.netns, pair.to_milan(7000), 64 << 20).unwrap();

    eventually("a super-packet to be dropped", || {
        Ok(gateway_drops(&pair.lab, ROME, "too-many-segments") > 0)
    });
    stream.wait_for_progress(SOON).unwrap();
    assert!(ping::reaches(&pair.rome.netns, pair.milan_seen).unwrap());
}

/// Two clusters with a capture on the link to milan, and an attacker on the underlay.
struct Wire {
    pair: Pair,
    attacker: Host,
    tap: Capture,
}

impl Wire {
    fn tap() -> Self {
        let mut pair = Pair::small();
        let attacker = pair.lab.add_host().unwrap();
        without_offloads(&pair.lab, &pair.rome);
        // Without offloads, the captured packets are complete, so the test can send them again.
        for cluster in pair.lab.clusters() {
            let gateway = &cluster.gateway(1).pod;
            without_offloads(&pair.lab, gateway);
            for device in ["up", "node-1"] {
                link::without_offloads(End {
                    netns: &cluster.edge,
                    device,
                })
                .unwrap();
            }
            link::without_offloads(End {
                netns: &cluster.node(1).netns,
                device: "eth0",
            })
            .unwrap();
        }
        let tap = Capture::packets(pair.lab.underlay().core(), "to-milan", |packet| {
            packet.udp().is_some()
        })
        .unwrap();

        Self {
            pair,
            attacker,
            tap,
        }
    }

    /// Sends packets from rome to milan, and returns the captured WireGuard messages of type
    /// `kind`.
    fn record(&self, kind: u8) -> Vec<Frame> {
        assert!(ping::reaches(&self.pair.rome.netns, self.pair.milan_seen).unwrap());
        let _echo = udp::Echo::start(&self.pair.milan.netns, SAME, 7900).unwrap();
        for _ in 0..20 {
            assert!(udp::is_echoed(
                &self.pair.rome.netns,
                self.pair.to_milan(7900),
                b"payload"
            ));
        }

        self.recorded(kind)
    }

    /// Waits for WireGuard messages of type `kind` to milan, and returns them.
    fn recorded(&self, kind: u8) -> Vec<Frame> {
        tests::lab::wait::value(SOON, "a captured message", || {
            let mut frames = self.tap.frames();
            frames.retain(|frame| {
                frame.direction == Direction::Out
                    && frame
                        .ipv4()
                        .and_then(|packet| packet.udp())
                        .is_some_and(|udp| udp.payload.first() == Some(&kind))
            });
            Ok((!frames.is_empty()).then_some(frames))
        })
        .unwrap()
    }

    /// Sends frames on the link to milan.
    fn inject(&self, frames: &[Frame]) {
        let core = self.pair.lab.underlay().core();
        let socket = PacketSocket::open(core, "to-milan").unwrap();
        for frame in frames {
            assert!(socket.send(&frame.bytes).unwrap());
        }
    }

    /// Sends datagrams from the attacker to milan's gateway, `times` times.
    fn send(&self, datagrams: &[&[u8]], times: usize) {
        let (addresses, port) = self.pair.lab.cluster(MILAN).endpoint();
        let to: SocketAddrV4 = SocketAddrV4::new(addresses[0], port);
        self.attacker.netns.run(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            for _ in 0..times {
                for datagram in datagrams {
                    socket.send_to(datagram, to).unwrap();
                }
            }
        });
    }

    /// Asserts that pods reach each other.
    fn assert_alive(&self) {
        assert!(ping::reaches(&self.pair.rome.netns, self.pair.milan_seen).unwrap());
        assert!(ping::reaches(&self.pair.milan.netns, self.pair.rome_seen).unwrap());
    }
}
