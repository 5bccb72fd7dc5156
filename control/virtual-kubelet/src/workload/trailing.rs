//! Pods whose readiness is written a moment after that of the others, when the readiness of many changes at once.
//!
//! Kubernetes' EndpointSlice controller writes the endpoints of a Service when the first of its pods changes. When the next one
//! follows within milliseconds, the controller's cache lacks its own write, and it tries again a second later
//! (`defaultSyncBackOff` in `pkg/controller/endpointslice`), unless a further pod changes. So the last pod of each Service changes
//! when the cache is current.

use control_runtime::Key;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time after which the controller's cache has its first write.
const DELAY: Duration = Duration::from_millis(150);

/// Time between the last pods of different labels, which may belong to one Service.
const SPACING: Duration = Duration::from_millis(20);

/// Number of different delays in a namespace, which bounds them.
const DELAYS: u32 = 6;

/// Labels that differ between the pods of a workload. No Service selects by them, except one for a single pod.
const OF_INSTANCE: [&str; 5] = [
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "controller-revision-hash",
    "pod-template-hash",
    "statefulset.kubernetes.io/pod-name",
];

/// Returns the delays of the pods that follow the others: of those with equal labels, the last one.
pub(super) fn trailing<'a>(
    pods: impl Iterator<Item = (&'a Key, &'a Pod)>,
) -> BTreeMap<Key, Duration> {
    let mut groups: BTreeMap<_, Vec<&Key>> = BTreeMap::new();
    for (key, pod) in pods {
        let labels = pod.metadata.labels.iter().flatten();
        let labels = labels.filter(|(name, _)| !OF_INSTANCE.contains(&name.as_str()));
        let group = (&key.namespace, labels.collect::<Vec<_>>());
        groups.entry(group).or_default().push(key);
    }
    let mut delays = BTreeMap::new();
    let mut place = (None, 0);
    for ((namespace, _), keys) in groups {
        let [_, .., last] = keys.as_slice() else {
            continue;
        };
        let number = match place {
            (Some(before), number) if before == namespace => number + 1,
            _ => 0,
        };
        place = (Some(namespace), number);
        delays.insert((*last).clone(), DELAY + SPACING * (number % DELAYS));
    }

    delays
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn delays(pods: &[(&str, &str, Value)]) -> Vec<(String, u128)> {
        let pods: Vec<(Key, Pod)> = pods
            .iter()
            .map(|(namespace, name, labels)| {
                let pod = json!({"metadata": {"labels": labels}});
                let pod = serde_json::from_value(pod).unwrap();
                (Key::new(*namespace, *name), pod)
            })
            .collect();
        let delays = trailing(pods.iter().map(|(key, pod)| (key, pod)));

        delays
            .into_iter()
            .map(|(key, delay)| (format!("{}/{}", key.namespace, key.name), delay.as_millis()))
            .collect()
    }

    #[test]
    fn the_last_pod_of_each_workload_follows() {
        let web = |hash: &str| json!({"app": "web", "pod-template-hash": hash});
        let delays = delays(&[
            ("a", "db", json!({"app": "db"})),
            ("a", "web-1", web("x")),
            ("a", "web-2", web("y")),
            ("b", "web-1", web("x")),
            ("b", "web-2", web("x")),
        ]);
        assert_eq!(delays, [("a/web-2".into(), 150), ("b/web-2".into(), 150)]);
    }

    #[test]
    fn the_last_pods_of_a_namespace_have_different_delays() {
        let app = |number: u32| json!({"app": number.to_string()});
        let pods: Vec<_> = (0..14)
            .map(|number| (format!("pod-{number:02}"), app(number / 2)))
            .collect();
        let pods: Vec<_> = pods
            .iter()
            .map(|(name, labels)| ("a", name.as_str(), labels.clone()))
            .collect();
        let delays: Vec<_> = delays(&pods).into_iter().map(|(_, delay)| delay).collect();
        assert_eq!(delays, [150, 170, 190, 210, 230, 250, 150]);
    }
}
