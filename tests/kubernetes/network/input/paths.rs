//! Tests of invalid names, endpoints, MTUs and firewall rules between clusters.

use super::Monitor;
use super::commands::refusal;
use crate::fixture::{Peering, SOON, Suite, Web, connection, serial, until_connections_are};
use crate::foreign::{Foreign, Tenant};
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use control_api::networking::connection::{PATH_HEALTHY, reason};
use kubernetes_lab::cleanup::{self, Deferred};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::json;

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_name_that_does_not_resolve_is_reported,
        two_servers_without_a_client_do_not_affect_other_peers,
        an_mtu_above_that_of_the_links_keeps_the_connection,
    );
    serial!(
        suite,
        blocked_udp_is_reported_with_the_port_to_open,
        a_second_gateway_for_a_peer_is_reported_and_the_first_keeps_serving,
    );
}

async fn a_name_that_does_not_resolve_is_reported(peering: &'static Peering) -> Result<()> {
    let monitor = Monitor::start(peering, "no-such-name").await?;
    let host = "no-such-host.invalid";
    let tenant = Tenant::create(&peering.rome, "no-such-name").await?;
    tenant
        .configure(&["10.244.0.0/16"], &["10.70.0.0/16"])
        .await?;
    tenant.publish(&[11; 32]).await?;
    let endpoint = json!({"addresses": [host], "port": 51840, "protocol": "UDP"});
    tenant
        .write("GatewayClient", &json!({"endpoint": endpoint}))
        .await?;

    let message = path_unhealthy(&peering.rome, "no-such-name", reason::NAME_NOT_RESOLVED).await?;
    ensure!(message.contains(host), "{message}");
    ensure!(message.contains("spec.endpoint.addresses"), "{message}");
    let status = connection(&peering.rome, "no-such-name").await?.status;
    let value = status.unwrap_or_default().value;
    ensure!(value.as_deref() == Some("Connecting"), "{value:?}");

    // The name resolves, but no gateway listens at its address.
    let endpoint = json!({"addresses": ["localhost"], "port": 51840, "protocol": "UDP"});
    tenant
        .write("GatewayClient", &json!({"endpoint": endpoint}))
        .await?;
    path_unhealthy(&peering.rome, "no-such-name", reason::NO_ANSWER).await?;
    tenant.delete().await?;
    monitor.finish(peering).await
}

async fn two_servers_without_a_client_do_not_affect_other_peers(
    peering: &'static Peering,
) -> Result<()> {
    let monitor = Monitor::start(peering, "two-servers").await?;
    let spec = json!({"endpoint": {"port": 51840, "serviceType": "NodePort"}});
    let mut tenants = Vec::new();
    for (cluster, key) in [(&peering.rome, [12; 32]), (&peering.milan, [13; 32])] {
        let tenant = Tenant::create(cluster, "two-servers").await?;
        tenant
            .configure(&["10.244.0.0/16"], &["10.70.0.0/16"])
            .await?;
        tenant.serve(&spec).await?;
        tenant.publish(&key).await?;
        tenants.push(tenant);
    }

    for tenant in &tenants {
        tenant.endpoint().await?;
        until(
            Deadline::after(SOON),
            "the Connection to be Connecting",
            async || {
                let status = connection(tenant.cluster(), "two-servers").await?.status;
                let value = status.unwrap_or_default().value;
                ensure!(value.as_deref() == Some("Connecting"), "{value:?}");
                Ok(())
            },
        )
        .await?;
        tenant.delete().await?;
    }
    monitor.finish(peering).await
}

/// The links have an MTU of 1,500 bytes. The probes of the gateways fit into this MTU, so the
/// Connection stays `Connected`.
async fn an_mtu_above_that_of_the_links_keeps_the_connection(
    peering: &'static Peering,
) -> Result<()> {
    let web = Web::up(&peering.milan, "large-mtu").await?;
    let endpoint = json!({"port": 51840, "serviceType": "NodePort"});
    let peer = Foreign::client(&peering.milan, "large-mtu", &endpoint).await?;
    peer.tenant
        .serve(&json!({"endpoint": endpoint, "mtu": 9000}))
        .await?;

    peer.connected().await?;
    peer.exchanges_traffic(&web).await
}

/// Drops datagrams between the nodes of both clusters, first in one direction and then in the
/// other.
async fn blocked_udp_is_reported_with_the_port_to_open(peering: &'static Peering) -> Result<()> {
    for (at, from, cause, direction) in [
        (
            &peering.milan,
            &peering.rome,
            reason::NOTHING_ARRIVES,
            "local -> remote is blocked",
        ),
        (
            &peering.rome,
            &peering.milan,
            reason::ANSWERS_LOST,
            "remote -> local is blocked",
        ),
    ] {
        let blocked = block(at, from)?;
        let error = block_reported(peering, cause).await?;
        ensure!(error.contains(direction), "{error}");
        eprintln!("{} drops datagrams of {}: {error}", at.name(), from.name());
        blocked.run().await?;
        until_connections_are(peering, "Connected").await?;

        let tenant = Namespace::existing(&peering.milan, &format!("liqo-tenant-{ROME}")).await?;
        let server = format!("gatewayserver/{ROME}");
        let port = tenant.get(&server, "{.status.endpoint.port}").await?;
        ensure!(error.contains(&format!("port {port}")), "{error}");
        for node in peering.milan.node_specs()? {
            ensure!(error.contains(&node.ip.to_string()), "{error}");
        }
    }
    Ok(())
}

/// Waits until the Connection of milan, the server, has the reason `cause`. Returns the error of
/// `liqoctl network connect`.
async fn block_reported(peering: &Peering, cause: &str) -> Result<String> {
    until(
        Deadline::after(SOON),
        "the Connections to fail",
        async || {
            for (cluster, peer) in [(&peering.rome, MILAN), (&peering.milan, ROME)] {
                let status = connection(cluster, peer).await?.status;
                let value = status.unwrap_or_default().value;
                ensure!(value.as_deref() != Some("Connected"), "{}", cluster.name());
            }
            Ok(())
        },
    )
    .await?;
    let message = path_unhealthy(&peering.milan, ROME, cause).await?;
    ensure!(message.contains("UDP"), "{message}");
    let message = path_unhealthy(&peering.rome, MILAN, reason::NO_ANSWER).await?;
    ensure!(message.contains(MILAN), "{message}");
    let milan = format!(
        "--remote-kubeconfig={}",
        peering.milan.kubeconfig().display()
    );
    let words = ["network", "connect", &milan, "--wait", "--timeout=10s"];
    let words = [words.as_slice(), &["--gw-server-service-type=NodePort"]].concat();
    refusal(&peering.rome, &words)
}

/// Waits until the Connection to a peer reports an unhealthy path for this reason. Returns the
/// message of the condition.
pub(super) async fn path_unhealthy(cluster: &Cluster, peer: &str, reason: &str) -> Result<String> {
    let what = format!("{reason} of {peer} in {}", cluster.name());
    until(Deadline::after(SOON), &what, async || {
        let status = connection(cluster, peer).await?.status.unwrap_or_default();
        let mut conditions = status.conditions.iter();
        let condition = conditions
            .find(|it| it.type_ == PATH_HEALTHY)
            .context("no condition")?;
        ensure!(condition.status == "False", "{condition:?}");
        ensure!(condition.reason == reason, "{condition:?}");
        Ok(condition.message.clone())
    })
    .await
}

/// Drops datagrams from the nodes of `from` on the nodes of `at`. Running the result removes the
/// rules.
pub(crate) fn block(at: &Cluster, from: &Cluster) -> Result<Deferred> {
    let nodes = at.nodes();
    let what = format!("tables {BLOCK} of {}", at.name());
    let blocked = cleanup::defer(what, async move || {
        for node in nodes {
            for verb in ["add", "delete"] {
                node.exec("nft", &[verb, "table", "inet", BLOCK])?;
            }
        }
        Ok(())
    });
    let sources: Vec<_> = from
        .node_specs()?
        .iter()
        .map(|node| node.ip.to_string())
        .collect();
    let sources = sources.join(", ");
    for node in at.nodes() {
        for command in [
            format!("add table inet {BLOCK}"),
            // The chain precedes connection tracking, so it also drops packets of established
            // flows.
            format!("add chain inet {BLOCK} in {{ type filter hook prerouting priority -400 ; }}"),
            format!(
                "add rule inet {BLOCK} in ip saddr {{ {sources} }} meta l4proto udp counter drop"
            ),
        ] {
            node.exec("nft", &[&command])?;
        }
    }
    Ok(blocked)
}

const BLOCK: &str = "lab-block";

async fn a_second_gateway_for_a_peer_is_reported_and_the_first_keeps_serving(
    peering: &'static Peering,
) -> Result<()> {
    let monitor = Monitor::start(peering, "second-gateway").await?;
    let tenant = Namespace::existing(&peering.milan, &format!("liqo-tenant-{ROME}")).await?;
    let labels = json!({"liqo.io/remote-cluster-id": ROME});
    let endpoint = json!({"addresses": ["172.18.1.2"], "port": 51840});
    for (kind, spec) in [
        (
            "GatewayServer",
            json!({"endpoint": {"port": 51840, "serviceType": "NodePort"}}),
        ),
        ("GatewayClient", json!({"endpoint": endpoint})),
    ] {
        let object = json!({
            "apiVersion": "networking.liqo.io/v1beta1",
            "kind": kind,
            "metadata": {"name": "second", "labels": labels},
            "spec": spec,
        });
        let what = format!("{}/second", kind.to_lowercase());
        let (namespace, object_name) = (tenant.clone(), what.clone());
        let second = cleanup::defer(what.clone(), async move || {
            let words = ["delete", &object_name, "--ignore-not-found"];
            namespace.kubectl(&words).await.map(drop)
        });
        tenant.apply(&object.to_string()).await?;
        let path = "{.status.conditions[?(@.type==\"Ready\")]}";
        let message = until(
            Deadline::after(SOON),
            "the conflict to be reported",
            async || {
                let ready = tenant.get(&what, path).await?;
                ensure!(ready.contains("Conflict"), "{ready}");
                Ok(ready)
            },
        )
        .await?;
        second.run().await?;
        ensure!(
            message.contains(&format!("liqo-tenant-{ROME}/{ROME}")),
            "{message}"
        );
        ensure!(message.contains("delete one of the two"), "{message}");
    }

    monitor.finish(peering).await
}
