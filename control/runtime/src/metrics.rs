//! Metrics of a runtime.

use crate::controller::{Outcome, Request};
use crate::object::Cluster;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

/// Upper bounds of durations, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0];

/// The metrics. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    depth: Family<ControllerLabel, Gauge>,
    wait: Family<ItemLabels, Histogram>,
    duration: Family<ItemLabels, Histogram>,
    retries: Family<ItemLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
    latency: Family<LatencyLabels, Histogram>,
    waiting: Gauge,
    objects: Family<ClusterLabel, Gauge>,
    bytes: Family<ClusterLabel, Gauge>,
    rejected: Family<ClusterLabel, Counter>,
    invalid: Family<ResourceLabels, Counter>,
    watch_errors: Family<ResourceLabels, Counter>,
    is_leader: Family<LeaseLabel, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabel {
    lease: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabel {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ItemLabels {
    controller: &'static str,
    item: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    cluster: String,
    resource: String,
    verb: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LatencyLabels {
    cluster: String,
    verb: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabel {
    cluster: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    cluster: String,
    resource: String,
}

fn histograms<L: Clone + std::hash::Hash + Eq>() -> Family<L, Histogram> {
    Family::new_with_constructor(|| Histogram::new(BUCKETS))
}

impl Default for Metrics {
    /// Creates metrics that no registry reports.
    fn default() -> Self {
        Self {
            depth: Family::default(),
            wait: histograms(),
            duration: histograms(),
            retries: Family::default(),
            requests: Family::default(),
            latency: histograms(),
            waiting: Gauge::default(),
            objects: Family::default(),
            bytes: Family::default(),
            rejected: Family::default(),
            invalid: Family::default(),
            watch_errors: Family::default(),
            is_leader: Family::default(),
        }
    }
}

impl Metrics {
    /// Creates the metrics in a registry.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.register(registry);

        metrics
    }

    fn register(&self, registry: &mut Registry) {
        let seconds = Unit::Seconds;
        registry.register(
            "queue_length",
            "Work items that are not planned yet",
            self.depth.clone(),
        );
        registry.register_with_unit(
            "queue_wait",
            "Time from when a work item is due until it is planned",
            seconds.clone(),
            self.wait.clone(),
        );
        registry.register_with_unit(
            "reconcile_duration",
            "Time from planning a work item until its last request has ended",
            seconds.clone(),
            self.duration.clone(),
        );
        registry.register(
            "reconcile_errors",
            "Work items that are planned again because a request failed",
            self.retries.clone(),
        );
        registry.register(
            "requests",
            "Requests to API servers that controllers caused",
            self.requests.clone(),
        );
        registry.register_with_unit(
            "request_duration",
            "Time from sending a request until its response",
            seconds,
            self.latency.clone(),
        );
        registry.register(
            "requests_waiting",
            "Requests that wait until others have ended",
            self.waiting.clone(),
        );
        registry.register(
            "cache_objects",
            "Objects in the cache",
            self.objects.clone(),
        );
        registry.register_with_unit(
            "cache_json",
            "Length of the JSON of the objects in the cache",
            Unit::Bytes,
            self.bytes.clone(),
        );
        registry.register(
            "cache_rejected_objects",
            "Objects that exceeded a cluster's limit of objects or bytes",
            self.rejected.clone(),
        );
        registry.register(
            "invalid_objects",
            "Objects that could not be decoded",
            self.invalid.clone(),
        );
        registry.register(
            "watch_errors",
            "Lists and watches that failed",
            self.watch_errors.clone(),
        );
        registry.register(
            "is_leader",
            "Whether this replica holds the Lease",
            self.is_leader.clone(),
        );
    }

    pub(crate) fn depth(&self, controller: &'static str, depth: usize) {
        let depth = i64::try_from(depth).unwrap_or(i64::MAX);
        self.depth
            .get_or_create(&ControllerLabel { controller })
            .set(depth);
    }

    pub(crate) fn planned(&self, controller: &'static str, item: &'static str, waited: Duration) {
        self.wait
            .get_or_create(&ItemLabels { controller, item })
            .observe(waited.as_secs_f64());
    }

    pub(crate) fn ended(
        &self,
        controller: &'static str,
        item: &'static str,
        is_success: bool,
        duration: Duration,
    ) {
        let labels = ItemLabels { controller, item };
        self.duration
            .get_or_create(&labels)
            .observe(duration.as_secs_f64());
        if !is_success {
            self.retries.get_or_create(&labels).inc();
        }
    }

    pub(crate) fn requested(&self, request: &Request, outcome: &Outcome, duration: Duration) {
        let object = request.object();
        let cluster = object.cluster.to_string();
        let verb = request.verb();
        let labels = RequestLabels {
            cluster: cluster.clone(),
            resource: object.resource.to_string(),
            verb,
            outcome: name(outcome),
        };
        self.requests.get_or_create(&labels).inc();
        self.latency
            .get_or_create(&LatencyLabels { cluster, verb })
            .observe(duration.as_secs_f64());
    }

    pub(crate) fn waiting(&self, waiting: usize) {
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    pub(crate) fn usage(&self, cluster: &Cluster, (objects, bytes): (usize, usize)) {
        let labels = ClusterLabel {
            cluster: cluster.to_string(),
        };
        let objects = i64::try_from(objects).unwrap_or(i64::MAX);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.objects.get_or_create(&labels).set(objects);
        self.bytes.get_or_create(&labels).set(bytes);
    }

    pub(crate) fn rejected(&self, cluster: &Cluster) {
        let labels = ClusterLabel {
            cluster: cluster.to_string(),
        };
        self.rejected.get_or_create(&labels).inc();
    }

    pub(crate) fn invalid(&self, id: &crate::watch::WatchId) {
        self.invalid.get_or_create(&labels(id)).inc();
    }

    pub(crate) fn watch_failed(&self, id: &crate::watch::WatchId) {
        self.watch_errors.get_or_create(&labels(id)).inc();
    }

    pub(crate) fn leads(&self, lease: &str, leads: bool) {
        let lease = lease.to_owned();
        self.is_leader
            .get_or_create(&LeaseLabel { lease })
            .set(leads.into());
    }

    /// Forgets a cluster, so that peers that come and go take no memory.
    pub(crate) fn forget(&self, cluster: &Cluster) {
        let labels = ClusterLabel {
            cluster: cluster.to_string(),
        };
        self.objects.remove(&labels);
        self.bytes.remove(&labels);
        self.rejected.remove(&labels);
    }
}

fn labels(id: &crate::watch::WatchId) -> ResourceLabels {
    ResourceLabels {
        cluster: id.cluster.to_string(),
        resource: id.resource.to_string(),
    }
}

fn name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Stored(_) => "stored",
        Outcome::Answer(_) => "answer",
        Outcome::Gone => "gone",
        Outcome::AlreadyExists(_) => "already_exists",
        Outcome::Conflict(_) => "conflict",
        Outcome::Refused(_) => "refused",
        Outcome::TimedOut => "timed_out",
        Outcome::Failed(_) => "failed",
        Outcome::NotLeader => "not_leader",
    }
}
