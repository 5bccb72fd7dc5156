//! Medians, targets and tables of the control runtime's benchmark. All functions are pure.

use crate::bench::control_plane::{Outcome, file_name, heading};
use crate::bench::limits::{self, Limited, shown};
use crate::bench::setting::Checkout;
use crate::bench::stats::Summary;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// Limit on the memory of a manager with offloading, in MB.
const MEMORY_MB_MAX: f64 = 60.0;

/// Limit on the time until all objects are in the cache, in seconds.
const LISTED_S_MAX: f64 = 5.0;

/// Limit on the CPU time per change, as a ratio of that with the fewest objects. "Flat", with room for
/// the depth of ordered maps and for cache misses.
const GROWTH_MAX: f64 = 1.5;

/// The number of watches that share a connection.
const WATCHES_PER_CONNECTION: u64 = 90;

/// The samples that the measuring program prints.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Samples {
    follower: Vec<FollowerSample>,
    manager: Vec<ProcessSample>,
}

/// A start of the process that follows Pods and EndpointSlices.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct FollowerSample {
    pods: u32,
    slices: u32,
    #[serde(flatten)]
    process: ProcessSample,
    /// CPU time per change, in microseconds.
    change_us: f64,
    /// Memory after the changes, in bytes.
    changed_bytes: u64,
}

/// A start of a process.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct ProcessSample {
    round: u32,
    /// Time from the start until all objects are in the cache, in seconds.
    listed_s: f64,
    /// Memory when all objects are in the cache, in bytes.
    resident_bytes: u64,
    peak_bytes: u64,
    /// CPU time from the start until all objects are in the cache, in seconds.
    listed_cpu_s: f64,
    watches: u64,
    connections: u64,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    setting: Checkout,
    targets: Vec<Limited>,
    rows: Vec<Row>,
    samples: Samples,
}

/// The medians of a process in a stage, with their ranges.
#[derive(Clone, Debug, Serialize)]
struct Row {
    process: String,
    listed_s: Summary,
    listed_cpu_s: Summary,
    memory_mb: Summary,
    peak_mb: Summary,
    /// `None` for a process without changes.
    change_us: Option<Summary>,
    watches: u64,
    connections: u64,
}

impl Report {
    pub(super) fn new(setting: Checkout, samples: Samples) -> Self {
        let rows = rows(&samples);

        Self {
            targets: judge(&rows),
            setting,
            rows,
            samples,
        }
    }

    fn rows_table(&self) -> String {
        let mut text = String::from(
            "| process | cache complete, s | CPU time until then, s | memory, MB | peak, MB | CPU time per \
             change, us | watches | connections |\n|---|---|---|---|---|---|---|---|\n",
        );
        for row in &self.rows {
            let change = row.change_us.as_ref();
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} |",
                row.process,
                shown(&row.listed_s, 2),
                shown(&row.listed_cpu_s, 2),
                shown(&row.memory_mb, 1),
                shown(&row.peak_mb, 1),
                change.map_or_else(|| "-".to_owned(), |change| shown(change, 0)),
                row.watches,
                row.connections
            );
        }

        text
    }
}

impl Outcome for Report {
    fn name(&self) -> String {
        file_name(&self.setting, "runtime")
    }

    fn table(&self) -> String {
        format!("{}\n{}", limits::table(&self.targets), self.rows_table())
    }

    fn markdown(&self) -> String {
        format!(
            "{}\n## Targets\n\n{}\n## Medians, with ranges\n\n{}",
            heading("Control runtime", &self.setting, "runtime.md"),
            limits::table(&self.targets),
            self.rows_table()
        )
    }

    fn targets(&self) -> &[Limited] {
        &self.targets
    }
}

fn rows(samples: &Samples) -> Vec<Row> {
    let mut stages: Vec<_> = samples
        .follower
        .iter()
        .map(|it| (it.pods, it.slices))
        .collect();
    stages.dedup();
    let mut rows = Vec::new();
    for (pods, slices) in stages {
        let of_stage = samples.follower.iter();
        let of_stage = of_stage.filter(|it| (it.pods, it.slices) == (pods, slices));
        let of_stage: Vec<_> = of_stage.collect();
        let processes: Vec<_> = of_stage.iter().map(|it| &it.process).collect();
        let name = format!("runtime, {pods} pods, {slices} EndpointSlices");
        let Some(mut row) = row(name, &processes) else {
            continue;
        };
        row.change_us = Summary::of(of_stage.iter().map(|it| it.change_us));
        // The larger of the memory before and after the changes.
        let memory =
            (of_stage.iter()).map(|it| megabytes(it.changed_bytes.max(it.process.resident_bytes)));
        row.memory_mb = Summary::of(memory).unwrap_or(row.memory_mb);
        rows.push(row);
    }
    let managers: Vec<_> = samples.manager.iter().collect();
    rows.extend(row("controller manager, 100 tenants".to_owned(), &managers));

    rows
}

/// Returns the medians of several starts; `None` if there are none.
fn row(process: String, samples: &[&ProcessSample]) -> Option<Row> {
    let summary =
        |value: fn(&ProcessSample) -> f64| Summary::of(samples.iter().map(|sample| value(sample)));

    Some(Row {
        process,
        listed_s: summary(|it| it.listed_s)?,
        listed_cpu_s: summary(|it| it.listed_cpu_s)?,
        memory_mb: summary(|it| megabytes(it.resident_bytes))?,
        peak_mb: summary(|it| megabytes(it.peak_bytes))?,
        change_us: None,
        watches: samples.iter().map(|it| it.watches).max()?,
        connections: samples.iter().map(|it| it.connections).max()?,
    })
}

#[expect(clippy::cast_precision_loss, reason = "the value is only displayed")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Compares the medians with the targets. A manager with offloading is one process, but is measured
/// as two. Both contain the memory of a runtime with few objects, which counts once.
fn judge(rows: &[Row]) -> Vec<Limited> {
    let followers = || rows.iter().filter(|row| row.change_us.is_some());
    let manager = rows.iter().find(|row| row.change_us.is_none());
    let (Some(fewest), Some(most), Some(manager)) =
        (followers().next(), followers().next_back(), manager)
    else {
        return Vec::new();
    };
    let change = |row: &Row| row.change_us.as_ref().map_or(f64::NAN, |it| it.median);
    let mut verdicts = vec![
        Limited::at_most(
            "memory, MB: the runtime with all objects, plus what the controller manager adds",
            MEMORY_MB_MAX,
            most.memory_mb.median + manager.memory_mb.median - fewest.memory_mb.median,
        ),
        Limited::at_most(
            "CPU time per change: ratio of most to fewest objects",
            GROWTH_MAX,
            change(most) / change(fewest),
        ),
        Limited::at_most(
            "cache complete, s: runtime",
            LISTED_S_MAX,
            most.listed_s.median,
        ),
        Limited::at_most(
            "cache complete, s: controller manager",
            LISTED_S_MAX,
            manager.listed_s.median,
        ),
    ];
    for (what, row) in [
        ("connections: runtime", most),
        ("connections: controller manager", manager),
    ] {
        let limit = row.watches.div_ceil(WATCHES_PER_CONNECTION) + 1;
        verdicts.push(Limited::at_most(what, small(limit), small(row.connections)));
    }

    verdicts
}

fn small(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(round: u32, megabytes: u64) -> ProcessSample {
        ProcessSample {
            round,
            listed_s: 2.0,
            resident_bytes: megabytes * 1_000_000,
            peak_bytes: megabytes * 1_000_000,
            listed_cpu_s: 1.0,
            watches: 103,
            connections: 3,
        }
    }

    fn follower(slices: u32, megabytes: u64, change_us: f64) -> FollowerSample {
        FollowerSample {
            pods: 0,
            slices,
            process: process(1, megabytes),
            change_us,
            changed_bytes: (megabytes + 1) * 1_000_000,
        }
    }

    fn verdicts(follower: Vec<FollowerSample>, manager: u64) -> Vec<bool> {
        let manager = vec![process(1, manager)];
        let verdicts = judge(&rows(&Samples { follower, manager }));
        verdicts.iter().map(|it| it.pass).collect()
    }

    #[test]
    fn the_memory_of_both_processes_and_the_growth_are_limited() {
        let flat = vec![follower(100, 9, 100.0), follower(20_000, 49, 140.0)];
        assert_eq!(verdicts(flat, 20), [true; 6]);

        let growing = vec![follower(100, 9, 100.0), follower(20_000, 49, 160.0)];
        assert_eq!(
            verdicts(growing, 21),
            [false, false, true, true, true, true]
        );
    }

    #[test]
    fn the_watches_of_a_process_need_one_connection_for_each_ninety() {
        let mut sample = follower(100, 9, 100.0);
        sample.process.connections = 4;

        assert_eq!(
            verdicts(vec![sample], 10),
            [true, true, true, true, false, true]
        );
    }

    #[test]
    fn samples_are_read_as_they_are_printed() {
        let text = r#"{"follower": [{"pods": 0, "slices": 100, "round": 1, "listed_s": 1.0,
            "resident_bytes": 1, "peak_bytes": 1, "listed_cpu_s": 0.5, "watches": 3, "connections": 1,
            "change_us": 2.0, "changed_bytes": 1}], "manager": []}"#;

        let samples: Samples = serde_json::from_str(text).unwrap();

        assert_eq!(
            rows(&samples)[0].process,
            "runtime, 0 pods, 100 EndpointSlices"
        );
    }
}
