//! Tests that deleted objects are restored, and that invalid objects of a peer do not affect other
//! peers.

use crate::fixture::{LIQO, Peering, SOON, Suite, connection, liqoctl, parallel, serial};
use crate::foreign::Tenant;
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use control_api::GatewayServer;
use kube::Api;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_node_port_endpoint_lists_all_nodes,
        invalid_objects_of_one_peer_do_not_affect_others,
        a_cluster_does_not_connect_to_itself,
    );
    serial!(suite, manually_deleted_objects_are_restored);
}

async fn a_node_port_endpoint_lists_all_nodes(peering: &'static Peering) -> Result<()> {
    let tenant = format!("liqo-tenant-{ROME}");
    let api: Api<GatewayServer> = Api::namespaced(peering.milan.client().await?, &tenant);
    let server = api.get(ROME).await?;

    let endpoint = server.status.and_then(|it| it.endpoint);
    let endpoint = endpoint.context("no status.endpoint")?;
    let mut nodes: Vec<_> = peering
        .milan
        .node_specs()?
        .iter()
        .map(|node| node.ip.to_string())
        .collect();
    nodes.sort();
    let mut addresses = endpoint.addresses;
    addresses.sort();
    ensure!(addresses == nodes, "{addresses:?}");
    ensure!(endpoint.port >= Some(30_000), "{:?}", endpoint.port);

    Ok(())
}

async fn invalid_objects_of_one_peer_do_not_affect_others(peering: &'static Peering) -> Result<()> {
    let before = connection(&peering.milan, ROME).await?;
    let invalid = Tenant::create(&peering.milan, "nowhere").await?;

    invalid
        .namespace()
        .apply(
            "apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata:
  name: nowhere
  labels: {liqo.io/remote-cluster-id: nowhere}
spec:
  remote:
    cidr:
      pod: [10.244.0.0/16, 10.244.0.0/16]
      external: [0.0.0.0/0]
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata:
  name: nowhere
  labels: {liqo.io/remote-cluster-id: nowhere}
spec:
  mtu: -5
  endpoint: {port: 51840, serviceType: ExternalName}
---
apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
metadata:
  name: nowhere
  labels: {liqo.io/remote-cluster-id: nowhere}
spec:
  publicKey: bm9uc2Vuc2U=
",
        )
        .await?;

    // An undisturbed gateway publishes a latency every 10 s.
    let measured = |it: &control_api::Connection| {
        let latency = it.status.as_ref()?.latency.as_ref()?;
        latency.timestamp.as_ref().map(|at| at.0)
    };
    let since = measured(&before);
    until(Deadline::after(SOON), "a new latency", async || {
        let now = connection(&peering.milan, ROME).await?;
        let value = now.status.as_ref().and_then(|it| it.value.clone());
        ensure!(value.as_deref() == Some("Connected"), "{value:?}");
        ensure!(measured(&now) > since, "{:?}", measured(&now));
        Ok(())
    })
    .await?;
    let [rome, milan] = peering.web("beside-invalid").await?;
    let address = crate::fixture::remapped(&peering.rome, MILAN, milan.pods[0].address).await?;
    rome.get(&rome.pods[0], &format!("{address}:8080")).await?;

    Ok(())
}

async fn a_cluster_does_not_connect_to_itself(peering: &'static Peering) -> Result<()> {
    let own = format!(
        "--remote-kubeconfig={}",
        peering.rome.kubeconfig().display()
    );

    let refused = liqoctl(&peering.rome, &["network", "connect", &own]);

    let error = format!("{:#}", refused.err().context("it was connected to itself")?);
    ensure!(error.contains("cluster are the same"), "{error}");
    Ok(())
}

async fn manually_deleted_objects_are_restored(peering: &'static Peering) -> Result<()> {
    let liqo = Namespace::existing(&peering.milan, LIQO).await?;
    let tenant = format!("liqo-tenant-{ROME}");
    let secret = format!("secret/gw-{ROME}");
    let services = "jsonpath={.items[*].metadata.name}";
    let node_ports = ["get", "services", "-o", services];
    let before = liqo.kubectl(&node_ports).await?;

    liqo.kubectl(&["delete", "--namespace", &tenant, &secret])
        .await?;
    liqo.kubectl(&["delete", "service", "liqo-gateway"]).await?;

    until(Deadline::after(SOON), "both to be restored", async || {
        let now = liqo.kubectl(&node_ports).await?;
        ensure!(now == before, "{now}");
        let key = ["get", "--namespace", &tenant, &secret, "-o"];
        let key = [key.as_slice(), &["jsonpath={.data.privateKey}"]].concat();
        ensure!(!liqo.kubectl(&key).await?.is_empty(), "no key");
        Ok(())
    })
    .await?;
    // `connect` writes the new public key and the new node port to the client's cluster.
    peering.connect()
}
