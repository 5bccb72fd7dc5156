//! Input that cannot be carried out, beside pods that must not be affected.

use super::workload::Workload;
use crate::MILAN;
use crate::fixture::{Peering, SOON, Suite, serial};
use anyhow::{Result, ensure};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::{Value, json};

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        refused_pods_a_smaller_slice_and_a_lost_secret_affect_no_other_pod,
    );
}

/// More than half of the CPU that the slice has after it shrinks.
const CPU: &str = "600m";

async fn refused_pods_a_smaller_slice_and_a_lost_secret_affect_no_other_pod(
    peering: &'static Peering,
) -> Result<()> {
    let workload = Workload::start(peering, "bad-input").await?;
    let home = &workload.home;

    // The profile `baseline` of the provider's TenantPolicy forbids volumes of the node.
    let volumes = json!([{"name": "etc", "hostPath": {"path": "/etc"}}]);
    home.apply(&pod("host-path", &volumes)).await?;
    let cause = "spec.pod.volumes[etc].hostPath";
    until_event(&workload.remote, "host-path", cause).await?;

    // Pods that run keep running in a slice that has become smaller than their sum, and others are refused.
    home.apply(&pod("first", &json!([]))).await?;
    home.apply(&pod("second", &json!([]))).await?;
    for name in ["pod/first", "pod/second"] {
        home.wait(name, "Ready").await?;
    }
    let tenant = Namespace::existing(workload.rome, &format!("liqo-tenant-{MILAN}")).await?;
    let smaller = json!({"spec": {"resources": {"cpu": "1"}}}).to_string();
    let slice = "resourceslices.authentication.liqo.io";
    let patch = ["patch", slice, MILAN, "--type=merge", "-p", &smaller];
    tenant.kubectl(&patch).await?;
    home.wait(
        &format!("node/{MILAN}"),
        "jsonpath={.status.capacity.cpu}=1",
    )
    .await?;
    home.apply(&pod("third", &json!([]))).await?;
    until_event(&workload.remote, "third", "exceeded quota: cpu").await?;
    for name in ["pod/first", "pod/second"] {
        home.wait(name, "Ready").await?;
    }
    let phase = home.get("pod/third", "{.status.phase}").await?;
    ensure!(phase == "Pending", "{phase}");

    // The Secret of the VirtualNode is created again.
    let path = "{.spec.kubeconfigSecretRef.name}";
    let secret = tenant.get(&format!("virtualnode/{MILAN}"), path).await?;
    let path = "{.metadata.uid}";
    let before = tenant.get(&format!("secret/{secret}"), path).await?;
    tenant.kubectl(&["delete", "secret", &secret]).await?;
    until(Deadline::after(SOON), "another Secret", async || {
        let now = tenant.get(&format!("secret/{secret}"), path).await?;
        ensure!(now != before, "{now}");
        Ok(())
    })
    .await?;
    workload.next_pod("next").await?;
    workload.ready_and_deleted("next").await?;

    workload.until_unchanged().await?;
    workload.ensure_no_request_failed().await?;
    workload.judge(&[]).await?.end().await
}

/// Returns the manifest of a pod on the virtual node. The test chooses the node, because the scheduler would refuse pods that
/// exceed the slice.
fn pod(name: &str, volumes: &Value) -> String {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": MILAN,
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "sleep",
                "image": "localhost/tools:latest",
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "infinity"],
                "resources": {"requests": {"cpu": CPU, "memory": "16Mi"}},
            }],
            "volumes": volumes,
        },
    });
    pod.to_string()
}

/// Waits for an Event of an object with this name whose message contains `cause`.
async fn until_event(namespace: &Namespace, name: &str, cause: &str) -> Result<()> {
    let what = format!("an Event of {name} with {cause:?}");
    until(Deadline::after(SOON), &what, async || {
        let field = format!("involvedObject.name={name}");
        let path = "jsonpath={range .items[*]}{.reason}: {.message}\n{end}";
        let words = ["get", "events", "--field-selector", &field, "-o", path];
        let events = namespace.kubectl(&words).await?;
        ensure!(events.contains(cause), "{events:?}");
        Ok(())
    })
    .await
}
