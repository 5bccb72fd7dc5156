//! `kubectl drain` of a node of the consumer, and of the virtual node, while offloaded pods serve requests.

use crate::MILAN;
use crate::converged::liqo;
use crate::fixture::{Peering, SOON, Suite, serial};
use crate::offload::workload::{Workload, is_ready, pods, virtual_kubelets};
use anyhow::{Context as _, Result, bail, ensure};
use kube::api::ListParams;
use kubernetes_lab::cleanup::{self, Deferred};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::json;

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_drain_of_a_node_leaves_offloaded_pods_alone_and_one_of_the_virtual_node_ends_them,
    );
}

async fn a_drain_of_a_node_leaves_offloaded_pods_alone_and_one_of_the_virtual_node_ends_them(
    peering: &'static Peering,
) -> Result<()> {
    let workload = Workload::start(peering, "drained").await?;
    drain_a_node(&workload).await?;
    let replaced = drain_the_virtual_node(&workload).await?;

    workload.judge(&replaced).await?.end().await
}

/// Drains the node that the client of the Service is not on. The virtual kubelet may be on it.
async fn drain_a_node(workload: &Workload) -> Result<()> {
    let home = &workload.home;
    let of_client = home.get("pod/client", "{.spec.nodeName}").await?;
    let nodes = workload.rome.nodes();
    let mut others = nodes.iter().filter(|it| it.name() != of_client);
    let node = others.next().context("no other node")?.name();

    let cordon = uncordoned(home, node);
    drain(home, node, &["--ignore-daemonsets"]).await?;
    workload.until_unchanged().await?;
    let path = "{.spec.unschedulable}";
    let unschedulable = home.get(&format!("node/{MILAN}"), path).await?;
    ensure!(unschedulable.is_empty(), "{unschedulable}");
    // The virtual kubelet is on the other node now.
    workload.next_pod("next").await?;
    workload.ready_and_deleted("next").await?;

    cordon.run().await?;
    let liqo = liqo(workload.rome).await?;
    for name in ["controller-manager", "gateway", "metric-agent"] {
        liqo.rolled_out(&format!("deployment/liqo-{name}")).await?;
    }
    let kubelets = virtual_kubelets(workload.rome).await?;
    until(Deadline::after(SOON), "the virtual kubelet", async || {
        let kubelets = kubelets.list(&ListParams::default()).await?;
        ensure!(kubelets.iter().all(is_ready), "it is not ready");
        Ok(())
    })
    .await?;
    workload.replies_after_now().await?;

    workload.until_unchanged().await
}

/// Returns the names of the pods that other ones replace.
async fn drain_the_virtual_node(workload: &Workload) -> Result<Vec<String>> {
    let Workload { home, remote, .. } = workload;
    home.apply(&daemon_set()).await?;
    home.rolled_out("daemonset/agent").await?;
    let agent = home.pods("app=agent").await?;
    let [agent] = &agent[..] else {
        bail!("{agent:?}");
    };
    let uid = |namespace: &Namespace| {
        let (namespace, pod) = (namespace.clone(), format!("pod/{agent}"));
        async move { namespace.get(&pod, "{.metadata.uid}").await }
    };
    let before = [uid(home).await?, uid(remote).await?];
    let old: Vec<_> = pods(home).await?.into_keys().collect();

    let cordon = uncordoned(home, MILAN);
    let refused = drain(home, MILAN, &[]).await.err().context("drained")?;
    let refused = format!("{refused:#}");
    ensure!(
        refused.contains(agent) && refused.contains("--ignore-daemonsets"),
        "{refused}"
    );
    drain(home, MILAN, &["--ignore-daemonsets"]).await?;

    // Their containers have ended, and their successors wait for the node.
    let left = remote.pods("app").await?;
    ensure!(left == [agent.clone()], "{left:?}");
    let new = home.pods("app=web").await?;
    ensure!(new.iter().all(|it| !old.contains(it)), "{new:?}");
    let scheduled = home.get(
        "pods",
        "{.items[?(@.metadata.labels.app==\"web\")].spec.nodeName}",
    );
    let scheduled = scheduled.await?;
    ensure!(scheduled.is_empty(), "{scheduled}");
    let after = [uid(home).await?, uid(remote).await?];
    ensure!(after == before, "{after:?} instead of {before:?}");

    cordon.run().await?;
    home.rolled_out("deployment/web").await?;
    workload.replies_after_now().await?;
    home.kubectl(&["delete", "daemonset", "agent", "--wait"])
        .await?;

    Ok(old)
}

/// Makes a node schedulable again after the test, or when the result runs.
pub(super) fn uncordoned(namespace: &Namespace, node: &str) -> Deferred {
    let (namespace, name) = (namespace.clone(), node.to_owned());
    cleanup::defer(format!("cordon of {name}"), async move || {
        let present = ["get", "node", &name, "--ignore-not-found"];
        if !namespace.kubectl(&present).await?.is_empty() {
            namespace.kubectl(&["uncordon", &name]).await?;
        }
        Ok(())
    })
}

async fn drain(namespace: &Namespace, node: &str, flags: &[&str]) -> Result<()> {
    let words = ["drain", node, "--delete-emptydir-data", "--timeout=100s"];
    let drained = namespace.kubectl(&[&words[..], flags].concat()).await;
    drained.map(drop)
}

/// Returns a DaemonSet of virtual nodes, which its template names.
fn daemon_set() -> String {
    let labels = json!({"app": "agent"});
    let set = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "nodeSelector": {"liqo.io/type": "virtual-node"},
                    "tolerations": [{"key": "virtual-node.liqo.io/not-allowed", "operator": "Exists"}],
                    "containers": [{
                        "name": "agent",
                        "image": "localhost/tools:latest",
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["sleep", "infinity"],
                    }],
                },
            },
        },
    });
    set.to_string()
}
