//! Medians, targets and tables of the benchmark of offloaded pods. All functions are pure.

use crate::bench::control_plane::{Outcome, file_name, heading};
use crate::bench::limits::{self, Limited, shown};
use crate::bench::setting::Checkout;
use crate::bench::stats::Summary;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The samples as the measuring program prints them, which describes the fields.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Samples {
    pods: u32,
    rounds: Vec<Pair>,
    admission_at_rest: Vec<Latency>,
    admission: Vec<Latency>,
    networking_off: Pair,
    virtual_nodes: Vec<VirtualNode>,
    exec: Vec<Exec>,
    unoffload: Vec<Unoffload>,
    memory: Memory,
    hollow: Vec<Hollow>,
}

/// A batch of the provider's own pods, and a batch of offloaded ones.
type Pair = [Batch; 2];

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Batch {
    create: Step,
    delete: Step,
    /// From the binding of each pod until it exists at the provider; for pods of the provider, until the first status of the
    /// kubelet.
    placed_s: Vec<f64>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Step {
    seconds: f64,
    requests: f64,
    api_servers_cpu_s: f64,
    liqo_cpu_s: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Latency {
    webhook: String,
    calls: f64,
    median_ms: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct VirtualNode {
    bare_pod_s: f64,
    first_s: f64,
    again_s: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Exec {
    native_s: f64,
    offloaded_s: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Unoffload {
    command_s: f64,
    objects_s: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Hollow {
    pods: u32,
    batch: Batch,
    virtual_kubelet_mb: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Memory {
    consumer_mb: f64,
    virtual_kubelet_mb: f64,
    with_pods_mb: f64,
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

/// A measured number: the median with the range, for native pods where there are any.
#[derive(Clone, Debug, Serialize)]
struct Row {
    what: &'static str,
    native: Option<Summary>,
    offloaded: Summary,
    digits: usize,
}

impl Report {
    pub(super) fn new(setting: Checkout, samples: Samples) -> Self {
        Self {
            targets: judge(&samples),
            rows: rows(&samples),
            setting,
            samples,
        }
    }

    fn rows_table(&self) -> String {
        let mut text = format!(
            "| {} pods | native | offloaded |\n|---|---|---|\n",
            self.samples.pods
        );
        for row in &self.rows {
            let shown = |it| shown(it, row.digits);
            let native = row.native.as_ref().map_or_else(|| "-".to_owned(), shown);
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| {} | {native} | {} |",
                row.what,
                shown(&row.offloaded)
            );
        }

        text
    }
}

/// Returns a table of the costs by number of pods on simulated nodes.
fn hollow_table(samples: &[Hollow]) -> String {
    let mut text = String::from(
        "| pods on simulated nodes | ready, s | gone, s | placed, median (worst), s | requests per pod, creation | \
         API servers' CPU per pod, ms | Liqo's CPU per pod, ms | virtual kubelet, MB |\n|---|---|---|---|---|---|---|---|\n",
    );
    for Hollow {
        pods,
        batch,
        virtual_kubelet_mb,
    } in samples
    {
        let Batch {
            create,
            delete,
            placed_s,
        } = batch;
        let per_pod = |seconds: f64| seconds * 1e3 / f64::from(*pods);
        let placed = Summary::of(placed_s.iter().copied());
        let placed = placed.map(|it| format!("{:.2} ({:.2})", it.median, it.max));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {pods} | {:.1} | {:.1} | {} | {:.1} | {:.1} | {:.1} | {virtual_kubelet_mb:.1} |",
            create.seconds,
            delete.seconds,
            placed.unwrap_or_default(),
            create.requests,
            per_pod(create.api_servers_cpu_s),
            per_pod(create.liqo_cpu_s),
        );
    }

    text
}

impl Outcome for Report {
    fn name(&self) -> String {
        file_name(&self.setting, "offload")
    }

    fn table(&self) -> String {
        format!(
            "{}\n{}\n{}",
            limits::table(&self.targets),
            self.rows_table(),
            hollow_table(&self.samples.hollow)
        )
    }

    fn markdown(&self) -> String {
        format!(
            "{}\n## Targets\n\n{}\n## Medians, with ranges\n\n{}\n## Cost by number of pods\n\n{}",
            heading("Offloading", &self.setting, "offload.md"),
            limits::table(&self.targets),
            self.rows_table(),
            hollow_table(&self.samples.hollow)
        )
    }

    fn targets(&self) -> &[Limited] {
        &self.targets
    }
}

/// The webhook that reviews pods of offloaded namespaces.
const PODS: &str = "pod.mutate.liqo.io";

/// A number of a batch.
type Number = fn(&Batch) -> f64;

/// The numbers of batches, with their digits after the point.
const NUMBERS: [(&str, Number, usize); 8] = [
    ("created until all are ready, s", |it| it.create.seconds, 1),
    ("deleted until all are gone, s", |it| it.delete.seconds, 1),
    ("requests per pod created", |it| it.create.requests, 1),
    ("requests per pod deleted", |it| it.delete.requests, 1),
    (
        "API servers' CPU, creation, s",
        |it| it.create.api_servers_cpu_s,
        2,
    ),
    ("Liqo's CPU, creation, s", |it| it.create.liqo_cpu_s, 2),
    (
        "API servers' CPU, deletion, s",
        |it| it.delete.api_servers_cpu_s,
        2,
    ),
    ("Liqo's CPU, deletion, s", |it| it.delete.liqo_cpu_s, 2),
];

fn rows(samples: &Samples) -> Vec<Row> {
    let of_batches = NUMBERS.iter().filter_map(|&(what, number, digits)| {
        let of = |index: usize| Summary::of(samples.rounds.iter().map(|it| number(&it[index])));
        Some(Row {
            what,
            native: of(0),
            offloaded: of(1)?,
            digits,
        })
    });
    let Samples {
        exec,
        unoffload,
        virtual_nodes: nodes,
        ..
    } = samples;
    let bare = of(nodes, |it| it.bare_pod_s);
    let others = [
        (
            "bound until placed (native: until the kubelet's first status), s",
            placed(samples, 0),
            placed(samples, 1),
            3,
        ),
        (
            "`kubectl exec`, s",
            of(exec, |it| it.native_s),
            of(exec, |it| it.offloaded_s),
            3,
        ),
        ("`unoffload`, s", None, of(unoffload, |it| it.command_s), 2),
        (
            "of it, objects, s",
            None,
            of(unoffload, |it| it.objects_s),
            2,
        ),
        (
            "review of a pod during the batches, ms",
            None,
            Summary::of(median_of(&samples.admission, PODS)),
            1,
        ),
        ("virtual node ready, s", bare, of(nodes, |it| it.first_s), 2),
        ("the same, again, s", bare, of(nodes, |it| it.again_s), 2),
    ];
    let others = others.into_iter().filter_map(|(what, native, it, digits)| {
        Some(Row {
            what,
            native,
            offloaded: it?,
            digits,
        })
    });

    of_batches.chain(others).collect()
}

fn of<T>(samples: &[T], number: fn(&T) -> f64) -> Option<Summary> {
    Summary::of(samples.iter().map(number))
}

/// Summarizes [`Batch::placed_s`] of one batch of each pair.
fn placed(samples: &Samples, index: usize) -> Option<Summary> {
    let batches = samples.rounds.iter().map(|it| &it[index]);
    Summary::of(batches.flat_map(|it| it.placed_s.iter().copied()))
}

/// A number with its limit, if it was measured.
type Judged = (&'static str, f64, Option<f64>);

fn judge(samples: &Samples) -> Vec<Limited> {
    let judged = of_batches(samples).into_iter().chain(of_others(samples));
    let judged = judged.chain(of_admission(samples));
    judged
        .filter_map(|(what, limit, value)| Some(Limited::at_most(what, limit, value?)))
        .collect()
}

fn of_batches(samples: &Samples) -> [Judged; 10] {
    let rounds = || samples.rounds.iter();
    let ratio = |number: Number| median(rounds().map(|[native, it]| number(it) / number(native)));
    let offloaded = |number: Number| median(rounds().map(|[_, it]| number(it)));
    let off = |number: Number| number(&samples.networking_off[1]);
    let more = |number: Number| Some(offloaded(number)? - off(number));
    let (created, deleted): (Number, Number) = (|it| it.create.requests, |it| it.delete.requests);
    let placed = placed(samples, 1);
    [
        (
            "100 pods ready, against native",
            1.3,
            ratio(|it| it.create.seconds),
        ),
        (
            "bound until placed, median, ms",
            200.0,
            placed.map(|it| it.median * 1e3),
        ),
        (
            "bound until placed, worst, ms",
            800.0,
            placed.map(|it| it.max * 1e3),
        ),
        (
            "100 pods deleted, against native",
            1.2,
            ratio(|it| it.delete.seconds),
        ),
        (
            "requests per pod created, networking off",
            32.0,
            Some(off(created)),
        ),
        (
            "requests per pod deleted, networking off",
            15.0,
            Some(off(deleted)),
        ),
        ("more of them with networking, creation", 2.0, more(created)),
        ("more of them with networking, deletion", 1.0, more(deleted)),
        (
            "API servers' CPU, creation, s",
            10.0,
            offloaded(|it| it.create.api_servers_cpu_s),
        ),
        (
            "Liqo's CPU, creation, s",
            1.5,
            offloaded(|it| it.create.liqo_cpu_s),
        ),
    ]
}

fn of_others(samples: &Samples) -> [Judged; 9] {
    let Samples {
        exec,
        unoffload,
        virtual_nodes: nodes,
        memory,
        ..
    } = samples;
    let thousand = samples.hollow.iter().find(|it| it.pods == 1_000);
    let thousand = thousand.map(|it| it.virtual_kubelet_mb);
    let first = median(nodes.iter().map(|it| it.first_s / it.bare_pod_s));
    let again = median(nodes.iter().map(|it| it.again_s / it.bare_pod_s));
    let command = median(unoffload.iter().map(|it| it.command_s));
    let objects = median(unoffload.iter().map(|it| it.objects_s));
    let exec = median(exec.iter().map(|it| it.offloaded_s / it.native_s));
    [
        (
            "virtual kubelet at rest, MB",
            15.0,
            Some(memory.virtual_kubelet_mb),
        ),
        (
            "virtual kubelet with pods, MB",
            25.0,
            Some(memory.with_pods_mb),
        ),
        ("virtual kubelet with 1,000 pods, MB", 60.0, thousand),
        (
            "all components of a consumer, MB",
            120.0,
            Some(memory.consumer_mb),
        ),
        ("virtual node ready, against a bare pod", 2.0, first),
        ("the same, of a node that existed before", 2.0, again),
        ("`unoffload` with 10 pods, s", 7.0, command),
        ("of it, pods and reflected objects, s", 2.0, objects),
        ("`kubectl exec`, against native", 1.15, exec),
    ]
}

/// The first bucket of the API servers' histograms ends at the limit, so half of the calls were within it if the median passes.
fn of_admission(samples: &Samples) -> [Judged; 2] {
    let of = |webhook: &str| median_of(&samples.admission_at_rest, webhook);
    [
        ("review of a pod, median, ms", 5.0, of(PODS)),
        (
            "review of a ShadowPod, median, ms",
            5.0,
            of("shadowpod.mutate.liqo.io"),
        ),
    ]
}

/// Returns the median of the calls of a webhook, in milliseconds.
fn median_of(latencies: &[Latency], webhook: &str) -> Option<f64> {
    let mut latencies = latencies.iter();
    Some(latencies.find(|it| it.webhook == webhook)?.median_ms)
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    Some(Summary::of(values)?.median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn batch(seconds: f64, requests: f64, placed_s: &[f64]) -> Value {
        let step = json!({
            "seconds": seconds, "requests": requests, "api_servers_cpu_s": 1.0, "liqo_cpu_s": 0.1,
        });
        json!({"create": step, "delete": step, "placed_s": placed_s})
    }

    fn samples(rounds: &[[f64; 2]]) -> Samples {
        let rounds = rounds.iter().map(|[native, offloaded]| {
            json!([
                batch(*native, 11.0, &[]),
                batch(*offloaded, 15.0, &[0.1, 0.2])
            ])
        });
        let samples = json!({
            "pods": 100,
            "rounds": rounds.collect::<Vec<_>>(),
            "admission_at_rest": [{"webhook": "pod.mutate.liqo.io", "calls": 100.0, "median_ms": 2.6}],
            "admission": [{"webhook": "pod.mutate.liqo.io", "calls": 200.0, "median_ms": 15.0}],
            "networking_off": [batch(1.0, 11.0, &[]), batch(1.0, 14.5, &[])],
            "virtual_nodes": [{"bare_pod_s": 1.0, "first_s": 1.5, "again_s": 1.5}],
            "exec": [{"native_s": 0.1, "offloaded_s": 0.1}],
            "unoffload": [{"command_s": 6.0, "objects_s": 1.0}],
            "memory": {"consumer_mb": 80.0, "virtual_kubelet_mb": 9.0, "with_pods_mb": 12.0},
            "hollow": [],
        });
        serde_json::from_value(samples).unwrap()
    }

    fn missed(samples: &Samples) -> Vec<&'static str> {
        let missed = judge(samples).into_iter().filter(|it| !it.pass);
        missed.map(|it| it.what).collect()
    }

    #[test]
    fn ratios_are_those_of_pairs() {
        // Each pair has the ratio 1.1, although the machine became slower.
        assert!(missed(&samples(&[[10.0, 11.0], [20.0, 22.0], [40.0, 44.0]])).is_empty());
        assert_eq!(
            missed(&samples(&[[10.0, 11.0], [20.0, 25.0], [40.0, 50.0]])),
            ["100 pods deleted, against native"]
        );
    }

    #[test]
    fn the_worst_placement_of_all_rounds_is_limited() {
        let mut slow = samples(&[[10.0, 10.0], [10.0, 10.0]]);
        slow.rounds[1][1].placed_s.push(0.9);

        assert_eq!(missed(&slow), ["bound until placed, worst, ms"]);
    }

    #[test]
    fn the_latency_of_each_called_webhook_is_limited() {
        let mut slow = samples(&[[10.0, 10.0]]);
        assert!(missed(&slow).is_empty());
        slow.admission_at_rest[0].median_ms = 5.1;

        assert_eq!(missed(&slow), ["review of a pod, median, ms"]);
    }
}
