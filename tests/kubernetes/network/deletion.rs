//! Tests that users may delete objects in any order. The deletions end, and a new connection works.

use crate::converged::until_converged;
use crate::fixture::{
    LIQO, Peering, SOON, Suite, Web, install, remapped, remaps, serial, until_connections_are,
};
use crate::removal::{kubectl, nothing_of};
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::wait::{Deadline, until};

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_peering_deleted_in_any_order_at_the_client_can_be_recreated,
        a_peering_deleted_in_any_order_at_the_server_can_be_recreated,
        deleted_objects_of_the_manager_are_recreated_unchanged,
        deleted_objects_of_the_chart_are_recreated_by_an_install,
    );
}

/// Orders in which the test deletes the objects of a peering. `foreigncluster` and `namespace` are
/// cluster-scoped. All other objects are in the tenant namespace.
const ORDERS: [&[&str]; 5] = [
    &[
        "gatewayserver",
        "gatewayclient",
        "publickey",
        "configuration",
    ],
    &[
        "configuration",
        "publickey",
        "gatewayclient",
        "gatewayserver",
    ],
    &[
        "publickey",
        "foreigncluster",
        "configuration",
        "gatewayserver",
        "gatewayclient",
    ],
    &["namespace"],
    &["foreigncluster", "connection", "network", "namespace"],
];

async fn a_peering_deleted_in_any_order_at_the_client_can_be_recreated(
    peering: &'static Peering,
) -> Result<()> {
    deleted_and_recreated(peering, &peering.rome, MILAN).await
}

async fn a_peering_deleted_in_any_order_at_the_server_can_be_recreated(
    peering: &'static Peering,
) -> Result<()> {
    deleted_and_recreated(peering, &peering.milan, ROME).await
}

async fn deleted_and_recreated(peering: &'static Peering, at: &Cluster, there: &str) -> Result<()> {
    let webs = peering.web("deleted-by-hand").await?;

    for order in ORDERS {
        for kind in order {
            delete(at, there, kind).with_context(|| format!("in the order {order:?}"))?;
        }
        nothing_of(at, there).await?;
        peering.connect()?;
        reach_each_other(peering, &webs)
            .await
            .with_context(|| format!("after the order {order:?}"))?;
    }

    Ok(())
}

/// Deletes all objects of a kind that belong to a peer. Waits until the objects are gone, except
/// for Connections and Networks.
fn delete(at: &Cluster, there: &str, kind: &str) -> Result<()> {
    let tenant = format!("liqo-tenant-{there}");
    let limit = "--timeout=30s";
    let deleted = match kind {
        "namespace" => kubectl(at, &["delete", kind, &tenant, limit]),
        // The manager recreates the ForeignCluster while other objects of the peering exist.
        "foreigncluster" => kubectl(at, &["delete", kind, there, limit]),
        // The manager recreates these objects.
        "connection" | "network" => kubectl(
            at,
            &["delete", kind, "--all", "-n", &tenant, "--wait=false"],
        ),
        _ => kubectl(at, &["delete", kind, "--all", "-n", &tenant, limit]),
    };

    deleted.map(drop)
}

async fn deleted_objects_of_the_manager_are_recreated_unchanged(
    peering: &'static Peering,
) -> Result<()> {
    let webs = peering.web("recreated").await?;
    let before = [
        remaps(&peering.rome, MILAN).await?,
        remaps(&peering.milan, ROME).await?,
    ];
    let mut expected = Vec::new();
    for (cluster, there) in [(&peering.rome, MILAN), (&peering.milan, ROME)] {
        let managed = managed(cluster, there)?;
        ensure!(managed.lines().count() >= 6, "{managed}");
        expected.push(managed);
    }

    for (cluster, there) in [(&peering.rome, MILAN), (&peering.milan, ROME)] {
        let tenant = format!("liqo-tenant-{there}");
        kubectl(cluster, &["delete", "-n", LIQO, "secret/liqo-gateway-keys"])?;
        kubectl(
            cluster,
            &["delete", "-n", LIQO, "ips.ipam.liqo.io", "--all"],
        )?;
        kubectl(cluster, &["delete", "foreigncluster", there])?;
        for kind in ["networks.ipam.liqo.io", "connections"] {
            kubectl(cluster, &["delete", "-n", &tenant, kind, "--all"])?;
        }
    }

    until(
        Deadline::after(SOON),
        "all objects to be recreated",
        async || {
            let clusters = [(&peering.rome, MILAN), (&peering.milan, ROME)];
            for ((cluster, there), expected) in clusters.into_iter().zip(&expected) {
                let managed = managed(cluster, there)?;
                let name = cluster.name();
                ensure!(managed == *expected, "{name}: {managed}, not {expected}");
            }
            Ok(())
        },
    )
    .await?;
    until_connections_are(peering, "Connected").await?;
    let after = [
        remaps(&peering.rome, MILAN).await?,
        remaps(&peering.milan, ROME).await?,
    ];
    ensure!(after == before, "the remapped CIDRs changed: {after:?}");
    reach_each_other(peering, &webs).await?;
    Ok(())
}

/// Returns the objects that the manager creates for a peering and for nodes, with their addresses.
fn managed(cluster: &Cluster, there: &str) -> Result<String> {
    let tenant = format!("liqo-tenant-{there}");
    let path = "jsonpath={range .items[*]}{.kind} {.metadata.name} {.status.cidr} {.status.ip}{\"\\n\"}{end}";
    let list = |words: &[&str]| kubectl(cluster, &[&["get", "-o", path], words].concat());
    let peering = list(&["networks.ipam.liqo.io,connections", "-n", &tenant])?;
    let nodes = list(&["ips.ipam.liqo.io", "-n", LIQO])?;
    let summary = list(&["foreigncluster"])?;
    let keys = ["get", "secret", "liqo-gateway-keys", "-n", LIQO, "-o"];
    let keys = [keys.as_slice(), &["jsonpath={.data}"]].concat();
    let keys = kubectl(cluster, &keys)?;

    Ok(format!("{peering}{nodes}{summary}{keys}"))
}

/// Only Helm recreates deleted objects of the chart.
async fn deleted_objects_of_the_chart_are_recreated_by_an_install(
    peering: &'static Peering,
) -> Result<()> {
    let webs = peering.web("installed-again").await?;
    let objects = [
        "deployment/liqo-gateway",
        "daemonset/liqo-fabric",
        "service/liqo-gateway-replicas",
        "secret/liqo-gateway-keys",
    ];

    for cluster in peering.clusters() {
        for object in objects {
            kubectl(cluster, &["delete", "-n", LIQO, object, "--timeout=60s"])?;
        }
        install(cluster)?;
    }
    until_connections_are(peering, "Connected").await?;
    until_converged(peering).await?;
    reach_each_other(peering, &webs).await?;

    // The manager's Deployment owns objects for all peers, so its deletion also deletes the Service
    // of the gateways. The new Service has another port. `connect` writes this port to the client's
    // cluster.
    for cluster in peering.clusters() {
        let manager = "deployment/liqo-controller-manager";
        kubectl(cluster, &["delete", "-n", LIQO, manager, "--timeout=60s"])?;
        install(cluster)?;
    }
    peering.connect()?;
    until_converged(peering).await?;
    reach_each_other(peering, &webs).await?;

    Ok(())
}

/// Waits until every pod of each cluster reaches every pod of the other cluster.
async fn reach_each_other(peering: &Peering, webs: &[Web; 2]) -> Result<()> {
    let [rome, milan] = webs;
    for (here, there, home, abroad) in [
        (rome, milan, &peering.rome, MILAN),
        (milan, rome, &peering.milan, ROME),
    ] {
        reaches(home, here, abroad, there).await?;
    }

    Ok(())
}

/// Waits until every pod of `here` reaches every pod of `there`. `abroad` is the id of the cluster
/// that contains `there`.
pub(crate) async fn reaches(home: &Cluster, here: &Web, abroad: &str, there: &Web) -> Result<()> {
    for from in &here.pods {
        for to in &there.pods {
            let what = format!("{} to reach {}", from.name, to.name);
            until(Deadline::after(SOON), &what, async || {
                let address = remapped(home, abroad, to.address).await?;
                let response = here.get(from, &format!("{address}:8080")).await?;
                ensure!(response.contains(&to.name), "{response}");
                Ok(())
            })
            .await?;
        }
    }

    Ok(())
}
