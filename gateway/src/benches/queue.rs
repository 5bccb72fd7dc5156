//! Measures the queue of packets for peers without a session.

use super::simulation::{Simulation, serving};
use cpu_time::CpuTime;
use criterion::{BenchmarkId, Criterion};
use std::hint::black_box;

/// Numbers of peers without a session.
const PEERS: [u16; 3] = [10, 100, 1_000];

const PACKET: [u8; 1_340] = [0x45; 1_340];

/// Number of packets that fill the engine's queue, whose limit is 4 MiB for all peers together.
const FULL: usize = 4 * 1024 * 1024 / PACKET.len();

pub(crate) fn all(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("gateway");
    for peers in PEERS {
        let mut simulation = Simulation::new(0);
        let silent = (0..peers).map(|peer| serving(peer, 1)).collect();
        simulation.gateway.set_peers(silent, simulation.now);
        let mut next = 0;
        let mut queue = |simulation: &mut Simulation| {
            next = (next + 1) % peers;
            simulation
                .gateway
                .queue(next, black_box(&PACKET), simulation.now);
        };
        for _ in 0..FULL {
            queue(&mut simulation);
        }

        group.bench_function(BenchmarkId::new("queue a packet, full", peers), |bencher| {
            bencher.iter(|| queue(&mut simulation));
        });
        // The lane polls the queue after every received datagram.
        let mut out = vec![0; 2_048];
        group.bench_function(BenchmarkId::new("poll the queue, full", peers), |bencher| {
            bencher.iter(|| simulation.gateway.poll_queued(&mut out));
        });
    }
    group.finish();
}
