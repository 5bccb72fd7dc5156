//! Counts the requests of Liqo's processes to an API server, by a FlowSchema for Liqo's
//! ServiceAccounts.

use crate::fixture::{LIQO, SOON};
use crate::removal::kubectl;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::manifest;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::json;

/// The name and the priority level of the FlowSchema. The priority level is the default for
/// ServiceAccounts, so the FlowSchema does not change how the API server limits the requests.
const SCHEMA: &str = "liqo-lab";
const LEVEL: &str = "workload-low";

/// Creates the FlowSchema, which counts requests until the end of the test.
pub(crate) async fn start_counting(cluster: &Cluster) -> Result<()> {
    let group = format!("system:serviceaccounts:{LIQO}");
    let all = ["*"];
    let object = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": SCHEMA},
        "spec": {
            "priorityLevelConfiguration": {"name": LEVEL},
            "matchingPrecedence": 50,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": [{"kind": "Group", "group": {"name": group}}],
                "resourceRules": [{
                    "verbs": all,
                    "apiGroups": all,
                    "resources": all,
                    "clusterScope": true,
                    "namespaces": all,
                }],
                "nonResourceRules": [{"verbs": all, "nonResourceURLs": all}],
            }],
        },
    });
    let shared = cluster.clone();
    cleanup::defer(
        format!("flow schema of {}", cluster.name()),
        async move || {
            let words = ["delete", "flowschema", SCHEMA, "--ignore-not-found"];
            kubectl(&shared, &words).map(drop)
        },
    );
    manifest::apply(&cluster.client().await?, &[object], None).await?;

    // The leader renews its Lease every few seconds, so the counter must soon exceed zero.
    until(
        Deadline::after(SOON),
        "requests to be counted",
        async || {
            ensure!(count(cluster)? > 0, "none yet");
            Ok(())
        },
    )
    .await
}

/// Returns the number of requests since [`start_counting`].
pub(crate) fn count(cluster: &Cluster) -> Result<u64> {
    const METRIC: &str = "apiserver_flowcontrol_dispatched_requests_total{";

    let text = kubectl(cluster, &["get", "--raw", "/metrics"])?;
    let ours = format!("flow_schema=\"{SCHEMA}\"");
    let mut sum = 0;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(METRIC).filter(|it| it.contains(&ours)) else {
            continue;
        };
        let (_, value) = rest.rsplit_once(' ').context("a sample has a value")?;
        // Prometheus represents all values as floating-point numbers.
        let value: f64 = value.parse()?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a counter is a small whole number"
        )]
        {
            sum += value as u64;
        }
    }

    Ok(sum)
}
