//! A consumer of two providers, of which a selector chooses one.

use super::{is_gone, is_offloaded, until_node_is_ready};
use crate::fixture::{Peering, Suite, liqoctl, serial};
use crate::peering::{connected_again, peer, unpeer};
use crate::removal::kubectl;
use crate::three::naples;
use crate::{NAPLES, ROME};
use anyhow::{Result, ensure};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::spec::Spec;

pub(super) fn add(suite: &mut Suite) {
    serial!(suite, a_selector_chooses_one_of_two_providers);
}

const MANIFEST: &str = include_str!("../manifests/offloaded.yaml");

async fn a_selector_chooses_one_of_two_providers(peering: &'static Peering) -> Result<()> {
    connected_again(peering);
    let naples = naples(peering, Spec::new(NAPLES)).await?;
    let [rome, milan] = peering.clusters();
    for provider in [milan, &naples] {
        peer([rome, provider], &["--cpu=4", "--memory=4Gi"])?;
        until_node_is_ready([rome, provider]).await?;
    }

    let chosen = Namespace::create(rome, "chosen").await?;
    let selector = format!("--selector=liqo.io/remote-cluster-id={NAPLES}");
    let strategy = "--pod-offloading-strategy=Remote";
    liqoctl(
        rome,
        &["offload", "namespace", "chosen", strategy, &selector],
    )?;
    chosen.apply(MANIFEST).await?;
    chosen.rolled_out("deployment/web").await?;
    let remote = format!("chosen-{ROME}");
    for pod in chosen.pods("app=web").await? {
        is_offloaded(&chosen, &naples, &pod).await?;
    }
    is_gone(milan, &remote)?;
    kubectl(&naples, &["get", "namespace", &remote])?;

    // Further pods follow the others.
    let deployment = ["scale", "deployment", "web", "--replicas=4"];
    chosen.kubectl(&deployment).await?;
    chosen.rolled_out("deployment/web").await?;
    let nodes = chosen.get("pods", "{.items[*].spec.nodeName}").await?;
    ensure!(nodes.split_whitespace().all(|it| it == NAPLES), "{nodes}");

    let unoffload = ["unoffload", "namespace", "chosen", "--skip-confirm"];
    liqoctl(rome, &unoffload)?;
    is_gone(&naples, &remote)?;
    chosen
        .kubectl(&["delete", "deployment", "web", "--wait"])
        .await?;
    unpeer([rome, &naples], &[]).await?;
    unpeer([rome, milan], &[]).await
}
