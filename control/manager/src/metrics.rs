//! What can be counted.

use crate::kind::Kind;
use crate::task::Task;
use crate::write::Write;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};
use std::time::Duration;

/// Upper bounds of the durations, in seconds: from no request to many.
const BUCKETS: [f64; 8] = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0];

/// The metrics; clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    reconciles: Family<TaskLabel, Counter>,
    errors: Family<TaskLabel, Counter>,
    durations: Histogram,
    queue_length: Gauge,
    writes: Family<WriteLabels, Counter>,
    networks: Gauge,
    addresses: Gauge,
    is_leader: Gauge,
    unreadable: Family<KindLabel, Counter>,
    watch_errors: Family<KindLabel, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskLabel {
    task: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    kind: String,
    action: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: String,
}

impl Metrics {
    /// Creates the metrics and their registry.
    pub(crate) fn new() -> (Self, Registry) {
        let mut registry = Registry::with_prefix("liqo_controller_manager");
        let durations = Histogram::new(BUCKETS);
        registry.register_with_unit(
            "reconcile_duration",
            "How long tasks take",
            Unit::Seconds,
            durations.clone(),
        );
        let all = &mut registry;
        let unreadable = "Objects ignored because they do not have the form of their kind";
        let metrics = Self {
            reconciles: add(all, "reconciles", "Tasks done or tried"),
            errors: add(all, "reconcile_errors", "Tasks that failed"),
            durations,
            queue_length: add(all, "queue_length", "Tasks that wait"),
            writes: add(all, "writes", "Changes asked of the API server"),
            networks: add(all, "networks_allocated", "Networks that hold a CIDR"),
            addresses: add(all, "addresses_allocated", "IPs that hold an address"),
            is_leader: add(all, "is_leader", "1 if this process acts"),
            unreadable: add(all, "unreadable_objects", unreadable),
            watch_errors: add(all, "watch_errors", "Watches that failed"),
        };

        (metrics, registry)
    }

    /// Counts a task.
    pub(crate) fn reconciled(&self, task: &Task, is_done: bool, duration: Duration) {
        let label = TaskLabel {
            task: task.concern(),
        };
        self.reconciles.get_or_create(&label).inc();
        if !is_done {
            self.errors.get_or_create(&label).inc();
        }
        self.durations.observe(duration.as_secs_f64());
    }

    /// Counts a change.
    pub(crate) fn written(&self, write: &Write) {
        let labels = WriteLabels {
            kind: write.kind.to_string(),
            action: write.action.word(),
        };
        self.writes.get_or_create(&labels).inc();
    }

    /// Counts an object that was ignored.
    pub(crate) fn unreadable(&self, kind: Kind) {
        let label = KindLabel {
            kind: kind.to_string(),
        };
        self.unreadable.get_or_create(&label).inc();
    }

    /// Counts a watch that failed.
    pub(crate) fn watch_failed(&self, kind: Kind) {
        let label = KindLabel {
            kind: kind.to_string(),
        };
        self.watch_errors.get_or_create(&label).inc();
    }

    /// Notes how many tasks wait.
    pub(crate) fn queue_length(&self, length: usize) {
        self.queue_length
            .set(i64::try_from(length).unwrap_or(i64::MAX));
    }

    /// Notes how many Networks and IPs have what they ask for.
    pub(crate) fn allocated(&self, networks: usize, addresses: usize) {
        self.networks
            .set(i64::try_from(networks).unwrap_or(i64::MAX));
        self.addresses
            .set(i64::try_from(addresses).unwrap_or(i64::MAX));
    }

    /// Notes whether this process acts.
    pub(crate) fn lead(&self, is_leader: bool) {
        self.is_leader.set(i64::from(is_leader));
    }
}

/// Makes a metric and registers it.
fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}
