//! Measures the time from a change of one object until the gateway has its plan: the peers of the
//! engine, and the entries of the eBPF maps to write. The time includes the resolution.

use super::changes::{KINDS, LargeCluster};
use super::{file, simulation};
use crate::planned::Planned;
use cpu_time::CpuTime;
use criterion::{BenchmarkId, Criterion};
use ebpf::test_run::Contents;
use ebpf::{TableChanges, Tables};
use std::hint::black_box;

pub(crate) fn all(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("gateway");
    group.sample_size(10);
    for size in file::SIZES {
        let mut cluster = LargeCluster::new(size);
        let key = simulation::key_of(0x51, 0);
        let mut planned = Planned::new(cluster.fabric(), |_| Some(key.clone()));
        let mut contents = Contents::default();
        let calls = contents.update(&entries(&planned)).expect("it is valid");
        println!("gateway/{size}: {calls} entries of the eBPF maps");

        group.bench_function(BenchmarkId::new("plan all", size), |bencher| {
            bencher.iter(|| {
                let planned = Planned::new(black_box(&cluster).fabric(), |_| Some(key.clone()));
                let peers = planned.all_peers();
                let calls = Contents::default().update(&entries(&planned));
                (peers.peers.len(), calls)
            });
        });
        for kind in KINDS {
            let mut pair = cluster.changes(kind);
            let name = format!("plan after a change of one {kind}");
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter(|| {
                    let fabric = cluster.apply(pair.next());
                    let updated = planned.update(fabric, false, |_| Some(key.clone()));
                    let changes = updated.changes_since(&planned);
                    let command = changes.peer_changes();
                    let calls = contents.update(&changes.tables()).expect("it is valid");
                    assert!(calls > 0 || command.is_some());
                    drop(changes);
                    planned = updated;
                });
            });
        }
    }
    group.finish();
}

fn entries(planned: &Planned) -> TableChanges {
    TableChanges {
        removed: Tables::default(),
        added: planned.tables(),
    }
}
