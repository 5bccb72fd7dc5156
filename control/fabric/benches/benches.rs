//! Benchmarks of parsing and checking the objects of a fabric, by their number.

mod file;

use control_fabric::{Fabric, Objects, admit, parse, plan};
use cpu_time::CpuTime;
use criterion::{BatchSize, BenchmarkId, Criterion};
use std::hint::black_box;

fn main() {
    let mut criterion = cpu_time::criterion();

    for size in file::SIZES {
        parse_and_check(&mut criterion, size);
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
    group.bench_function(BenchmarkId::new("plan addresses anew", size), |bencher| {
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
    // Each process that watches the API server repeats this at each change of an object.
    group.bench_function(BenchmarkId::new("copy and admit", size), |bencher| {
        bencher.iter(|| admit(black_box(&objects).clone()));
    });
    group.finish();
}
