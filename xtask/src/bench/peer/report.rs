//! Medians, targets and tables of the benchmark of peerings. All functions are pure.

use crate::bench::control_plane::{Outcome, file_name, heading};
use crate::bench::limits::{self, Limited, shown};
use crate::bench::setting::Checkout;
use crate::bench::stats::Summary;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// Time that Kubernetes waits before it empties a namespace that is being deleted, in seconds.
const NAMESPACE_GRACE_S: f64 = 5.0;

/// The samples of a round as the measuring program prints them, which describes the fields: durations in seconds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Sample {
    round: u32,
    creations_s: f64,
    peer_s: f64,
    repeated_s: f64,
    unpeer_s: f64,
    again_s: f64,
    unpeer_deleting_s: f64,
    again_deleted_s: f64,
    force_unpeer_s: f64,
    requests: Requests,
}

/// The number of requests of a peering in both clusters.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Requests {
    liqoctl: u32,
    managers: u32,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    setting: Checkout,
    targets: Vec<Limited>,
    rows: Vec<Row>,
    samples: Vec<Sample>,
}

/// The duration of a command: the median with the range.
#[derive(Clone, Debug, Serialize)]
struct Row {
    command: &'static str,
    seconds: Summary,
    /// As a multiple of 20 sequential creations in the same round.
    creations: Summary,
}

/// A measured command: its name, its duration, and the limit of the median.
struct Measured {
    command: &'static str,
    seconds: fn(&Sample) -> f64,
    limit_s: Option<f64>,
}

const MEASURED: [Measured; 8] = [
    Measured {
        command: "20 sequential creations",
        seconds: |it| it.creations_s,
        limit_s: None,
    },
    Measured {
        command: "peer",
        seconds: |it| it.peer_s,
        limit_s: Some(1.2),
    },
    Measured {
        command: "peer, of peers",
        seconds: |it| it.repeated_s,
        limit_s: None,
    },
    Measured {
        command: "unpeer --delete-namespaces=false",
        seconds: |it| it.unpeer_s,
        limit_s: Some(1.5),
    },
    Measured {
        command: "peer directly after it",
        seconds: |it| it.again_s,
        limit_s: Some(1.2),
    },
    Measured {
        command: "unpeer",
        seconds: |it| it.unpeer_deleting_s,
        limit_s: Some(1.5),
    },
    Measured {
        command: "peer directly after it, which waits for the deletion of the namespaces",
        seconds: |it| it.again_deleted_s,
        limit_s: Some(NAMESPACE_GRACE_S + 1.2),
    },
    Measured {
        command: "force unpeer, with a provider that does not respond",
        seconds: |it| it.force_unpeer_s,
        limit_s: Some(NAMESPACE_GRACE_S + 5.0),
    },
];

impl Report {
    pub(super) fn new(setting: Checkout, samples: Vec<Sample>) -> Self {
        Self {
            targets: judge(&samples),
            rows: rows(&samples),
            setting,
            samples,
        }
    }

    fn rows_table(&self) -> String {
        let mut text = String::from(
            "| command | seconds | multiple of 20 sequential creations |\n|---|---|---|\n",
        );
        for row in &self.rows {
            let (seconds, creations) = (shown(&row.seconds, 2), shown(&row.creations, 1));
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {} | {seconds} | {creations} |", row.command);
        }

        text
    }

    fn requests_table(&self) -> String {
        let mut text = String::from("| requests of one peer | number |\n|---|---|\n");
        let requests = || self.samples.iter().map(|it| &it.requests);
        let by_liqoctl = Summary::of(requests().map(|it| f64::from(it.liqoctl)));
        let by_managers = Summary::of(requests().map(|it| f64::from(it.managers)));
        for (name, summary) in [
            ("by liqoctl", by_liqoctl),
            ("by the controller managers", by_managers),
        ] {
            if let Some(summary) = summary {
                let _ = writeln!(text, "| {name} | {} |", shown(&summary, 0));
            }
        }

        text
    }
}

impl Outcome for Report {
    fn name(&self) -> String {
        file_name(&self.setting, "peer")
    }

    fn table(&self) -> String {
        let targets = limits::table(&self.targets);
        format!(
            "{targets}\n{}\n{}",
            self.rows_table(),
            self.requests_table()
        )
    }

    fn markdown(&self) -> String {
        format!(
            "{}\n## Targets\n\n{}\n## Medians, with ranges\n\n{}\n{}",
            heading("Peering", &self.setting, "peer.md"),
            limits::table(&self.targets),
            self.rows_table(),
            self.requests_table()
        )
    }

    fn targets(&self) -> &[Limited] {
        &self.targets
    }
}

fn rows(samples: &[Sample]) -> Vec<Row> {
    let rows = MEASURED.iter().filter_map(|measured| {
        let seconds = measured.seconds;
        Some(Row {
            command: measured.command,
            seconds: Summary::of(samples.iter().map(seconds))?,
            creations: Summary::of(samples.iter().map(|it| seconds(it) / it.creations_s))?,
        })
    });

    rows.collect()
}

fn judge(samples: &[Sample]) -> Vec<Limited> {
    let durations = MEASURED.iter().filter_map(|measured| {
        let median = Summary::of(samples.iter().map(measured.seconds))?.median;
        let limit = measured.limit_s?;
        Some(Limited::at_most(measured.command, limit, median))
    });
    let requests = samples
        .iter()
        .map(|it| f64::from(it.requests.liqoctl + it.requests.managers));
    let requests = Summary::of(requests)
        .map(|it| Limited::at_most("requests of one peer in both clusters", 60.0, it.max));

    durations.chain(requests).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(peer_s: f64, managers: u32) -> Sample {
        serde_json::from_value(serde_json::json!({
            "round": 1, "creations_s": 0.1, "peer_s": peer_s, "repeated_s": 0.1, "unpeer_s": 0.5,
            "again_s": 0.5, "unpeer_deleting_s": 0.5, "again_deleted_s": 5.5, "force_unpeer_s": 1.0,
            "requests": {"liqoctl": 20, "managers": managers},
        }))
        .unwrap()
    }

    fn missed(samples: &[Sample]) -> Vec<&'static str> {
        let missed = judge(samples).into_iter().filter(|it| !it.pass);
        missed.map(|it| it.what).collect()
    }

    #[test]
    fn the_median_of_a_duration_and_the_most_requests_are_limited() {
        let fast = sample(0.5, 40);

        assert!(missed(&[fast.clone(), fast.clone(), sample(9.0, 40)]).is_empty());
        assert_eq!(
            missed(&[fast.clone(), sample(9.0, 40), sample(9.0, 40)]),
            ["peer"]
        );
        assert_eq!(
            missed(&[fast.clone(), fast, sample(0.5, 41)]),
            ["requests of one peer in both clusters"]
        );
    }

    #[test]
    fn durations_are_compared_within_a_round() {
        let mut slow = sample(2.0, 40);
        slow.creations_s = 0.4;

        let rows = rows(&[sample(0.5, 40), slow]);

        assert_eq!((rows[1].creations.min, rows[1].creations.max), (5.0, 5.0));
    }
}
