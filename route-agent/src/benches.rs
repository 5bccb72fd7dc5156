//! Measures the CPU time of `plan` and `diff` for clusters of several sizes.
//!
//! Run the benchmark with `cargo bench --bench benches`. This file is a crate root like `main.rs`,
//! because the benchmark needs private modules of the binary.

#![forbid(unsafe_code)]
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the benchmark uses a part of the agent's modules, and runs none of their tests"
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

mod benches {
    #[path = "../../../control/fabric/benches/changes.rs"]
    pub(super) mod changes;
    pub(super) mod fabric;
    #[path = "../../../control/fabric/benches/file.rs"]
    pub(super) mod file;
}

use benches::changes::{KINDS, LargeCluster};
use benches::fabric::{self, Size};
use benches::file;
use control_fabric::Fabric;
use cpu_time::CpuTime;
use criterion::{BenchmarkId, Criterion};
use diff::{Op, diff};
use plan::{Input, Plan, plan};
use settings::Settings;
use state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::sync::LazyLock;
use underlay::Underlay;
use view::View;

fn main() {
    let mut criterion = cpu_time::criterion();

    for size in fabric::SIZES {
        bench(&mut criterion, size);
    }
    for size in file::SIZES {
        change(&mut criterion, size);
    }
    criterion.final_summary();
}

fn bench(criterion: &mut Criterion<CpuTime>, size: Size) {
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
    for (event, fabric, view) in fabric::events(&fabric) {
        let desired = planned(&fabric, &view, &state).state;
        let ops = diff(&state, &desired);
        println!("route-agent/{event}/{size}: {}", count(&ops));
        group.bench_function(BenchmarkId::new(event, size), |bencher| {
            bencher.iter(|| {
                let desired = planned(black_box(&fabric), &view, &state).state;
                diff(&state, &desired)
            });
        });
    }
    group.finish();
}

/// Measures the time from a change of one object until the agent has its plan: the changes of the
/// kernel's state. The time includes the resolution.
fn change(criterion: &mut Criterion<CpuTime>, size: file::Size) {
    let mut cluster = LargeCluster::new(size);
    let mut fabric = cluster.fabric();
    let view = fabric::all_up(&fabric);
    let mut state = planned(&fabric, &view, &State::default()).state;

    let mut group = criterion.benchmark_group("route-agent");
    group.bench_function(BenchmarkId::new("plan all and diff", size), |bencher| {
        bencher.iter(|| {
            let desired = planned(black_box(&fabric), &view, &state).state;
            diff(&state, &desired)
        });
    });
    for kind in KINDS {
        let mut pair = cluster.changes(kind);
        let name = format!("plan after a change of one {kind}");
        group.bench_function(BenchmarkId::new(name, size), |bencher| {
            bencher.iter(|| {
                let new = cluster.apply(pair.next());
                let change = new.changes_since(&fabric);
                let input = input(&new, &view, &state);
                let ops = plan::change::changes(&input, &fabric, &change);
                for op in ops.expect("a part of the plan changes") {
                    state.apply(&op);
                }
                drop(change);
                fabric = new;
            });
        });
    }
    group.finish();
}

fn planned(fabric: &Fabric, view: &View, observed: &State) -> Plan {
    let plan = plan(&input(fabric, view, observed));

    plan.expect("the fabric has the node, and few replicas")
}

fn input<'a>(fabric: &'a Fabric, view: &'a View, observed: &'a State) -> Input<'a> {
    static SETTINGS: LazyLock<Settings> = LazyLock::new(Settings::default);
    static UNDERLAY: LazyLock<Underlay> = LazyLock::new(|| Underlay {
        mtu_bytes: Some(1500),
        interfaces: BTreeSet::from(["eth0".to_owned()]),
    });

    Input {
        fabric,
        node: fabric::NODE,
        view,
        settings: &SETTINGS,
        underlay: &UNDERLAY,
        observed,
    }
}

/// Formats the number of changes of each kind.
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
