//! Tests of whole peerings: the networks, the credentials of the provider, and a virtual node.

mod in_band;
mod topologies;

use crate::deletion::reaches;
use crate::fixture::{Peering, SOON, Suite, install, liqoctl, serial, until_connections_are};
use crate::removal::{kubectl, nothing_of};
use crate::{MILAN, ROME, page};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::Value;
use std::time::{Duration, Instant};

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_peering_connects_pods_and_ends_without_a_trace,
        the_server_of_the_network_peers_with_the_client,
        the_page_shows_the_output_of_its_commands,
    );
    in_band::add(suite);
    topologies::add(suite);
}

const PAGE: &str = include_str!("../../../docs/peering.md");

/// The kinds of objects of a peering. All of them have the label of the peer.
const KINDS: &str = "tenants,identities,resourceslices.authentication.liqo.io,renews,namespacemaps,virtualnodes,quotas,\
    configurations,gatewayservers,gatewayclients,publickeies,connections,networks.ipam.liqo.io";

/// Time after the end of `unpeer` in which the last objects go.
const GONE: Duration = Duration::from_secs(1);

/// The flag of clusters whose load balancers other clusters do not reach.
const NODE_PORT: &str = "--gw-server-service-type=NodePort";

async fn the_page_shows_the_output_of_its_commands(peering: &'static Peering) -> Result<()> {
    connected_again(peering);
    let [rome, milan] = peering.clusters();
    peering.network("reset", &["--wait"])?;
    nothing_of(rome, MILAN).await?;
    nothing_of(milan, ROME).await?;
    page::compare(peering, "peering.md", PAGE).await
}

async fn a_peering_connects_pods_and_ends_without_a_trace(peering: &'static Peering) -> Result<()> {
    let [rome, milan] = peering.clusters();
    connected_again(peering);
    let webs = peering.web("whole-peering").await?;
    peering.network("reset", &["--wait"])?;
    nothing_of(rome, MILAN).await?;
    nothing_of(milan, ROME).await?;

    // The second peering starts from what the first one has left.
    for _ in 0..2 {
        let out = peer([rome, milan], &["--cpu=2", "--memory=1Gi"])?;
        ensure!(out.contains("ResourceSlice resources: Accepted"), "{out}");
        until_healthy(rome, MILAN, "Provider").await?;
        until_healthy(milan, ROME, "Consumer").await?;
        ensure!(user_of_virtual_node(rome, MILAN).await?.starts_with(MILAN));
        let [of_rome, of_milan] = &webs;
        reaches(rome, of_rome, MILAN, of_milan).await?;
        reaches(milan, of_milan, ROME, of_rome).await?;
        let refused = liqoctl(rome, &["uninstall", "--skip-confirm"]);
        let refused = format!("{:#}", refused.err().context("uninstalled while peered")?);
        ensure!(refused.contains("liqoctl unpeer"), "{refused}");

        unpeer([rome, milan], &[]).await?;
        nothing_of(rome, MILAN).await?;
        nothing_of(milan, ROME).await?;
    }

    for cluster in [rome, milan] {
        liqoctl(cluster, &["uninstall", "--skip-confirm"])?;
        install(cluster)?;
    }
    Ok(())
}

/// The tunnel keeps its direction, and its objects, when a peering in the other direction begins and ends.
async fn the_server_of_the_network_peers_with_the_client(peering: &'static Peering) -> Result<()> {
    let [rome, milan] = peering.clusters();
    connected_again(peering);
    let webs = peering.web("other-direction").await?;

    // The network exists, and its client is the provider.
    let out = peer([milan, rome], &[])?;
    ensure!(out.contains("ResourceSlice resources: Accepted"), "{out}");
    until_healthy(milan, ROME, "Provider").await?;
    until_healthy(rome, MILAN, "Consumer").await?;
    let [of_rome, of_milan] = &webs;
    reaches(rome, of_rome, MILAN, of_milan).await?;
    unpeer([milan, rome], &[]).await?;

    // The consumer is the server.
    peer([milan, rome], &["--gw-server-service-location=Consumer"])?;
    let servers = ["get", "gatewayservers", "-A", "-o", "name"];
    ensure!(kubectl(milan, &servers)?.lines().count() == 1);
    ensure!(kubectl(rome, &servers)?.is_empty());
    until_healthy(milan, ROME, "Provider").await?;
    reaches(milan, of_milan, ROME, of_rome).await?;
    unpeer([milan, rome], &[]).await
}

/// Connects the shared clusters again after the test.
pub(crate) fn connected_again(peering: &'static Peering) {
    cleanup::defer("the connection of the shared clusters", async || {
        let [rome, milan] = peering.clusters();
        for pair in [[rome, milan], [milan, rome]] {
            if !kubectl(pair[0], &["get", "identities", "-A", "-o", "name"])?.is_empty() {
                between(pair, &["unpeer"])?;
            }
        }
        peering.connect()?;
        until_connections_are(peering, "Connected").await
    });
}

/// Runs `liqoctl peer`: the first cluster becomes a consumer of the second.
pub(crate) fn peer(pair: [&Cluster; 2], flags: &[&str]) -> Result<String> {
    let start = Instant::now();
    let out = between(pair, &[&["peer", NODE_PORT], flags].concat())?;
    let [consumer, provider] = pair.map(Cluster::name);
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("{consumer} peered with {provider} ({seconds:.1} s)");

    Ok(out)
}

/// Runs `liqoctl unpeer`, and checks that nothing of the pair is left.
pub(crate) async fn unpeer(pair: [&Cluster; 2], flags: &[&str]) -> Result<()> {
    let [consumer, provider] = pair;
    let start = Instant::now();
    between(pair, &[&["unpeer"], flags].concat())?;
    let ended = Instant::now();
    let seconds = (ended - start).as_secs_f64();
    eprintln!("{} unpeered ({seconds:.1} s)", consumer.name());

    nothing_of_pair(consumer, provider.name(), ended).await?;
    nothing_of_pair(provider, consumer.name(), ended).await
}

/// Runs `liqoctl` for two clusters.
pub(crate) fn between([local, remote]: [&Cluster; 2], words: &[&str]) -> Result<String> {
    let remote = format!("--remote-kubeconfig={}", remote.kubeconfig().display());
    liqoctl(local, &[words, &[&remote, "--skip-confirm"]].concat())
}

/// Checks that a cluster has no object of a peer, and no ForeignCluster with an enabled module.
async fn nothing_of_pair(cluster: &Cluster, there: &str, since: Instant) -> Result<()> {
    let rest = GONE.saturating_sub(since.elapsed());
    let what = format!("{} to have nothing of {there}", cluster.name());
    let peer = format!("liqo.io/remote-cluster-id={there}");
    until(Deadline::after(rest), &what, async || {
        let objects = ["get", KINDS, "-A", "-l", &peer, "-o", "name"];
        let left = kubectl(cluster, &objects)?;
        ensure!(left.trim().is_empty(), "{left}");
        let foreign = ["get", "foreignclusters", "-l", &peer, "-o", "json"];
        let foreign: Value = serde_json::from_str(&kubectl(cluster, &foreign)?)?;
        for foreign in foreign["items"].as_array().context("no items")? {
            for module in ["networking", "authentication", "offloading"] {
                let module = &foreign["status"]["modules"][module];
                ensure!(module["enabled"] != true, "{foreign}");
            }
        }
        Ok(())
    })
    .await
}

/// Waits until `liqoctl info` and `info peer` report a peer with a network as healthy.
async fn until_healthy(cluster: &Cluster, there: &str, role: &str) -> Result<()> {
    let what = format!("{there} to be a healthy {role} of {}", cluster.name());
    until(Deadline::after(SOON), &what, async || {
        is_healthy(cluster, there, role)
    })
    .await
}

fn is_healthy(cluster: &Cluster, there: &str, role: &str) -> Result<()> {
    let info: Value = serde_json::from_str(&liqoctl(cluster, &["info", "-o", "json"])?)?;
    ensure!(info["health"]["healthy"] == true, "{info:#}");
    let peers = info["peerings"]["peers"].as_array().context("no peers")?;
    let peer = peers.iter().find(|it| it["clusterID"] == there);
    let peer = peer.with_context(|| format!("no {there} in {info:#}"))?;
    ensure!(peer["role"] == role, "{peer:#}");
    for module in ["networkingStatus", "authenticationStatus"] {
        ensure!(peer[module] == "Healthy", "{peer:#}");
    }

    let report = liqoctl(cluster, &["info", "peer", there, "-o", "json"])?;
    let report: Value = serde_json::from_str(&report)?;
    let report = &report[there];
    let (action, offloading) = match role {
        "Consumer" => ("Providing", "Disabled"),
        _ => ("Consuming", "Healthy"),
    };
    ensure!(report["offloading"]["status"] == offloading, "{report:#}");
    let slices = report["authentication"]["resourceSlices"].as_array();
    let slices = slices.context("no slices")?;
    let mut accepted = slices.iter().filter(|it| it["accepted"] == true);
    ensure!(accepted.any(|it| it["action"] == action), "{report:#}");
    Ok(())
}

/// Returns the user at the provider that a VirtualNode has the credentials of.
async fn user_of_virtual_node(consumer: &Cluster, there: &str) -> Result<String> {
    let kubeconfig = Kubeconfig::from_yaml(&kubeconfig_of_virtual_node(consumer, there)?)?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    let reviews: Api<SelfSubjectReview> = Api::all(Client::try_from(config)?);
    let review = SelfSubjectReview::default();
    let review = reviews.create(&PostParams::default(), &review).await?;
    let user = review.status.and_then(|it| it.user_info);

    user.and_then(|it| it.username).context("no user")
}

/// Returns the kubeconfig of the VirtualNode for a provider.
fn kubeconfig_of_virtual_node(consumer: &Cluster, there: &str) -> Result<String> {
    let tenant = format!("liqo-tenant-{there}");
    let path = "jsonpath={.spec.kubeconfigSecretRef.name}";
    let secret = ["get", "virtualnode", there, "-n", &tenant, "-o", path];
    let secret = kubectl(consumer, &secret)?;
    let path = "go-template={{.data.kubeconfig | base64decode}}";

    kubectl(
        consumer,
        &["get", "secret", &secret, "-n", &tenant, "-o", path],
    )
}
