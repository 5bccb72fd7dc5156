//! Tests of the program's replies to overlay probes.

use super::fixture::{NODE_2, gateway_mac, node_mac, tables};
use super::overlay::from_node;
use super::packet::{Body, Packet, frame};
use super::{DROP, Image, OUTER, Programs, REDIRECT, Settings, load};
use ebpf_common::counter::Counter;
use ebpf_common::probe::{
    HEARTBEAT_AGE_MAX_NS, Heartbeat, LastRequest, NodeReport, Probe, RECEIVES_REPLIES,
};
use ebpf_common::settings::PROBE_PORT;
use nix::sched::{CloneFlags, unshare};
use nix::time::{ClockId, clock_gettime};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

const NODE: &str = "10.70.0.3";
const REPLICA: &str = "169.254.19.1";

fn request(has_checksum: bool, payload: Vec<u8>) -> Packet {
    let body = Body::Udp {
        ports: [PROBE_PORT + 1, PROBE_PORT],
        has_checksum,
        payload,
    };
    Packet::new(NODE, REPLICA, body)
}

fn reply(has_checksum: bool, payload: Vec<u8>) -> Packet {
    let body = Body::Udp {
        ports: [PROBE_PORT, PROBE_PORT + 1],
        has_checksum,
        payload,
    };
    Packet::new(REPLICA, NODE, body)
}

/// Returns a heartbeat with the given age in nanoseconds.
fn heartbeat(age_ns: u64) -> Heartbeat {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
    let now_ns = u64::try_from(now.as_nanos()).unwrap();
    Heartbeat {
        ktime_ns: now_ns - age_ns,
        ..Heartbeat::new(
            true,
            0x1234_5678_9abc_def0,
            (0..77).map(|rank| rank % 5 != 0),
        )
    }
}

/// Opens the socket by which the program checks that the engine's process is alive.
///
/// The function moves the calling thread into a new network namespace, so that the socket is the
/// only one on its port.
pub(super) fn liveness_socket() -> UdpSocket {
    unshare(CloneFlags::CLONE_NEWNET).expect("tests need root");
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PROBE_PORT)).unwrap()
}

#[test]
fn a_request_becomes_a_reply_with_the_heartbeat() {
    let programs = load(&tables());
    let _life = liveness_socket();
    let heartbeat = heartbeat(0);
    programs.beat(&heartbeat);

    for has_checksum in [true, false] {
        for sequence in 0..500 {
            let mut probe = Probe::request(sequence, u64::from(sequence) * 0x0123_4567_89ab);
            let packet = request(has_checksum, probe.encode().to_vec());
            let run = programs.overlay(&from_node(&packet.encode()));

            probe.body = heartbeat.body;
            let expected = reply(has_checksum, probe.encode().to_vec());
            assert_eq!(run.verdict, REDIRECT);
            assert_eq!(run.node, OUTER);
            let expected = frame(node_mac(), gateway_mac(), &expected.encode());
            assert_eq!(run.frame, expected);
        }
    }
    assert_eq!(programs.count(Counter::OverlayProbeAnswered), 1000);
}

#[test]
fn a_hung_engine_does_not_reply() {
    let programs = load(&tables());
    let _life = liveness_socket();
    let packet = request(true, Probe::request(1, 2).encode().to_vec()).encode();
    let refused = |programs: &Programs| {
        programs.assert_refused(
            |programs| programs.overlay(&from_node(&packet)),
            Counter::OverlayProbeStale,
        );
    };

    refused(&programs);
    programs.beat(&heartbeat(HEARTBEAT_AGE_MAX_NS + 1));
    refused(&programs);
    programs.beat(&heartbeat(0));
    assert_eq!(programs.overlay(&from_node(&packet)).verdict, REDIRECT);
}

#[test]
fn a_dead_process_does_not_reply_from_the_moment_of_its_death() {
    let programs = load(&tables());
    let packet = request(true, Probe::request(1, 2).encode().to_vec()).encode();
    let life = liveness_socket();
    programs.beat(&heartbeat(0));
    assert_eq!(programs.overlay(&from_node(&packet)).verdict, REDIRECT);

    drop(life);

    programs.assert_refused(
        |programs| programs.overlay(&from_node(&packet)),
        Counter::OverlayProbeStale,
    );
}

#[test]
fn a_report_is_stored_and_its_request_gets_a_reply() {
    let programs = load(&tables());
    let _life = liveness_socket();
    let heartbeat = heartbeat(0);
    programs.beat(&heartbeat);
    let report = NodeReport::new(RECEIVES_REPLIES, 0x0fed_cba9_8765_4321, [0, 9, 1000]);
    let mut probe = Probe::request(7, 8).with_report(&report);
    let packet = request(true, probe.encode().to_vec()).encode();

    let run = programs.overlay(&from_node(&packet));

    probe.body = heartbeat.body;
    let expected = reply(true, probe.encode().to_vec()).encode();
    assert_eq!(run.frame, frame(node_mac(), gateway_mac(), &expected));
    let last_requests = programs.maps.borrow().last_requests().unwrap();
    let last_request = last_requests[&OUTER.octets()];
    assert_eq!(last_request.lost().collect::<Vec<_>>(), [0, 9, 1000]);
    assert_eq!(last_request.digest(), 0x0fed_cba9_8765_4321);
    assert!(last_request.has_flag(RECEIVES_REPLIES));
    assert!(last_request.ktime_ns > heartbeat.ktime_ns);
    assert_eq!(last_requests[&NODE_2.octets()], LastRequest::NONE);
}

#[test]
fn requests_are_stored_while_the_engine_hangs() {
    let programs = load(&tables());
    let _life = liveness_socket();
    let packet = request(true, Probe::request(1, 2).encode().to_vec()).encode();

    assert_eq!(programs.overlay(&from_node(&packet)).verdict, DROP);

    let last_requests = programs.maps.borrow().last_requests().unwrap();
    assert!(last_requests[&OUTER.octets()].ktime_ns > 0);
}

#[test]
fn only_requests_of_nodes_are_stored() {
    let programs = load(&tables());
    let mut fewer = tables();
    fewer.nodes = [NODE_2].into();

    let image = Image::new(&fewer, &Settings::default()).unwrap();
    programs.maps.borrow_mut().apply(image).unwrap();

    let last_requests = programs.maps.borrow().last_requests().unwrap();
    assert_eq!(
        last_requests.into_keys().collect::<Vec<_>>(),
        [NODE_2.octets()]
    );
}

#[test]
fn only_requests_get_a_reply() {
    let programs = load(&tables());
    programs.beat(&heartbeat(0));
    let payload = Probe::request(1, 2).encode().to_vec();
    let mut foreign = payload.clone();
    foreign[0] ^= 1;
    let mut reply = Probe::request(1, 2);
    reply.body = heartbeat(0).body;
    let mut other_port = request(true, payload.clone());
    other_port.body = Body::Udp {
        ports: [PROBE_PORT, PROBE_PORT + 1],
        has_checksum: true,
        payload: payload.clone(),
    };
    let mut with_options = request(true, payload.clone());
    with_options.options = vec![1; 4];
    let echo = Body::Echo {
        kind: 8,
        payload: payload.clone(),
    };
    let packets = [
        request(true, Vec::new()).encode(),
        request(true, payload[1..].to_vec()).encode(),
        request(true, [payload.clone(), vec![0]].concat()).encode(),
        request(true, foreign).encode(),
        request(true, reply.encode().to_vec()).encode(),
        other_port.encode(),
        with_options.encode(),
        request(true, payload.clone()).fragments(80)[0].clone(),
        Packet::new(NODE, REPLICA, echo).encode(),
    ];

    for packet in packets {
        programs.assert_refused(
            |programs| programs.overlay(&from_node(&packet)),
            Counter::OverlayProbeMalformed,
        );
    }
}
