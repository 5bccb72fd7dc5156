//! DaemonSets that tolerate every taint, in a cluster with a virtual node.

use super::peered;
use crate::fixture::{Peering, Suite, install_with, liqoctl, serial};
use crate::peering::{connected_again, unpeer};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::namespace::Namespace;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        daemon_sets_from_before_and_after_the_installation_roll_out,
    );
}

async fn daemon_sets_from_before_and_after_the_installation_roll_out(
    peering: &'static Peering,
) -> Result<()> {
    connected_again(peering);
    let rome = &peering.rome;
    peering.network("reset", &["--wait"])?;
    liqoctl(rome, &["uninstall", "--skip-confirm"])?;
    let agents = Namespace::create(rome, "agents").await?;
    agents.apply(&daemon_set("before")).await?;
    agents.rolled_out("daemonset/before").await?;
    let patch = ["--patch-daemonsets", "--skip-confirm"];
    install_with(rome, &patch)?;
    let clusters = peered(peering).await?;
    agents.apply(&daemon_set("after")).await?;

    for name in ["before", "after"] {
        let set = format!("daemonset/{name}");
        agents.rolled_out(&set).await?;
        let nodes = nodes(&agents, name).await?;
        agents.kubectl(&["rollout", "restart", &set]).await?;
        agents.rolled_out(&set).await?;
        let expected: BTreeSet<_> = rome.nodes().iter().map(|it| it.name().to_owned()).collect();
        for nodes in [nodes, self::nodes(&agents, name).await?] {
            ensure!(nodes == expected, "{name} runs on {nodes:?}");
        }
        // The roll-out would wait for pods on the virtual node.
        let desired = agents.get(&set, "{.status.desiredNumberScheduled}").await?;
        ensure!(desired == "2", "{name}: {desired} pods");
    }

    unpeer(clusters, &[]).await
}

/// Returns the nodes of all pods of a DaemonSet that do not end.
async fn nodes(agents: &Namespace, name: &str) -> Result<BTreeSet<String>> {
    let label = format!("app={name}");
    let pods = ["get", "pods", "-l", &label, "-o", "json"];
    let pods: Value = serde_json::from_str(&agents.kubectl(&pods).await?)?;
    let pods = pods["items"].as_array().context("no items")?;
    let live = pods
        .iter()
        .filter(|it| it["metadata"]["deletionTimestamp"].is_null());

    Ok(live
        .map(|it| {
            it["spec"]["nodeName"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
        .collect())
}

fn daemon_set(name: &str) -> String {
    let set = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{
                        "name": "sleep",
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
