//! Benchmarks of parsing and checking the objects of a fabric, by their number.

mod changes;
mod file;

use control_fabric::{Fabric, Object, Objects, Tenancy, parse, plan, resolve};
use cpu_time::CpuTime;
use criterion::{BatchSize, BenchmarkId, Criterion};
use std::hint::black_box;

fn main() {
    let mut criterion = cpu_time::criterion();

    for size in file::SIZES {
        parse_and_check(&mut criterion, size);
        change(&mut criterion, size);
    }
    criterion.final_summary();
}

fn parse_and_check(criterion: &mut Criterion<CpuTime>, size: file::Size) {
    let text = file::of(size);
    let mut objects: Objects = parse(&text).expect("it is well-formed");
    plan(&mut objects).expect("it is right, and has room");

    let mut group = criterion.benchmark_group("fabric");
    group.sample_size(10);
    group.bench_function(BenchmarkId::new("parse a file", size), |bencher| {
        bencher.iter(|| parse(black_box(&text)));
    });
    group.bench_function(BenchmarkId::new("plan all addresses", size), |bencher| {
        let new = parse(&text).expect("it is well-formed");
        bencher.iter_batched(
            || new.clone(),
            |mut objects| plan(&mut objects),
            BatchSize::LargeInput,
        );
    });
    group.bench_function(BenchmarkId::new("check", size), |bencher| {
        bencher.iter(|| Fabric::try_from(black_box(&objects)));
    });
    let tenancy = Tenancy {
        liqo: "liqo".to_owned(),
        named: Vec::new(),
        labelled: changes::tenant_namespaces(&objects),
    };
    group.bench_function(BenchmarkId::new("copy and resolve all", size), |bencher| {
        let objects: Vec<Object> = objects.iter().cloned().collect();
        bencher.iter(|| {
            let mut copy = Objects::default();
            copy.extend(black_box(&objects).iter().cloned());
            tenancy.prune(&mut copy);
            resolve(copy)
        });
    });
    group.finish();
}

/// Measures the time from a change of one object until a process has the new fabric.
fn change(criterion: &mut Criterion<CpuTime>, size: file::Size) {
    let mut cluster = changes::LargeCluster::new(size);

    let mut group = criterion.benchmark_group("resolve a change");
    for kind in changes::KINDS {
        let mut pair = cluster.changes(kind);
        group.bench_function(BenchmarkId::new(kind, size), |bencher| {
            bencher.iter(|| {
                // The consumer keeps the last fabric and compares it with the new one.
                let before = cluster.fabric();
                let after = cluster.apply(pair.next());
                assert!(!after.changes_since(&before).is_empty());
            });
        });
    }
    group.finish();
}
