//! The objects of upstream's `liqoctl test network`, and this project's command, in a consumer with a virtual node.

use super::{is_gone, peered};
use crate::fixture::{Peering, SOON, Suite, liqoctl, serial};
use crate::peering::unpeer;
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cleanup;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::{Value, json};

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        the_network_test_passes_with_its_host_network_pods_offloaded,
    );
}

/// The replicas of each Deployment.
const REPLICAS: usize = 2;

/// Upstream's command labels the physical nodes with the ID of their own cluster, and has a Deployment in the pod network and
/// one in the host network for each cluster, which this label selects. One Service has the former as endpoints.
async fn the_network_test_passes_with_its_host_network_pods_offloaded(
    peering: &'static Peering,
) -> Result<()> {
    let [rome, milan] = peered(peering).await?;
    let netshoot = Namespace::create(rome, "netshoot").await?;
    let offload = ["offload", "namespace", "netshoot"];
    liqoctl(rome, &offload)?;
    let remote = Namespace::existing(milan, &format!("netshoot-{ROME}")).await?;
    for node in rome.nodes() {
        let (namespace, name) = (netshoot.clone(), node.name().to_owned());
        cleanup::defer(format!("label of {name}"), async move || {
            let removed = format!("{LABEL}-");
            namespace
                .kubectl(&["label", "node", &name, &removed])
                .await
                .map(drop)
        });
        let label = format!("{LABEL}={ROME}");
        netshoot
            .kubectl(&["label", "node", node.name(), &label])
            .await?;
    }

    netshoot.apply(&service().to_string()).await?;
    for cluster in [ROME, MILAN] {
        for is_host in [false, true] {
            let (name, object) = deployment(cluster, is_host);
            netshoot.apply(&object.to_string()).await?;
            netshoot.rolled_out(&format!("deployment/{name}")).await?;
        }
    }
    let pods = netshoot.get("pods", "{.items[*].spec.nodeName}").await?;
    let offloaded = pods.split_whitespace().filter(|it| *it == MILAN).count();
    ensure!(offloaded == 2 * REPLICAS, "{pods}");
    let path = "{.items[*].spec.hostNetwork}";
    let host_networks = remote.get("pods", path).await?;
    ensure!(!host_networks.contains("true"), "{host_networks}");
    endpoints(&remote).await?;

    let peer = format!("--remote-kubeconfigs={}", milan.kubeconfig().display());
    liqoctl(rome, &["test", "network", &peer, "--rm"])?;

    let unoffload = ["unoffload", "namespace", "netshoot", "--skip-confirm"];
    liqoctl(rome, &unoffload)?;
    is_gone(milan, remote.name())?;
    netshoot
        .kubectl(&["delete", "deployments,pods", "--all", "--wait"])
        .await?;
    unpeer([rome, milan], &[]).await
}

/// Checks that the Service has a native and a reflected EndpointSlice at the provider, which have all replicas together.
async fn endpoints(remote: &Namespace) -> Result<()> {
    let what = "two EndpointSlices with all replicas";
    until(Deadline::after(SOON), what, async || {
        let service = "kubernetes.io/service-name=netshoot";
        let words = ["get", "endpointslices", "-l", service, "-o", "json"];
        let slices: Value = serde_json::from_str(&remote.kubectl(&words).await?)?;
        let slices = slices["items"].as_array().context("no items")?;
        let endpoints = slices.iter().map(|it| it["endpoints"].as_array());
        let counts: Vec<_> = endpoints.map(|it| it.map_or(0, Vec::len)).collect();
        ensure!(counts == [REPLICAS, REPLICAS], "{slices:#?}");
        Ok(())
    })
    .await
}

const LABEL: &str = "liqo.io/remote-cluster-id";

fn service() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "netshoot"},
        "spec": {"selector": {"app": "pod"}, "ports": [{"port": 80, "targetPort": 8080}]},
    })
}

/// Returns the name of a Deployment, and its manifest.
fn deployment(cluster: &str, is_host: bool) -> (String, Value) {
    let (app, command) = match is_host {
        true => ("host", json!(["sleep", "infinity"])),
        false => ("pod", json!(["whoami"])),
    };
    let name = format!("netshoot-{app}-{cluster}");
    let labels = json!({"app": app, "cluster": cluster});
    let object = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "hostNetwork": is_host,
                    "terminationGracePeriodSeconds": 0,
                    "nodeSelector": {LABEL: cluster},
                    "containers": [{
                        "name": "netshoot",
                        "image": "localhost/tools:latest",
                        "imagePullPolicy": "IfNotPresent",
                        "command": command,
                    }],
                },
            },
        },
    });

    (name, object)
}
