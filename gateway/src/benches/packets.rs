//! Measures each stage of packet processing: segmentation, coalescing, encryption, session lookup.

use super::simulation::{Simulation, address};
use crate::engine::{PortId, Received};
use crate::offload::checksum::Sum;
use crate::offload::coalesce::Coalescer;
use crate::offload::ipv4;
use crate::offload::split::Split;
use crate::offload::vnet::{self, Gso, Partial};
use cpu_time::CpuTime;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use ebpf_common::settings::Settings;
use std::cell::RefCell;
use std::hint::black_box;

/// Lengths of packets in bytes: a small packet, and a packet of the tunnel's MTU.
const SIZES: [usize; 2] = [92, 1_340];

/// Numbers of peers. The time to look up a session must not depend on the number of peers.
const PEERS: [u16; 3] = [10, 100, 1_000];

/// Length of IPv4 and TCP header, in bytes.
const HEADERS: usize = 40;

/// Payload of a TCP segment in bytes: the tunnel's MTU minus [`HEADERS`].
const SEGMENT: usize = 1_300;

/// Number of segments in a super-packet.
const SEGMENTS: usize = 48;

pub(crate) fn all(criterion: &mut Criterion<CpuTime>) {
    split(criterion);
    coalesce(criterion);
    crypt(criterion);
    lookup(criterion);
}

fn split(criterion: &mut Criterion<CpuTime>) {
    let packet = tcp(0, SEGMENT * SEGMENTS);
    let header = vnet::Header {
        gso: Gso::TcpV4 { ecn: false },
        header_len: 54,
        gso_size: short(SEGMENT),
        partial: Some(Partial {
            start: 34,
            offset: 16,
        }),
    };

    let mut group = criterion.benchmark_group("gateway");
    group.throughput(Throughput::Elements(SEGMENTS as u64));
    group.bench_function("split a super-packet", |bencher| {
        let mut packet = packet.clone();
        bencher.iter(|| {
            // The previous segmentation has overwritten the headers in place.
            packet[..HEADERS].copy_from_slice(&tcp_headers(0, SEGMENT * SEGMENTS));
            let mut split = Split::new(header, &mut packet).expect("the headers are valid");
            let mut cut = 0;
            while let Some(segment) = split.next() {
                cut += black_box(segment).len();
            }
            cut
        });
    });
    group.finish();
}

fn coalesce(criterion: &mut Criterion<CpuTime>) {
    let segments: Vec<_> = (0..SEGMENTS)
        .map(|at| {
            let sequence = u32::try_from(at * SEGMENT).expect("below 64 KiB");
            let mut packet = tcp(sequence, SEGMENT);
            complete(&mut packet);
            packet
        })
        .collect();
    let mut coalescer = Coalescer::new(Settings::default(), true);

    let mut group = criterion.benchmark_group("gateway");
    group.throughput(Throughput::Elements(SEGMENTS as u64));
    group.bench_function("coalesce a super-packet", |bencher| {
        bencher.iter(|| {
            let mut writes = 0;
            let mut write = |frame: &[u8]| writes += usize::from(!black_box(frame).is_empty());
            for segment in &segments {
                coalescer.room()[..segment.len()].copy_from_slice(segment);
                coalescer.push(1, segment.len(), &mut write);
            }
            coalescer.flush(&mut write);
            assert_eq!(writes, 1, "all segments fit into one super-packet");
        });
    });
    group.finish();
}

fn crypt(criterion: &mut Criterion<CpuTime>) {
    let simulation = RefCell::new(Simulation::connected(1));
    let session = simulation
        .borrow()
        .gateway
        .select(0, 7, std::net::Ipv4Addr::UNSPECIFIED)
        .expect("the peer is connected");
    let mut out = vec![0; 2_048];

    let mut group = criterion.benchmark_group("gateway");
    for size in SIZES {
        let packet = udp(size);
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::new("seal", size), |bencher| {
            let gateway = &mut simulation.borrow_mut().gateway;
            bencher.iter(|| gateway.seal(session, black_box(&packet), &mut out));
        });
        group.bench_function(
            BenchmarkId::new("look up, open and check", size),
            |bencher| {
                let (now, from) = (simulation.borrow().now, address(0));
                bencher.iter_batched(
                    // Each iteration needs a new datagram, because the engine drops replays.
                    || simulation.borrow_mut().datagram_from(0, &packet),
                    |mut datagram| {
                        let gateway = &mut simulation.borrow_mut().gateway;
                        let datagram = &mut datagram;
                        let outcome =
                            gateway.handle_datagram(PortId::LISTEN, from, datagram, &mut out, now);
                        assert!(matches!(outcome, Received::Packet { .. }), "{outcome:?}");
                    },
                    BatchSize::SmallInput,
                );
            },
        );
    }
    group.finish();
}

fn lookup(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("gateway");
    for peers in PEERS {
        let simulation = Simulation::connected(peers);
        let mut at = 0_u32;
        group.bench_function(BenchmarkId::new("select a session", peers), |bencher| {
            bencher.iter(|| {
                // A linear congruential generator selects the peers, because CPU caches would speed
                // up the lookup of peers in a fixed order.
                at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let peer = u16::try_from(at >> 16).unwrap_or_default() % peers;
                let session =
                    simulation
                        .gateway
                        .select(peer, black_box(at), std::net::Ipv4Addr::UNSPECIFIED);
                session.and_then(|session| simulation.gateway.destination(session))
            });
        });
    }
    group.finish();
}

/// Returns a UDP packet of `len` bytes whose source and destination address are equal.
pub(super) fn udp(len: usize) -> Vec<u8> {
    let mut packet = ip(17, len);
    packet.resize(len, 0);

    packet
}

/// Returns a TCP packet with `len` bytes of payload.
///
/// The checksum field holds only the sum of the pseudo-header; [`complete`] writes the checksum.
fn tcp(sequence: u32, len: usize) -> Vec<u8> {
    let mut packet = tcp_headers(sequence, len).to_vec();
    packet.resize(HEADERS + len, 0x5a);

    packet
}

fn tcp_headers(sequence: u32, len: usize) -> [u8; HEADERS] {
    const ACK: u8 = 0x10;

    let mut headers = [0; HEADERS];
    headers[..20].copy_from_slice(&ip(6, HEADERS + len));
    headers[20..24].copy_from_slice(&[0x30, 0x39, 0x00, 0x35]);
    headers[24..28].copy_from_slice(&sequence.to_be_bytes());
    headers[32] = 0x50;
    headers[33] = ACK;
    let partial = sum(&headers, HEADERS + len).partial();
    headers[36..38].copy_from_slice(&partial);

    headers
}

/// Writes the TCP checksum into a packet.
fn complete(packet: &mut [u8]) {
    packet[36..38].copy_from_slice(&[0, 0]);
    let sum = sum(packet, packet.len()).add(&packet[20..]).finish();
    packet[36..38].copy_from_slice(&sum);
}

fn sum(packet: &[u8], len: usize) -> Sum {
    let address = |at: usize| [packet[at], packet[at + 1], packet[at + 2], packet[at + 3]];

    Sum::pseudo(address(12), address(16), 6, short(len - 20))
}

fn ip(protocol: u8, len: usize) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0];
    header[2..4].copy_from_slice(&short(len).to_be_bytes());
    header.extend([10, 244, 0, 10, 10, 244, 0, 10]);
    let end = header.len();
    ipv4::finish_header(&mut header, end, short(len));

    header
}

fn short(len: usize) -> u16 {
    u16::try_from(len).expect("a packet is shorter than 64 KiB")
}
