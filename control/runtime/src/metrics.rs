//! Metrics of a runtime.

use crate::controller::{Outcome, Request};
use control_client::object::Cluster;
use control_client::watch::WatchId;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of durations, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0];

type Labels<const N: usize> = [(&'static str, String); N];
type Histograms = Family<Labels<2>, Histogram>;

/// The metrics. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    depth: Family<Labels<1>, Gauge>,
    wait: Histograms,
    duration: Histograms,
    retries: Family<Labels<2>, Counter>,
    requests: Family<Labels<4>, Counter>,
    latency: Histograms,
    waiting: Gauge,
    objects: Family<Labels<1>, Gauge>,
    bytes: Family<Labels<1>, Gauge>,
    rejected: Family<Labels<1>, Counter>,
    not_set: Family<Labels<1>, Counter>,
    invalid: Family<Labels<2>, Counter>,
    watch_errors: Family<Labels<2>, Counter>,
    is_leader: Family<Labels<1>, Gauge>,
    pub(crate) dropped_events: Counter,
    /// Labels of the requests and watches so far, to forget those of removed clusters.
    seen: Arc<Mutex<BTreeSet<Labels<4>>>>,
}

impl Default for Metrics {
    /// Creates metrics that no registry reports.
    fn default() -> Self {
        Self::new(&mut Registry::default())
    }
}

impl Metrics {
    /// Creates the metrics in a registry.
    pub fn new(registry: &mut Registry) -> Self {
        let r = registry;
        Self {
            depth: add(r, "queue_length", "Work items that are not planned yet"),
            wait: seconds(r, "queue_wait", "Time that due work items wait"),
            duration: seconds(r, "reconcile_duration", "Time from plan to response"),
            retries: add(r, "reconcile_errors", "Plans that failed and are repeated"),
            requests: add(r, "requests", "Requests of controllers to API servers"),
            latency: seconds(r, "request_duration", "Time from request to response"),
            waiting: add(r, "requests_waiting", "Requests that wait for others"),
            objects: add(r, "cache_objects", "Objects in the cache"),
            bytes: add(r, "cache_json_bytes", "Length of the objects' JSON"),
            rejected: add(r, "cache_rejected_objects", "Objects beyond the limits"),
            not_set: add(
                r,
                "cluster_config_errors",
                "Configurations of clusters not used",
            ),
            invalid: add(r, "invalid_objects", "Objects that could not be decoded"),
            watch_errors: add(r, "watch_errors", "Lists and watches that failed"),
            is_leader: add(r, "is_leader", "Whether this replica holds the Lease"),
            dropped_events: add(r, "dropped_events", "Events that were not published"),
            seen: Arc::default(),
        }
    }

    pub(crate) fn depth(&self, controller: &'static str, depth: usize) {
        let labels = [("controller", controller.to_owned())];
        self.depth.get_or_create(&labels).set(number(depth));
    }

    pub(crate) fn planned(&self, controller: &str, item: &str, waited: Duration) {
        let labels = item_labels(controller, item);
        observe(&self.wait, &labels, waited);
    }

    pub(crate) fn ended(&self, controller: &str, item: &str, is_success: bool, took: Duration) {
        let labels = item_labels(controller, item);
        observe(&self.duration, &labels, took);
        if !is_success {
            self.retries.get_or_create(&labels).inc();
        }
    }

    pub(crate) fn requested(&self, request: &Request, outcome: &Outcome, took: Duration) {
        let cluster = cluster_label(request.cluster());
        let verb = ("verb", request.verb().to_owned());
        observe(&self.latency, &[cluster.clone(), verb.clone()], took);
        let resource = match request {
            Request::Write(write) => write.object.resource.to_string(),
            Request::Read(object) => object.resource.to_string(),
            Request::Probe(probe) => probe.path.to_owned(),
        };
        let resource = ("resource", resource);
        let outcome = ("outcome", name(outcome).to_owned());
        let labels = [cluster, resource, verb, outcome];
        self.requests.get_or_create(&labels).inc();
        self.see(labels);
    }

    pub(crate) fn waiting(&self, waiting: usize) {
        self.waiting.set(number(waiting));
    }

    /// Reports what the cache keeps of a cluster, and how many more objects exceeded the limits.
    pub(crate) fn usage(&self, cluster: &Cluster, usage: (usize, usize), rejections: u64) {
        let labels = [cluster_label(cluster)];
        self.objects.get_or_create(&labels).set(number(usage.0));
        self.bytes.get_or_create(&labels).set(number(usage.1));
        self.rejected.get_or_create(&labels).inc_by(rejections);
    }

    pub(crate) fn not_set(&self, cluster: &Cluster) {
        let labels = [cluster_label(cluster)];
        self.not_set.get_or_create(&labels).inc();
    }

    pub(crate) fn invalid(&self, id: &WatchId) {
        self.invalid.get_or_create(&self.watch_labels(id)).inc();
    }

    pub(crate) fn watch_failed(&self, id: &WatchId) {
        let labels = self.watch_labels(id);
        self.watch_errors.get_or_create(&labels).inc();
    }

    pub(crate) fn leads(&self, lease: &str, leads: bool) {
        let labels = [("lease", lease.to_owned())];
        self.is_leader.get_or_create(&labels).set(leads.into());
    }

    /// Forgets a cluster, so that peers that come and go take no memory.
    pub(crate) fn forget(&self, cluster: &Cluster) {
        let cluster = cluster_label(cluster);
        let labels = [cluster.clone()];
        self.objects.remove(&labels);
        self.bytes.remove(&labels);
        self.rejected.remove(&labels);
        self.not_set.remove(&labels);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for labels in seen.extract_if(.., |labels| labels[0] == cluster) {
            self.requests.remove(&labels);
            let [cluster, resource, verb, _] = labels;
            self.latency.remove(&[cluster.clone(), verb]);
            self.invalid.remove(&[cluster.clone(), resource.clone()]);
            self.watch_errors.remove(&[cluster, resource]);
        }
    }

    fn watch_labels(&self, id: &WatchId) -> Labels<2> {
        let cluster = cluster_label(&id.cluster);
        let resource = ("resource", id.resource.to_string());
        let none = ("", String::new());
        self.see([cluster.clone(), resource.clone(), none.clone(), none]);
        [cluster, resource]
    }

    fn see(&self, labels: Labels<4>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(labels);
    }
}

/// The local cluster's label is no DNS label, so it differs from every cluster ID.
fn cluster_label(cluster: &Cluster) -> (&'static str, String) {
    let value = match cluster {
        Cluster::Local => "_local",
        Cluster::Remote(id) => id,
    };
    ("cluster", value.to_owned())
}

fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn seconds(registry: &mut Registry, name: &str, help: &str) -> Histograms {
    let metric = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

fn observe(histograms: &Histograms, labels: &Labels<2>, duration: Duration) {
    let histogram = histograms.get_or_create(labels);
    histogram.observe(duration.as_secs_f64());
}

fn item_labels(controller: &str, item: &str) -> Labels<2> {
    [
        ("controller", controller.to_owned()),
        ("item", item.to_owned()),
    ]
}

fn number(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
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
        Outcome::Untrusted(_) => "untrusted",
        Outcome::NotLeader => "not_leader",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_client::object::{Key, Ref};
    use k8s_openapi::api::core::v1::Node;

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn requests_retries_and_latencies_are_reported_by_cluster_verb_and_item() {
        let mut registry = Registry::with_prefix("x");
        let metrics = Metrics::new(&mut registry);
        let key = Key::cluster("rome-1");
        let read = Request::Read(Ref::of::<Node>(&Cluster::Local, &key));
        metrics.depth("network", 3);
        metrics.planned("network", "peer", Duration::ZERO);
        metrics.ended("network", "peer", false, Duration::ZERO);
        metrics.requested(&read, &Outcome::TimedOut, Duration::from_secs(1));
        metrics.usage(&Cluster::Local, (1, 9), 0);

        let text = text(&registry);
        for line in [
            r#"x_queue_length{controller="network"} 3"#,
            r#"x_queue_wait_seconds_count{controller="network",item="peer"} 1"#,
            r#"x_reconcile_duration_seconds_count{controller="network",item="peer"} 1"#,
            r#"x_reconcile_errors_total{controller="network",item="peer"} 1"#,
            r#"x_requests_total{cluster="_local",resource="nodes",verb="get",outcome="timed_out"} 1"#,
            r#"x_request_duration_seconds_sum{cluster="_local",verb="get"} 1.0"#,
            r#"x_cache_json_bytes{cluster="_local"} 9"#,
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
    }

    #[test]
    fn a_removed_cluster_is_forgotten_whatever_its_id() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let peers = ["milan", "local"].map(Cluster::remote);
        let key = Key::cluster("rome-1");
        for cluster in peers.iter().chain([&Cluster::Local]) {
            let read = Request::Read(Ref::of::<Node>(cluster, &key));
            metrics.requested(&read, &Outcome::Gone, Duration::ZERO);
            metrics.usage(cluster, (1, 9), 1);
            metrics.not_set(cluster);
        }

        peers.iter().for_each(|peer| metrics.forget(peer));

        let text = text(&registry);
        let clusters = text.lines().filter_map(|line| line.split_once("cluster="));
        let clusters: Vec<_> = clusters.map(|(_, rest)| &rest[..8]).collect();
        assert!(!clusters.is_empty(), "{text}");
        assert!(clusters.iter().all(|it| *it == "\"_local\""), "{text}");
    }
}
