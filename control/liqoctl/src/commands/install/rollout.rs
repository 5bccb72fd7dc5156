//! Waits for the rollout of the chart.

use crate::cluster::Cluster;
use crate::pod_state;
use crate::wait::{Deadline, Found};
use anyhow::Result;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};

/// Label selector of the chart's objects.
const SELECTOR: &str = "app.kubernetes.io/part-of=liqo";

/// Waits until every Deployment and DaemonSet of the chart is rolled out.
///
/// # Errors
///
/// Returns an error at the deadline that names the missing replicas and the reasons of their pods.
pub(crate) async fn wait(cluster: &Cluster, namespace: &str, deadline: Deadline) -> Result<()> {
    let deployments = Api::<Deployment>::namespaced(cluster.client.clone(), namespace);
    let daemon_sets = Api::<DaemonSet>::namespaced(cluster.client.clone(), namespace);
    let pods = Api::<Pod>::namespaced(cluster.client.clone(), namespace);
    deadline
        .until("starting Liqo", async || {
            let (deployments, daemon_sets) = tokio::try_join!(
                cluster.list(&deployments, "Deployments", SELECTOR),
                cluster.list(&daemon_sets, "DaemonSets", SELECTOR),
            )?;
            let mut waiting: Vec<String> = deployments.iter().filter_map(deployment).collect();
            waiting.extend(daemon_sets.iter().filter_map(daemon_set));
            if waiting.is_empty() {
                return Ok(Found::Ready(()));
            }
            let pods = cluster.list(&pods, "Pods", "").await?;
            let reasons: Vec<String> = pods.iter().filter_map(reason).collect();
            let mut text = waiting.join(", ");
            if !reasons.is_empty() {
                text += &format!(" ({})", reasons.join("; "));
            }
            Ok(Found::Missing(text))
        })
        .await
}

/// Returns the missing replicas of a Deployment.
fn deployment(deployment: &Deployment) -> Option<String> {
    let desired = deployment.spec.replicas.unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let is_seen = status.observed_generation >= deployment.metadata.generation;
    let updated = status.updated_replicas.unwrap_or_default();
    let ready = status.available_replicas.unwrap_or_default().min(updated);
    let all = status.replicas.unwrap_or_default();
    let is_done = is_seen && ready >= desired && all == updated;
    (!is_done).then(|| {
        let name = deployment.name_any();
        format!("Deployment {name} has {ready} of {desired} replicas available")
    })
}

/// Returns the missing pods of a DaemonSet.
fn daemon_set(set: &DaemonSet) -> Option<String> {
    let status = set.status.clone().unwrap_or_default();
    let is_seen = status.observed_generation >= set.metadata.generation;
    let desired = status.desired_number_scheduled;
    let updated = status.updated_number_scheduled.unwrap_or_default();
    let ready = status.number_ready.min(updated);
    let is_done = is_seen && ready >= desired;
    (!is_done).then(|| {
        let name = set.name_any();
        format!("DaemonSet {name} has {ready} of {desired} pods ready")
    })
}

/// Returns the reason why a pod does not run, if its status contains one.
fn reason(pod: &Pod) -> Option<String> {
    let text = pod_state::obstacle(pod)?;
    Some(format!("pod {}: {text}", pod.name_any()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn a_rollout_is_done_when_the_new_replicas_are_available() {
        let of = |status| -> Deployment {
            from_value(json!({
                "metadata": {"name": "liqo-gateway", "generation": 2},
                "spec": {"replicas": 2, "selector": {}, "template": {}},
                "status": status,
            }))
            .unwrap()
        };
        let done = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
        let old_remaining = json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 3});
        let unseen = json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});

        assert_eq!(deployment(&of(done)), None);
        assert!(deployment(&of(old_remaining)).is_some());
        assert!(deployment(&of(unseen)).is_some());
        assert_eq!(
            deployment(&of(json!({}))).unwrap(),
            "Deployment liqo-gateway has 0 of 2 replicas available"
        );
    }

    #[test]
    fn a_daemon_set_runs_on_every_node() {
        let of = |ready: i32| -> DaemonSet {
            from_value(json!({
                "metadata": {"name": "liqo-fabric", "generation": 1},
                "status": {
                    "observedGeneration": 1, "desiredNumberScheduled": 2, "currentNumberScheduled": 2,
                    "updatedNumberScheduled": 2, "numberReady": ready, "numberMisscheduled": 0,
                },
            }))
            .unwrap()
        };

        assert_eq!(daemon_set(&of(2)), None);
        assert_eq!(
            daemon_set(&of(1)).unwrap(),
            "DaemonSet liqo-fabric has 1 of 2 pods ready"
        );
    }

    #[test]
    fn the_reason_of_a_missing_image_is_reported() {
        let pod: Pod = from_value(json!({
            "metadata": {"name": "liqo-gateway-a"},
            "status": {"containerStatuses": [{
                "name": "gateway", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}},
            }]},
        }))
        .unwrap();

        assert_eq!(
            reason(&pod).unwrap(),
            "pod liqo-gateway-a: ErrImagePull: not found"
        );
    }
}
