//! Measures the time per run of each program in nanoseconds, and writes the results to
//! `target/ebpf-ns.json`.

use super::fixture::{net, tables};
use super::overlay::from_node;
use super::packet::{Body, Packet};
use super::tap::from_peer;
use super::{OUTER, Programs, REDIRECT, Run, load};
use crate::object::{OVERLAY_PROGRAM, TAP_PROGRAM};
use crate::tables::{Local, Outbound, Tables};
use ebpf_common::probe::{Heartbeat, Probe};
use ipnet::Ipv4Net;
use serde_json::json;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

const REPEAT: u32 = 100_000;

/// Numbers of prefixes that the test adds to the tables. Each added peer has ten prefixes.
const PREFIXES: [u32; 3] = [100, 10_000, 60_000];

/// A CIDR that is remapped to itself, so that all repetitions process the same packet.
const IDENTITY: &str = "10.200.0.0/16";

fn udp(source: &str, destination: &str, options: Vec<u8>, payload: Vec<u8>) -> Vec<u8> {
    let body = Body::Udp {
        ports: [6092, 6092],
        has_checksum: true,
        payload,
    };
    let mut packet = Packet::new(source, destination, body);
    packet.options = options;
    packet.encode()
}

#[test]
fn runs_cost_nanoseconds() {
    let mut tables = tables();
    let (identity, here) = (net(IDENTITY), net("10.244.1.0/24"));
    let route = Outbound {
        peer: 9,
        to: identity,
    };
    tables.outbound.insert(identity, route);
    tables.inbound.insert((9, identity), identity);
    tables.local.insert(here, Local::Node(OUTER));
    let programs = load(&tables);
    let _life = super::probe::liveness_socket();
    programs.beat(&Heartbeat {
        ktime_ns: u64::MAX,
        ..Heartbeat::new(false, 1, [true])
    });
    let (pod, remote) = ("10.244.1.10", "10.200.1.10");
    let spread = "10.244.9.9";
    let error = Body::Error {
        kind: 3,
        code: 3,
        quoted: Box::new(Packet::new(
            remote,
            pod,
            Body::Echo {
                kind: 8,
                payload: Vec::new(),
            },
        )),
        keep: 28,
    };
    let error = Packet::new(pod, remote, error).encode();
    let small = || vec![0; 36];
    let probe = Probe::request(1, 2).encode().to_vec();
    let mut foreign = from_node(&udp(pod, remote, vec![], small()));
    foreign[12..14].copy_from_slice(&[0x86, 0xdd]);
    let cases = [
        ("overlay, not IPv4", OVERLAY_PROGRAM, foreign),
        (
            "overlay, no peer",
            OVERLAY_PROGRAM,
            from_node(&udp(pod, pod, vec![], small())),
        ),
        (
            "overlay, plain",
            OVERLAY_PROGRAM,
            from_node(&udp(pod, remote, vec![], small())),
        ),
        (
            "overlay, options",
            OVERLAY_PROGRAM,
            from_node(&udp(pod, remote, vec![1; 4], small())),
        ),
        ("overlay, ICMP error", OVERLAY_PROGRAM, from_node(&error)),
        (
            "overlay, probe",
            OVERLAY_PROGRAM,
            from_node(&udp(pod, "169.254.19.1", vec![], probe)),
        ),
        (
            "TAP, plain",
            TAP_PROGRAM,
            from_peer(9, &udp(remote, pod, vec![], small())),
        ),
        (
            "TAP, spread",
            TAP_PROGRAM,
            from_peer(9, &udp(remote, spread, vec![], small())),
        ),
        (
            "TAP, options",
            TAP_PROGRAM,
            from_peer(9, &udp(remote, pod, vec![1; 4], small())),
        ),
    ];

    let mut figures = serde_json::Map::new();
    for (name, program, frame) in cases {
        let best = best(&programs, program, &frame);
        let is_repeatable = !["probe", "no peer", "not IPv4"]
            .iter()
            .any(|end| name.ends_with(end));
        assert!(!is_repeatable || best.verdict == REDIRECT, "{name}");
        println!("{name:<22} {:>5} ns", best.duration.as_nanos());
        figures.insert(name.to_owned(), json!(best.duration.as_nanos()));
    }

    for prefixes in PREFIXES {
        let programs = load(&many(&tables, prefixes));
        let out = from_node(&udp(pod, remote, vec![], small()));
        let back = from_peer(9, &udp(remote, pod, vec![], small()));
        for (name, program, frame) in [
            ("overlay", OVERLAY_PROGRAM, out),
            ("TAP", TAP_PROGRAM, back),
        ] {
            let best = best(&programs, program, &frame);
            let name = format!("{name}, {prefixes} prefixes");
            assert_eq!(best.verdict, REDIRECT, "{name}");
            println!("{name:<22} {:>5} ns", best.duration.as_nanos());
            figures.insert(name, json!(best.duration.as_nanos()));
        }
    }

    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    fs::create_dir_all(&target).unwrap();
    let figures = serde_json::to_string_pretty(&figures).unwrap();
    fs::write(target.join("ebpf-ns.json"), figures).unwrap();
}

/// Returns the fastest of five rounds, because other load on the machine only adds time.
fn best(programs: &Programs, program: &'static str, frame: &[u8]) -> Run {
    let runs = (0..5).map(|_| programs.run(program, frame, REPEAT));

    runs.min_by_key(|run| run.duration).unwrap()
}

/// Returns `tables` with `prefixes` additional prefixes of peers, and as many local prefixes.
fn many(tables: &Tables, prefixes: u32) -> Tables {
    let mut tables = tables.clone();
    for number in 0..prefixes {
        let net = |first: u32| {
            let address = Ipv4Addr::from_bits((first << 24) + (number << 8));
            Ipv4Net::new(address, 24).unwrap()
        };
        let (seen, original) = (net(20), net(40));
        let peer = u16::try_from(100 + number / 10).unwrap();
        let route = Outbound { peer, to: original };
        tables.outbound.insert(seen, route);
        tables.inbound.insert((peer, original), seen);
        tables.local.insert(net(60), Local::Node(OUTER));
    }

    tables
}
