//! What it costs to plan and to compare, by the size of the cluster: a benchmark, `cargo bench`.
//!
//! It stands beside `main.rs` because it is made of the same modules, which nobody else can name.

#![forbid(unsafe_code)]
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the modules serve the agent, of which this is a part; a benchmark has their tests, but does not run them"
)]

mod diff;
mod filter;
mod liveness;
mod mutant;
mod plan;
mod ruleset;
mod settings;
mod state;
mod underlay;
mod view;

#[cfg(test)]
mod testing;

mod stages {
    pub(super) mod fabric;
}

use control_api::fabric::Fabric;
use cpu_time::CpuTime;
use criterion::{BenchmarkId, Criterion};
use diff::{Op, diff};
use plan::{Input, Plan, plan};
use settings::Settings;
use stages::fabric::{self, Size};
use state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use underlay::Underlay;
use view::View;

fn main() {
    let mut criterion = cpu_time::criterion();

    for size in fabric::SIZES {
        stages_of(&mut criterion, size);
    }
    criterion.final_summary();
}

fn stages_of(criterion: &mut Criterion<CpuTime>, size: Size) {
    let fabric = fabric::of(size);
    let view = fabric::all_up(&fabric);
    let state = planned(&fabric, &view, &State::default()).state;

    let mut group = criterion.benchmark_group("route-agent");
    group.bench_function(BenchmarkId::new("plan", size), |bencher| {
        bencher.iter(|| planned(black_box(&fabric), &view, &state));
    });
    group.bench_function(BenchmarkId::new("diff, nothing changed", size), |bencher| {
        bencher.iter(|| diff(black_box(&state), &state));
    });
    for (what, fabric, view) in fabric::changes(&fabric) {
        let desired = planned(&fabric, &view, &state).state;
        let ops = diff(&state, &desired);
        println!("route-agent/{what}/{size}: {}", count(&ops));
        group.bench_function(BenchmarkId::new(what, size), |bencher| {
            bencher.iter(|| {
                let desired = planned(black_box(&fabric), &view, &state).state;
                diff(&state, &desired)
            });
        });
    }
    group.finish();
}

fn planned(fabric: &Fabric, view: &View, observed: &State) -> Plan {
    plan(&Input {
        fabric,
        node: fabric::NODE,
        view,
        settings: &Settings::default(),
        underlay: &Underlay {
            mtu_bytes: Some(1500),
            interfaces: BTreeSet::from(["eth0".to_owned()]),
        },
        observed,
    })
    .expect("the fabric has the node, and few replicas")
}

/// Says how many changes of each kind there are: each is one request to the kernel, or a few.
fn count(ops: &[Op]) -> String {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for op in ops {
        let text = format!("{op:?}");
        let name = text.split(['(', ' ']).next().unwrap_or_default();
        *kinds.entry(name.to_owned()).or_default() += 1;
    }
    let kinds: Vec<_> = kinds
        .iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();

    format!("{} changes: {}", ops.len(), kinds.join(", "))
}
