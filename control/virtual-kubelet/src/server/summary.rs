//! The usage of the Node and its pods as JSON (Kubernetes' `stats/v1alpha1`), from the metrics of the provider.

use super::exposition::{OwnPods, Sample, samples};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most containers of a pod that are reported. A provider could invent any number.
const CONTAINERS_MAX: usize = 256;

/// Usage of a container, a pod or the Node.
#[derive(Clone, Debug, Default)]
struct Usage {
    cpu: Option<Value>,
    memory: Option<Value>,
}

/// Usage of a pod, and of its containers by name.
#[derive(Clone, Debug, Default)]
struct OfPod {
    usage: Usage,
    containers: BTreeMap<String, Usage>,
}

/// The quantity that a sample measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measured {
    Cpu,
    Memory,
}

/// Returns the summary of a Node with these pods. `text` are metrics of the provider's `/metrics/resource`.
pub(crate) fn summary(
    (node, started): (&str, Option<&Time>),
    pods: &[Arc<Pod>],
    text: &str,
    now: Timestamp,
) -> Value {
    let own = OwnPods::new(pods);
    let (mut of_node, mut of_pods) = (Usage::default(), BTreeMap::<_, OfPod>::new());
    for sample in samples(text, &own) {
        let Some((scope, measured)) = measured(sample.name) else {
            continue;
        };
        let pod = sample.label("namespace").zip(sample.label("pod"));
        let usage = match (scope, pod, sample.label("container")) {
            ("node", None, _) => &mut of_node,
            ("pod", Some(pod), _) => &mut of_pods.entry(pod).or_default().usage,
            ("container", Some(pod), Some(name)) => {
                let containers = &mut of_pods.entry(pod).or_default().containers;
                if containers.len() >= CONTAINERS_MAX && !containers.contains_key(name) {
                    continue;
                }
                containers.entry(name.to_owned()).or_default()
            }
            _ => continue,
        };
        usage.set(measured, &sample, now);
    }
    let pods = pods.iter().filter_map(|pod| {
        let metadata = &pod.metadata;
        let name = (metadata.namespace.as_deref()?, metadata.name.as_deref()?);
        of_pods.remove(&name).map(|usage| usage.json(pod))
    });
    let pods: Vec<_> = pods.collect();

    json!({
        "node": with(json!({"nodeName": node, "startTime": started}), of_node),
        "pods": pods,
    })
}

/// Returns scope and meaning of a metric of `/metrics/resource`.
fn measured(name: &str) -> Option<(&str, Measured)> {
    let (scope, rest) = name.split_once('_')?;
    let measured = match rest {
        "cpu_usage_seconds_total" => Measured::Cpu,
        "memory_working_set_bytes" => Measured::Memory,
        _ => return None,
    };

    Some((scope, measured))
}

impl Usage {
    fn set(&mut self, measured: Measured, sample: &Sample<'_>, now: Timestamp) {
        let time = sample
            .millis
            .and_then(|it| Timestamp::from_millisecond(it).ok());
        let time = Time(time.unwrap_or(now));
        match measured {
            Measured::Cpu => {
                let nanos = whole(sample.value * 1e9);
                self.cpu = nanos.map(|it| json!({"time": time, "usageCoreNanoSeconds": it}));
            }
            Measured::Memory => {
                let bytes = whole(sample.value);
                self.memory = bytes.map(|it| json!({"time": time, "workingSetBytes": it}));
            }
        }
    }
}

impl OfPod {
    fn json(self, pod: &Pod) -> Value {
        let metadata = &pod.metadata;
        let started = pod.status.as_ref().and_then(|it| it.start_time.as_ref());
        let containers = self.containers.into_iter();
        let containers = containers
            .map(|(name, usage)| with(json!({"name": name, "startTime": started}), usage));
        let containers: Vec<_> = containers.collect();
        let of_pod = json!({
            "podRef": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
            "startTime": started,
            "containers": containers,
        });

        with(of_pod, self.usage)
    }
}

/// Adds a usage to an object.
fn with(mut object: Value, usage: Usage) -> Value {
    for (name, value) in [("cpu", usage.cpu), ("memory", usage.memory)] {
        if let Some(value) = value {
            object[name] = value;
        }
    }

    object
}

/// Returns a value as a whole number; `None` if it is not one that a counter can have.
fn whole(value: f64) -> Option<u64> {
    let is_valid = value.is_finite() && value >= 0.0 && value < u64::MAX as f64;
    is_valid.then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::from_value;

    fn web() -> Vec<Arc<Pod>> {
        let pod = json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "1"},
            "status": {"startTime": "2026-11-27T06:00:00Z"},
        });
        vec![Arc::new(from_value(pod).unwrap())]
    }

    #[test]
    fn usage_is_that_of_the_node_and_its_pods_with_their_containers() {
        let text = "\
node_cpu_usage_seconds_total 4.5 1795762800000
node_memory_working_set_bytes 1024
pod_cpu_usage_seconds_total{namespace=\"shop\",pod=\"web\"} 1.5 1795762800000
pod_memory_working_set_bytes{namespace=\"shop\",pod=\"web\"} NaN
container_cpu_usage_seconds_total{container=\"web\",namespace=\"shop\",pod=\"web\"} 1.25 1795762800000
container_memory_working_set_bytes{container=\"web\",namespace=\"shop\",pod=\"web\"} 512 1795762800000
container_start_time_seconds{container=\"web\",namespace=\"shop\",pod=\"web\"} 1
container_cpu_usage_seconds_total{container=\"c\",namespace=\"kube-system\",pod=\"dns\"} 1
scrape_error 0
";
        let now = "2026-11-27T07:00:05Z".parse().unwrap();

        let summary = summary(("milan", None), &web(), text, now);

        let time = "2026-11-27T07:00:00Z";
        assert_eq!(
            summary,
            json!({
                "node": {
                    "nodeName": "milan",
                    "startTime": null,
                    "cpu": {"time": time, "usageCoreNanoSeconds": 4_500_000_000_u64},
                    "memory": {"time": "2026-11-27T07:00:05Z", "workingSetBytes": 1024},
                },
                "pods": [{
                    "podRef": {"namespace": "shop", "name": "web", "uid": "1"},
                    "startTime": "2026-11-27T06:00:00Z",
                    "cpu": {"time": time, "usageCoreNanoSeconds": 1_500_000_000_u64},
                    "containers": [{
                        "name": "web",
                        "startTime": "2026-11-27T06:00:00Z",
                        "cpu": {"time": time, "usageCoreNanoSeconds": 1_250_000_000_u64},
                        "memory": {"time": time, "workingSetBytes": 512},
                    }],
                }],
            })
        );
    }

    #[test]
    fn absurd_values_and_containers_of_a_provider_are_bounded() {
        for value in ["-1", "NaN", "+Inf", "1e300"] {
            let text = format!("node_cpu_usage_seconds_total {value} 9223372036854775807\n");
            let summary = summary(("milan", None), &web(), &text, Timestamp::UNIX_EPOCH);
            assert_eq!(summary["node"]["cpu"], Value::Null, "{value}");
        }
        let line = |number: usize| {
            format!(
                "container_cpu_usage_seconds_total{{container=\"c{number}\",namespace=\"shop\",pod=\"web\"}} 1\n"
            )
        };
        let text: String = (0..CONTAINERS_MAX + 10).map(line).collect();
        let summary = summary(("milan", None), &web(), &text, Timestamp::UNIX_EPOCH);
        let containers = summary["pods"][0]["containers"].as_array().unwrap();
        assert_eq!(containers.len(), CONTAINERS_MAX);
    }
}
