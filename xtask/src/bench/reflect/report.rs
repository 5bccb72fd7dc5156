//! Medians, targets and tables of the benchmark of reflected objects. All functions are pure.

use crate::bench::control_plane::{Outcome, file_name, heading};
use crate::bench::limits::{self, Limited, shown};
use crate::bench::setting::Checkout;
use crate::bench::stats::{Summary, percentile};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The samples as the measuring program prints them, which describes the fields.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Samples {
    latencies: Vec<Latency>,
    endpoints_s: Vec<f64>,
    many: Vec<Many>,
    thousand_mb: f64,
    requests: Vec<Requests>,
    restart_s: Vec<f64>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Latency {
    kind: String,
    reflected_s: Vec<f64>,
    direct_s: Vec<f64>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Many {
    local_s: f64,
    reflected_s: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Requests {
    kind: String,
    created: f64,
    updated: f64,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    setting: Checkout,
    targets: Vec<Limited>,
    samples: Samples,
}

impl Report {
    pub(super) fn new(setting: Checkout, samples: Samples) -> Self {
        Self {
            targets: judge(&samples),
            setting,
            samples,
        }
    }
}

impl Outcome for Report {
    fn name(&self) -> String {
        file_name(&self.setting, "reflect")
    }

    fn table(&self) -> String {
        format!(
            "{}\n{}",
            limits::table(&self.targets),
            latencies(&self.samples.latencies)
        )
    }

    fn markdown(&self) -> String {
        format!(
            "{}\n## Targets\n\n{}\n## Latencies in ms: medians, with ranges\n\n{}",
            heading("Reflection", &self.setting, "reflect.md"),
            limits::table(&self.targets),
            latencies(&self.samples.latencies)
        )
    }

    fn targets(&self) -> &[Limited] {
        &self.targets
    }
}

/// Returns a table of the times until an object exists at the provider.
fn latencies(latencies: &[Latency]) -> String {
    let mut text = String::from("| kind | reflected | created there |\n|---|---|---|\n");
    for Latency {
        kind,
        reflected_s,
        direct_s,
    } in latencies
    {
        let cell = |seconds: &[f64]| {
            let summary = Summary::of(seconds.iter().map(|it| it * 1e3));
            summary.map_or_else(|| "-".to_owned(), |it| shown(&it, 1))
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {kind} | {} | {} |",
            cell(reflected_s),
            cell(direct_s)
        );
    }

    text
}

fn judge(samples: &Samples) -> Vec<Limited> {
    let judged = of_latencies(samples).into_iter().chain(of_others(samples));
    judged
        .filter_map(|(what, limit, value)| Some(Limited::at_most(what, limit, value?)))
        .collect()
}

/// A number with its limit, if it was measured.
type Judged = (&'static str, f64, Option<f64>);

fn of_latencies(samples: &Samples) -> [Judged; 8] {
    let latency = |kind: &str| samples.latencies.iter().find(|it| it.kind == kind);
    let ms = |kind: &str, percent| {
        let seconds = percentile(&latency(kind)?.reflected_s, percent)?;
        Some(seconds * 1e3)
    };
    let ratio = |kind: &str| {
        let latency = latency(kind)?;
        let [reflected, direct] =
            [&latency.reflected_s, &latency.direct_s].map(|it| percentile(it, 50));
        Some(reflected? / direct?)
    };
    let endpoints = percentile(&samples.endpoints_s, 50).map(|it| it * 1e3);
    [
        ("ConfigMap, p50, ms", 8.0, ms("ConfigMap", 50)),
        ("ConfigMap, p90, ms", 14.0, ms("ConfigMap", 90)),
        ("Secret, p50, ms", 8.0, ms("Secret", 50)),
        ("Secret, p90, ms", 14.0, ms("Secret", 90)),
        (
            "ConfigMap, p50, against one created there",
            2.5,
            ratio("ConfigMap"),
        ),
        ("Service, p50, ms", 10.0, ms("Service", 50)),
        ("Ingress, p50, ms", 8.0, ms("Ingress", 50)),
        (
            "pod ready at the provider until its endpoint is ready, p50, ms",
            60.0,
            endpoints,
        ),
    ]
}

fn of_others(samples: &Samples) -> [Judged; 7] {
    // The counters also contain a few requests that belong to no object, so one decimal counts.
    let requests = |kind: &str, number: fn(&Requests) -> f64| {
        let found = samples.requests.iter().find(|it| it.kind == kind);
        found.map(|it| (number(it) * 10.0).round() / 10.0)
    };
    let many = samples.many.iter().map(|it| it.reflected_s / it.local_s);
    let many = Summary::of(many).map(|it| it.median);
    let restart = Summary::of(samples.restart_s.iter().copied());
    [
        (
            "1,000 ConfigMaps, against a namespace that is not offloaded",
            1.3,
            many,
        ),
        (
            "memory per 1,000 reflected objects, MB",
            2.0,
            Some(samples.thousand_mb),
        ),
        (
            "requests per ConfigMap created",
            2.0,
            requests("ConfigMap", |it| it.created),
        ),
        (
            "requests per ConfigMap changed",
            1.0,
            requests("ConfigMap", |it| it.updated),
        ),
        (
            "requests per EndpointSlice created",
            2.0,
            requests("EndpointSlice", |it| it.created),
        ),
        (
            "requests per EndpointSlice changed",
            2.0,
            requests("EndpointSlice", |it| it.updated),
        ),
        (
            "next ConfigMap after a restart, s",
            2.0,
            restart.map(|it| it.median),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_number_has_its_limit() {
        let latency = |kind, reflected: [f64; 2]| {
            json!({
                "kind": kind, "reflected_s": reflected, "direct_s": [0.002, 0.002],
            })
        };
        let samples = json!({
            "latencies": [
                latency("ConfigMap", [0.004, 0.02]), latency("Secret", [0.004, 0.004]),
                latency("Service", [0.004, 0.004]), latency("Ingress", [0.009, 0.009]),
            ],
            "endpoints_s": [0.02, 0.02, 0.9],
            "many": [{"local_s": 10.0, "reflected_s": 12.0}],
            "thousand_mb": 1.0,
            "requests": [
                {"kind": "ConfigMap", "created": 1.0, "updated": 1.5},
                {"kind": "EndpointSlice", "created": 2.0, "updated": 2.0},
            ],
            "restart_s": [0.5, 3.0, 0.6],
        });
        let samples = serde_json::from_value(samples).unwrap();
        let judged = judge(&samples);
        assert_eq!(judged.len(), 15);
        let missed = judged.into_iter().filter(|it| !it.pass);
        let missed: Vec<_> = missed.map(|it| it.what).collect();
        assert_eq!(
            missed,
            [
                "ConfigMap, p90, ms",
                "Ingress, p50, ms",
                "requests per ConfigMap changed"
            ]
        );
    }
}
