//! Measures the costs of many peers in the engine: start, change of one peer, timers, handshakes.

use super::simulation::{Simulation, serving};
use cpu_time::CpuTime;
use criterion::{BatchSize, BenchmarkId, Criterion};
use std::time::Duration;

const PEERS: [u16; 3] = [10, 100, 1_000];

/// Number of prefixes of each peer.
const PREFIXES: u8 = 10;

/// Interval between two probes of a session.
const TICK: Duration = Duration::from_millis(250);

pub(crate) fn all(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("gateway");
    group.sample_size(10);
    for peers in PEERS {
        group.bench_function(BenchmarkId::new("start with peers", peers), |bencher| {
            let configs = || -> Vec<_> { (0..peers).map(|peer| serving(peer, PREFIXES)).collect() };
            bencher.iter_batched(
                || (Simulation::new(0), configs()),
                |(mut simulation, configs)| {
                    simulation.gateway.set_peers(configs, simulation.now);
                    simulation
                },
                BatchSize::PerIteration,
            );
        });

        let mut simulation = Simulation::connected(peers);
        group.bench_function(BenchmarkId::new("change one peer of", peers), |bencher| {
            let mut mtu = 1_300;
            bencher.iter_batched(
                || {
                    mtu ^= 1;
                    let mut config = serving(peers / 2, 1);
                    config.mtu = mtu;
                    vec![config]
                },
                |changed| (simulation.gateway).change_peers(changed, &[], simulation.now),
                BatchSize::PerIteration,
            );
        });
        // The measured CPU time includes the gateway's timers, the probes that it sends, and its
        // processing of the probes and replies that it receives.
        group.bench_function(BenchmarkId::new("one idle second with", peers), |bencher| {
            bencher.iter_custom(|seconds| {
                let before = simulation.busy;
                for _ in 0..seconds * 50 {
                    simulation.run(TICK / 12);
                }
                simulation.busy - before
            });
        });
        // This benchmark measures the CPU time that a restarted gateway needs until all peers are
        // connected again.
        let mut waited = Duration::ZERO;
        group.bench_function(BenchmarkId::new("handshakes of all of", peers), |bencher| {
            bencher.iter_custom(|times| {
                let mut busy = Duration::ZERO;
                for _ in 0..times {
                    simulation.restart();
                    waited = simulation.connect();
                    busy += simulation.busy;
                }
                busy
            });
        });
        // `waited` is zero if the command line excludes the benchmark above.
        if !waited.is_zero() {
            println!("gateway/all {peers} peers were connected after {waited:?} of simulated time");
        }
    }
    group.finish();
}
