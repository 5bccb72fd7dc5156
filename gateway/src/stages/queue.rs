//! Packets that wait for a session.

use super::site::{Site, serving};
use cpu_time::CpuTime;
use criterion::{BenchmarkId, Criterion};
use std::hint::black_box;

/// How many peers do not answer.
const PEERS: [u16; 3] = [10, 100, 1_000];
const PACKET: [u8; 1_340] = [0x45; 1_340];
/// Packets that fill the queues of all peers.
const FULL: usize = 4 * 1024 * 1024 / PACKET.len();

pub(crate) fn all(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("gateway");
    for peers in PEERS {
        let mut site = Site::new(0);
        let silent = (0..peers).map(|peer| serving(peer, 1)).collect();
        site.gateway.set_peers(silent, site.now);
        let mut next = 0;
        let mut queue = |site: &mut Site| {
            next = (next + 1) % peers;
            site.gateway.queue(next, black_box(&PACKET), site.now);
        };
        for _ in 0..FULL {
            queue(&mut site);
        }

        group.bench_function(BenchmarkId::new("queue a packet, full", peers), |bencher| {
            bencher.iter(|| queue(&mut site));
        });
        // What every datagram of others asks: may something of the queue go now?
        let mut out = vec![0; 2_048];
        group.bench_function(BenchmarkId::new("ask the queue, full", peers), |bencher| {
            bencher.iter(|| site.gateway.poll_queued(&mut out));
        });
    }
    group.finish();
}
