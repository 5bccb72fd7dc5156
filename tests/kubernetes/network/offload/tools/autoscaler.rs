//! A HorizontalPodAutoscaler of the consumer, whose pods run at the provider.

use super::{Offloaded, peered, pod};
use crate::fixture::{Peering, Suite, serial};
use crate::offload::is_offloaded;
use anyhow::{Context as _, Result, bail, ensure};
use kubernetes_lab::metrics_server;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::{Value, json};
use std::time::Duration;

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        an_autoscaler_adds_offloaded_pods_by_their_cpu_utilization,
    );
}

/// The utilization above which pods are added, in percent of the requested CPU.
const TARGET: u32 = 100;

/// The CPU request of a pod, and its limit, which is the usage of a pod that computes without a pause.
const REQUEST: &str = "50m";
const LIMIT: &str = "200m";

/// The number of pods under load.
const REPLICAS: usize = 2;

/// Time limit of each decision. metrics-server needs two samples, one every 10 s, and the controller of autoscalers reads the
/// metrics every 15 s. It ignores samples that began before the pod was ready.
const DECIDED: Duration = Duration::from_secs(180);

async fn an_autoscaler_adds_offloaded_pods_by_their_cpu_utilization(
    peering: &'static Peering,
) -> Result<()> {
    let offloaded = Offloaded::namespace(peered(peering).await?, "autoscaler").await?;
    let home = &offloaded.home;
    // The provider has no metrics-server, so the metrics are those of its metric agent.
    metrics_server::install(offloaded.rome).await?;
    home.apply(&deployment().to_string()).await?;
    home.rolled_out("deployment/web").await?;
    home.apply(&autoscaler().to_string()).await?;
    let pods = home.pods("app=web").await?;
    let [first] = &pods[..] else {
        bail!("{pods:?}");
    };
    is_offloaded(home, offloaded.milan, first).await?;

    let idle = "the utilization of an idle pod";
    until(Deadline::after(DECIDED), idle, async || {
        let utilization = utilization(home).await?;
        ensure!(utilization <= TARGET, "{utilization} %");
        Ok(())
    })
    .await?;
    let replicas = home.get("deployment/web", "{.spec.replicas}").await?;
    ensure!(replicas == "1", "{replicas} replicas of an idle pod");

    home.sh(first, "while :; do :; done >/dev/null 2>&1 &")
        .await?;
    until(Deadline::after(DECIDED), "further pods", async || {
        let ready = home
            .get("deployment/web", "{.status.readyReplicas}")
            .await?;
        let state = home.get("hpa/web", "{.status}").await?;
        ensure!(ready == REPLICAS.to_string(), "{ready} are ready: {state}");
        Ok(())
    })
    .await?;
    let pods = home.pods("app=web").await?;
    ensure!(pods.len() == REPLICAS && pods.contains(first), "{pods:?}");
    for pod in &pods {
        is_offloaded(home, offloaded.milan, pod).await?;
    }
    let path = "{.items[?(@.reason==\"SuccessfulRescale\")].message}";
    let reasons = home.get("events", path).await?;
    let expected = format!("New size: {REPLICAS}; reason: cpu resource utilization");
    ensure!(
        reasons.contains(&expected) && reasons.contains("above target"),
        "{reasons:?}"
    );

    let objects = ["delete", "hpa,deployments", "--all", "--wait"];
    home.kubectl(&objects).await?;
    offloaded.end().await
}

/// Returns the utilization that the autoscaler has read, in percent of the requested CPU.
async fn utilization(home: &Namespace) -> Result<u32> {
    let path = "{.status.currentMetrics[0].resource.current.averageUtilization}";
    let text = home.get("hpa/web", path).await?;
    if text.is_empty() {
        let conditions = home.get("hpa/web", "{.status.conditions}").await?;
        bail!("there is none: {conditions}");
    }

    text.parse().with_context(|| text.clone())
}

/// Returns a Deployment of one pod without load.
fn deployment() -> Value {
    let labels = json!({"app": "web"});
    let mut spec = pod("web", &["sleep", "infinity"])["spec"].clone();
    spec["containers"][0]["resources"] = json!({
        "requests": {"cpu": REQUEST},
        "limits": {"cpu": LIMIT},
    });

    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    })
}

fn autoscaler() -> Value {
    json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1,
            "maxReplicas": REPLICAS,
            "metrics": [{
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": TARGET},
                },
            }],
        },
    })
}
