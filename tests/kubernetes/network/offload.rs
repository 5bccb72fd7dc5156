//! Tests of offloaded pods, which run in the other cluster's containerd.

use crate::fixture::{Peering, SOON, Suite, install, install_with, liqoctl, remapped, serial};
use crate::peering::{connected_again, peer, unpeer};
use crate::removal::kubectl;
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::Value;
use std::net::Ipv4Addr;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        pods_of_an_offloaded_namespace_run_in_the_other_cluster
    );
}

/// Makes the virtual nodes run pods.
const VIRTUAL_KUBELET: &str = "--set=virtualKubelet.image.name=localhost/liqo/virtual-kubelet";

/// A Deployment whose pods reply by HTTP. They may run on any node.
const WEB: &str = include_str!("manifests/offloaded.yaml");

async fn pods_of_an_offloaded_namespace_run_in_the_other_cluster(
    peering: &'static Peering,
) -> Result<()> {
    let [rome, milan] = peering.clusters();
    connected_again(peering);
    install_with(rome, &[VIRTUAL_KUBELET])?;
    cleanup::defer("the installation without virtual kubelets", async || {
        install(&peering.rome)
    });
    peer([rome, milan], &["--cpu=4", "--memory=4Gi"])?;
    until_node_is_ready(rome).await?;

    // The namespace goes with the test, and its offloading with it.
    let shop = Namespace::create(rome, "shop").await?;
    let words = [
        "offload",
        "namespace",
        "shop",
        "--pod-offloading-strategy=Remote",
    ];
    liqoctl(rome, &words)?;
    shop.apply(WEB).await?;
    shop.rolled_out("deployment/web").await?;
    for pod in shop.pods("app=web").await? {
        is_offloaded(&shop, milan, &pod).await?;
    }

    liqoctl(rome, &["unoffload", "namespace", "shop", "--skip-confirm"])?;
    let left = kubectl(
        milan,
        &[
            "get",
            "namespace",
            "shop-it-rome",
            "--ignore-not-found",
            "-o",
            "name",
        ],
    )?;
    ensure!(left.is_empty(), "{left}");
    shop.kubectl(&["delete", "deployment", "web", "--wait"])
        .await?;
    unpeer([rome, milan], &[]).await
}

/// Waits until the virtual node of the provider is ready.
async fn until_node_is_ready(consumer: &Cluster) -> Result<()> {
    until(
        Deadline::after(SOON),
        "the virtual node to be ready",
        async || {
            let node = kubectl(consumer, &["get", "node", MILAN, "-o", "json"])?;
            let node: Value = serde_json::from_str(&node)?;
            let conditions = node["status"]["conditions"]
                .as_array()
                .context("no conditions")?;
            for condition in conditions {
                let expected = if condition["type"] == "Ready" {
                    "True"
                } else {
                    "False"
                };
                ensure!(condition["status"] == expected, "{condition}");
            }
            Ok(())
        },
    )
    .await
}

/// Checks that a pod of the consumer is the pod of the same name at the provider, with the address by which the consumer
/// reaches that.
async fn is_offloaded(namespace: &Namespace, provider: &Cluster, name: &str) -> Result<()> {
    let consumer = namespace.cluster();
    let pod = kubectl(
        consumer,
        &["get", "pod", name, "-n", namespace.name(), "-o", "json"],
    )?;
    let pod: Value = serde_json::from_str(&pod)?;
    let remote = format!("{}-{ROME}", namespace.name());
    let counterpart = kubectl(provider, &["get", "pod", name, "-n", &remote, "-o", "json"])?;
    let counterpart: Value = serde_json::from_str(&counterpart)?;
    ensure!(
        pod["spec"]["nodeName"] == MILAN,
        "{}",
        pod["spec"]["nodeName"]
    );
    for field in ["phase", "startTime"] {
        ensure!(
            pod["status"][field] == counterpart["status"][field],
            "{field}: {pod:#}"
        );
    }
    let id = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    ensure!(
        id(&pod).is_string() && id(&pod) == id(&counterpart),
        "{pod:#}"
    );
    let address = |pod: &Value| -> Result<Ipv4Addr> {
        let text = pod["status"]["podIP"].as_str().context("no address")?;
        Ok(text.parse()?)
    };
    let expected = remapped(consumer, MILAN, address(&counterpart)?).await?;
    ensure!(
        address(&pod)? == expected,
        "{} instead of {expected}",
        address(&pod)?
    );

    Ok(())
}
