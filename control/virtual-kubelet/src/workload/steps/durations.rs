//! Metric of the durations of the steps of pods.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

/// Upper bounds of durations, in seconds: a write takes milliseconds, a pod that pulls an image or waits for a node minutes.
const BUCKETS: [f64; 15] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0,
];

/// A step of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// From the binding to the Node to the ShadowPod at the provider.
    ShadowPod,
    /// From the ShadowPod to the remote pod.
    RemotePod,
    /// From the remote pod to its readiness.
    RemoteReady,
    /// From the readiness of the remote pod to that of the pod.
    Ready,
    /// From the deletion of the pod to the end of the remote pod.
    RemoteDeleted,
    /// From the end of the remote pod to that of the pod.
    Deleted,
}

impl Step {
    const ALL: [Self; 6] = [
        Self::ShadowPod,
        Self::RemotePod,
        Self::RemoteReady,
        Self::Ready,
        Self::RemoteDeleted,
        Self::Deleted,
    ];

    fn labels(self) -> Labels {
        let step = match self {
            Self::ShadowPod => "shadow_pod",
            Self::RemotePod => "remote_pod",
            Self::RemoteReady => "remote_ready",
            Self::Ready => "ready",
            Self::RemoteDeleted => "remote_deleted",
            Self::Deleted => "deleted",
        };
        [("step", step)]
    }
}

/// A step that has ended, with its duration.
pub(super) type Sample = (Step, Duration);

type Labels = [(&'static str, &'static str); 1];

/// The durations of all pods, by step. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Durations {
    steps: Family<Labels, Histogram>,
}

impl Default for Durations {
    /// Creates a metric that no registry reports.
    fn default() -> Self {
        let create: fn() -> Histogram = || Histogram::new(BUCKETS);
        Self {
            steps: Family::new_with_constructor(create),
        }
    }
}

impl Durations {
    /// Creates the metric in a registry. All steps are reported from the start.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let durations = Self::default();
        for step in Step::ALL {
            drop(durations.steps.get_or_create(&step.labels()));
        }
        durations.register(registry);

        durations
    }

    /// Counts steps that have ended.
    pub(super) fn observe(&self, samples: impl IntoIterator<Item = Sample>) {
        for (step, duration) in samples {
            let histogram = self.steps.get_or_create(&step.labels());
            histogram.observe(duration.as_secs_f64());
        }
    }

    fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "pod_step_duration",
            "Durations of the steps of pods, from their binding to their readiness and from their deletion to their end",
            Unit::Seconds,
            self.steps.clone(),
        );
    }

    /// Returns the steps that have ended, with their number and the sum of their durations in seconds.
    #[cfg(test)]
    pub(crate) fn samples(&self) -> Vec<(&'static str, u64, f64)> {
        let mut registry = Registry::default();
        self.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let value = |name: &str, step: &str| {
            let start = format!("pod_step_duration_seconds_{name}{{step=\"{step}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&start))
        };
        let samples = Step::ALL.into_iter().filter_map(|step| {
            let [(_, step)] = step.labels();
            let count = value("count", step)?.parse().unwrap();
            Some((step, count, value("sum", step)?.parse().unwrap()))
        });

        samples.filter(|(_, count, _)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metric_has_a_histogram_for_each_step_and_no_other_labels() {
        let mut registry = Registry::with_prefix("liqo_virtual_kubelet");
        let durations = Durations::new(&mut registry);

        durations.observe([
            (Step::ShadowPod, Duration::from_millis(20)),
            (Step::RemoteReady, Duration::from_secs(900)),
        ]);

        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let name = "liqo_virtual_kubelet_pod_step_duration_seconds";
        for line in [
            format!("# TYPE {name} histogram"),
            format!("# UNIT {name} seconds"),
            format!("{name}_count{{step=\"shadow_pod\"}} 1"),
            format!("{name}_sum{{step=\"shadow_pod\"}} 0.02"),
            format!("{name}_bucket{{le=\"0.01\",step=\"shadow_pod\"}} 0"),
            format!("{name}_bucket{{le=\"0.025\",step=\"shadow_pod\"}} 1"),
            format!("{name}_bucket{{le=\"600.0\",step=\"remote_ready\"}} 0"),
            format!("{name}_bucket{{le=\"+Inf\",step=\"remote_ready\"}} 1"),
            format!("{name}_count{{step=\"remote_pod\"}} 0"),
            format!("{name}_count{{step=\"ready\"}} 0"),
            format!("{name}_count{{step=\"remote_deleted\"}} 0"),
            format!("{name}_count{{step=\"deleted\"}} 0"),
        ] {
            assert!(
                text.lines().any(|it| it == line),
                "{line} is missing in {text}"
            );
        }
        let buckets = text.lines().filter(|it| it.contains("_bucket{"));
        assert_eq!(buckets.count(), Step::ALL.len() * (BUCKETS.len() + 1));
    }
}
