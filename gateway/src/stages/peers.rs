//! What many peers cost the engine: their timers, their handshakes, a change of one of them.

use super::site::{Site, serving};
use cpu_time::CpuTime;
use criterion::{BatchSize, BenchmarkId, Criterion};
use std::time::Duration;

const PEERS: [u16; 3] = [10, 100, 1_000];
/// Prefixes of each.
const PREFIXES: u8 = 10;
/// How often a gateway looks at all of its sessions.
const TICK: Duration = Duration::from_millis(250);

pub(crate) fn all(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("gateway");
    group.sample_size(10);
    for peers in PEERS {
        group.bench_function(BenchmarkId::new("start with peers", peers), |bencher| {
            let configs = || -> Vec<_> { (0..peers).map(|peer| serving(peer, PREFIXES)).collect() };
            bencher.iter_batched(
                || (Site::new(0), configs()),
                |(mut site, configs)| {
                    site.gateway.set_peers(configs, site.now);
                    site
                },
                BatchSize::PerIteration,
            );
        });

        let mut site = Site::connected(peers);
        group.bench_function(BenchmarkId::new("change one peer of", peers), |bencher| {
            let mut mtu = 1_300;
            bencher.iter_batched(
                || {
                    let mut configs: Vec<_> = (0..peers).map(|peer| serving(peer, 1)).collect();
                    mtu ^= 1;
                    configs[usize::from(peers / 2)].mtu = mtu;
                    configs
                },
                |configs| site.gateway.set_peers(configs, site.now),
                BatchSize::PerIteration,
            );
        });
        // Everything due within a second, the peers' probes and answers included.
        group.bench_function(BenchmarkId::new("one idle second with", peers), |bencher| {
            bencher.iter_custom(|seconds| {
                let before = site.busy;
                for _ in 0..seconds * 50 {
                    site.run(TICK / 12);
                }
                site.busy - before
            });
        });
        // A gateway that starts anew while all its peers call: what that takes of its processor.
        let mut waited = Duration::ZERO;
        group.bench_function(BenchmarkId::new("handshakes of all of", peers), |bencher| {
            bencher.iter_custom(|times| {
                let mut busy = Duration::ZERO;
                for _ in 0..times {
                    site.restart();
                    waited = site.connect();
                    busy += site.busy;
                }
                busy
            });
        });
        // Nothing was waited for if the command line chose other benchmarks.
        if !waited.is_zero() {
            println!("gateway/all {peers} peers were back after {waited:?} of their own time");
        }
    }
    group.finish();
}
