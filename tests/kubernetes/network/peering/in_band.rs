//! Tests of in-band peerings: the consumer reaches the provider's API server through the tunnel only.

use super::{between, connected_again, kubeconfig_of_virtual_node, peer, unpeer, until_healthy};
use crate::fixture::{
    LIQO, Peering, SOON, Suite, Web, WebPod, install, install_with, liqoctl_command, remapped,
    serial, until_pair_is,
};
use crate::input::paths::block;
use crate::removal::{kubectl, nothing_of};
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

pub(super) fn add(suite: &mut Suite) {
    serial!(suite, a_provider_is_reached_through_the_tunnel_alone);
}

/// Time in which `unpeer` reports that the provider is unreachable.
const REPORTED: Duration = Duration::from_secs(10);

/// The ResourceSlice that is created while the provider is unreachable.
const LATER: &str = "later";

/// The nft table that drops packets to the API server of the provider.
const CLOSED: &str = "lab-closed";

async fn a_provider_is_reached_through_the_tunnel_alone(peering: &'static Peering) -> Result<()> {
    let [rome, milan] = peering.clusters();
    cleanup::defer("the proxy of milan", async || install(&peering.milan));
    // Runs before the removal of the proxy.
    connected_again(peering);
    install_with(milan, &["--set=proxy.enabled=true"])?;
    let web = Web::up(rome, "in-band").await?;
    peering.network("reset", &["--wait"])?;
    let server = format!("{}:6443", milan.node_specs()?[0].ip);
    let direct = format!("curl -ksS -m 3 https://{server}/livez");
    let client = &web.pods[0].name;
    ensure!(web.namespace.sh(client, &direct).await? == "ok");
    close(rome, milan)?;
    let refused = web.namespace.sh(client, &direct).await;
    ensure!(refused.is_err(), "{server} is reached without the tunnel");

    let out = peer([rome, milan], &["--in-band"])?;
    ensure!(out.contains("ResourceSlice resources: Accepted"), "{out}");
    until_healthy(rome, MILAN, "Provider").await?;
    let proxy = proxy_url(rome, milan).await?;
    let foreign = ["get", "foreigncluster", MILAN, "-o", "json"];
    let foreign: Value = serde_json::from_str(&kubectl(rome, &foreign)?)?;
    ensure!(
        foreign["status"]["foreignProxyUrl"] == *proxy,
        "{foreign:#}"
    );
    let kubeconfig = kubeconfig_of_virtual_node(rome, MILAN)?;
    let user = user_through_proxy(&web, &web.pods[0], &kubeconfig, &proxy).await?;
    ensure!(user.starts_with(MILAN), "{user}");

    cut_and_restored(rome, milan).await?;

    unpeer([rome, milan], &[]).await?;
    nothing_of(rome, MILAN).await?;
    nothing_of(milan, ROME).await
}

/// While the tunnel is interrupted, `unpeer` changes nothing. Afterwards all controllers and commands continue.
async fn cut_and_restored(rome: &Cluster, milan: &Cluster) -> Result<()> {
    let cut = block(milan, rome)?;
    until_pair_is([rome, milan], "Error").await?;
    let before = objects(rome, milan)?;
    let start = Instant::now();
    let refused = between([rome, milan], &["unpeer"]);
    let refused = format!("{:#}", refused.err().context("unpeered without a tunnel")?);
    ensure!(start.elapsed() < REPORTED, "{:?}", start.elapsed());
    ensure!(
        refused.contains("liqoctl force unpeer it-milan"),
        "{refused}"
    );
    ensure!(refused.contains("nothing was changed"), "{refused}");
    ensure!(objects(rome, milan)? == before, "objects were changed");
    let peer = format!("--remote-cluster-id={MILAN}");
    let mut create = liqoctl_command(rome)?
        .args(["create", "resourceslice", LATER, &peer, "--cpu=1"])
        .stdout(Stdio::null())
        .spawn()
        .context("failed to start liqoctl")?;
    let tenant = format!("liqo-tenant-{MILAN}");
    until(Deadline::after(SOON), "the ResourceSlice", async || {
        kubectl(
            rome,
            &[
                "get",
                "resourceslices.authentication.liqo.io",
                LATER,
                "-n",
                &tenant,
            ],
        )
    })
    .await?;
    ensure!(
        create.try_wait()?.is_none(),
        "it was accepted without a tunnel"
    );

    let start = Instant::now();
    cut.run().await?;
    until_pair_is([rome, milan], "Connected").await?;
    let status = until(Deadline::after(SOON), "liqoctl to end", async || {
        create.try_wait()?.context("it waits")
    })
    .await?;
    ensure!(status.success(), "{status}");
    eprintln!("recovered ({:.1} s)", start.elapsed().as_secs_f64());
    until(Deadline::after(SOON), "the VirtualNode", async || {
        kubectl(rome, &["get", "virtualnode", LATER, "-n", &tenant])
    })
    .await
    .map(drop)
}

/// Returns UID and generation of the objects of the peering in both clusters.
fn objects(rome: &Cluster, milan: &Cluster) -> Result<String> {
    let path = "jsonpath={range .items[*]}{.kind} {.metadata.uid} {.metadata.generation}\n{end}";
    let kinds = ["get", super::KINDS, "-A", "-o", path];

    Ok(kubectl(rome, &kinds)? + &kubectl(milan, &kinds)?)
}

/// Drops packets of the consumer's nodes and pods to the API server of the provider. They still reach the provider's
/// gateways.
fn close(consumer: &Cluster, provider: &Cluster) -> Result<()> {
    let nodes = consumer.nodes();
    cleanup::defer("the nft tables of the consumer", async move || {
        for node in nodes {
            for verb in ["add", "delete"] {
                node.exec("nft", &[verb, "table", "inet", CLOSED])?;
            }
        }
        Ok(())
    });
    let specs = provider.node_specs()?;
    let addresses: Vec<_> = specs.iter().map(|node| node.ip.to_string()).collect();
    let addresses = addresses.join(", ");
    for node in consumer.nodes() {
        node.exec("nft", &[&format!("add table inet {CLOSED}")])?;
        for hook in ["forward", "output"] {
            for command in [
                format!(
                    "add chain inet {CLOSED} {hook} {{ type filter hook {hook} priority 0 ; }}"
                ),
                format!(
                    "add rule inet {CLOSED} {hook} ip daddr {{ {addresses} }} tcp dport 6443 drop"
                ),
            ] {
                node.exec("nft", &[&command])?;
            }
        }
    }
    Ok(())
}

/// Returns the URL at which the consumer reaches the proxy of the provider.
async fn proxy_url(consumer: &Cluster, provider: &Cluster) -> Result<String> {
    let liqo = Namespace::existing(provider, LIQO).await?;
    let address = liqo.get("ip/api-server-proxy", "{.status.ip}").await?;
    let address = address.parse().context("the IP has no address")?;
    let address = remapped(consumer, provider.name(), address).await?;

    Ok(format!("http://{address}:8118"))
}

/// Returns the user of a kubeconfig whose only route to the API server is a proxy. The requests come from a pod.
async fn user_through_proxy(
    web: &Web,
    pod: &WebPod,
    kubeconfig: &str,
    proxy: &str,
) -> Result<String> {
    let kubeconfig: Value = serde_saphyr::from_str(kubeconfig)?;
    let cluster = &kubeconfig["clusters"][0]["cluster"];
    ensure!(cluster["proxy-url"] == proxy, "{}", cluster["proxy-url"]);
    let user = &kubeconfig["users"][0]["user"];
    for (file, data) in [
        ("ca", &cluster["certificate-authority-data"]),
        ("cert", &user["client-certificate-data"]),
        ("key", &user["client-key-data"]),
    ] {
        let data = data.as_str().with_context(|| format!("no {file}"))?;
        let decode = format!("base64 -d >/tmp/{file}");
        let exec = ["exec", "-i", &pod.name, "--", "sh", "-c", &decode];
        web.namespace.kubectl_with(&exec, data).await?;
    }
    let server = cluster["server"].as_str().context("no server")?;
    let review = r#"{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}"#;
    let script = format!(
        "curl -sS -m 10 --proxytunnel -x {proxy} --cacert /tmp/ca --cert /tmp/cert --key /tmp/key \
         -H 'Content-Type: application/json' -d '{review}' \
         {server}/apis/authentication.k8s.io/v1/selfsubjectreviews"
    );
    let review: Value = serde_json::from_str(&web.namespace.sh(&pod.name, &script).await?)?;
    let user = review["status"]["userInfo"]["username"].as_str();

    user.map(str::to_owned)
        .with_context(|| format!("{review:#}"))
}
