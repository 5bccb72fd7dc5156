//! Tests that pods of two clusters with the same CIDRs reach each other.

use crate::fixture::{
    LIQO, Peering, SOON, Suite, Web, connection, liqoctl, liqoctl_command, parallel, remapped,
    remaps, until_connections_are,
};
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use std::net::Ipv4Addr;

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        every_pod_reaches_every_remote_pod,
        a_node_reaches_remote_pods,
        a_pod_reaches_remote_nodes_by_their_mapped_addresses,
        both_connections_are_connected_and_report_their_latency,
        connecting_again_changes_nothing,
        liqoctl_reports_a_healthy_network,
    );
}

async fn every_pod_reaches_every_remote_pod(peering: &'static Peering) -> Result<()> {
    let [rome, milan] = peering.web("every-pod").await?;

    for (here, there, home, abroad, home_name, abroad_name) in [
        (&rome, &milan, &peering.rome, &peering.milan, ROME, MILAN),
        (&milan, &rome, &peering.milan, &peering.rome, MILAN, ROME),
    ] {
        for from in &here.pods {
            for to in &there.pods {
                let address = remapped(home, abroad_name, to.address).await?;
                let response = here.get(from, &format!("{address}:8080")).await?;
                ensure!(response.contains(&to.name), "not {}: {response}", to.name);
                let client = remapped(abroad, home_name, from.address).await?;
                ensure!(
                    response.contains(&client.to_string()),
                    "the client is not {client}: {response}"
                );
            }
        }
    }

    Ok(())
}

async fn a_node_reaches_remote_pods(peering: &'static Peering) -> Result<()> {
    let milan = Web::up(&peering.milan, "node-to-pod").await?;

    for node in peering.rome.nodes() {
        for to in &milan.pods {
            let address = remapped(&peering.rome, MILAN, to.address).await?;
            let url = format!("http://{address}:8080/");
            let response = node.exec("curl", &["--silent", "--max-time", "5", &url])?;
            ensure!(response.contains(&to.name), "not {}: {response}", to.name);
        }
    }

    Ok(())
}

/// The address of a node is not in the pod CIDR, so an IP object maps it.
async fn a_pod_reaches_remote_nodes_by_their_mapped_addresses(
    peering: &'static Peering,
) -> Result<()> {
    let rome = Web::up(&peering.rome, "pod-to-node").await?;
    let liqo = Namespace::existing(&peering.milan, LIQO).await?;

    for node in peering.milan.node_specs()? {
        let ip = format!("ip/node-{}", node.name);
        let mapped = liqo.get(&ip, "{.status.ip}").await?;
        let mapped: Ipv4Addr = mapped.parse().context("the node has no mapped address")?;
        let address = remapped(&peering.rome, MILAN, mapped).await?;
        // The request goes to the kubelet's API, which demands authentication. The kubelet's health
        // port listens on loopback only.
        let words = ["exec", &rome.pods[0].name, "--", "curl", "--silent"];
        let url = format!("https://{address}:10250/healthz");
        let code = ["--insecure", "--output", "/dev/null", "--max-time", "5"];
        let write = ["--write-out", "%{http_code}", &url];
        let words = [words.as_slice(), &code, &write].concat();
        let response = rome.namespace.kubectl(&words).await?;
        ensure!(response == "401", "{}: {response}", node.name);
    }

    Ok(())
}

async fn both_connections_are_connected_and_report_their_latency(
    peering: &'static Peering,
) -> Result<()> {
    until_connections_are(peering, "Connected").await?;

    for (here, there) in [(&peering.rome, MILAN), (&peering.milan, ROME)] {
        until(Deadline::after(SOON), "a latency", async || {
            let status = connection(here, there).await?.status.unwrap_or_default();
            let latency = status.latency.context("no latency")?;
            ensure!(latency.timestamp.is_some(), "no timestamp");
            let value = latency.value.context("no value")?;
            ensure!(
                value.ends_with("ms") || value.ends_with("\u{3bc}s"),
                "{value}"
            );
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn connecting_again_changes_nothing(peering: &'static Peering) -> Result<()> {
    let before = remaps(&peering.rome, MILAN).await?;

    peering.connect()?;

    ensure!(
        remaps(&peering.rome, MILAN).await? == before,
        "the remapped CIDRs changed"
    );
    until_connections_are(peering, "Connected").await
}

async fn liqoctl_reports_a_healthy_network(peering: &'static Peering) -> Result<()> {
    let info = liqoctl(&peering.rome, &["info"])?;
    ensure!(info.contains("Liqo is healthy"), "{info}");
    ensure!(info.contains(MILAN), "{info}");

    let kubeconfig = peering.milan.kubeconfig();
    let remote = format!("--remote-kubeconfigs={}", kubeconfig.display());
    let mut command = liqoctl_command(&peering.rome)?;
    let output = command
        .args(["test", "network", &remote, "--rm"])
        .output()?;
    let warnings = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{warnings}");

    // The laboratory's cards are veths, whose GRO is off.
    let cards = [ROME, MILAN].map(|cluster| warnings.contains(&format!("{cluster}/")));
    ensure!(
        cards == [true, true] && warnings.contains("lacks rx-gro"),
        "{warnings}"
    );
    Ok(())
}
