//! What is deleted by hand, in any order, neither blocks anything nor keeps the clusters
//! from being connected again.

use crate::fixture::{
    LIQO, Peering, SOON, Suite, Web, install, remaps, seen, serial, until_connections_are,
};
use crate::removal::{kubectl, nothing_of};
use crate::whole::until_whole;
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::wait::{Deadline, until};

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_peering_deleted_in_any_order_at_the_client_is_made_again,
        a_peering_deleted_in_any_order_at_the_server_is_made_again,
        what_the_manager_made_is_made_again_as_it_was,
        what_helm_made_is_made_again_by_an_install,
    );
}

/// Everything of a peering that people write, and the summary; the last is not of the
/// tenant's namespace.
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

async fn a_peering_deleted_in_any_order_at_the_client_is_made_again(
    peering: &'static Peering,
) -> Result<()> {
    deleted_and_made_again(peering, &peering.rome, MILAN).await
}

async fn a_peering_deleted_in_any_order_at_the_server_is_made_again(
    peering: &'static Peering,
) -> Result<()> {
    deleted_and_made_again(peering, &peering.milan, ROME).await
}

async fn deleted_and_made_again(
    peering: &'static Peering,
    at: &Cluster,
    there: &str,
) -> Result<()> {
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

/// Deletes all of a kind that there is of a peer, and waits until it is gone.
fn delete(at: &Cluster, there: &str, kind: &str) -> Result<()> {
    let tenant = format!("liqo-tenant-{there}");
    let limit = "--timeout=30s";
    let deleted = match kind {
        "namespace" => kubectl(at, &["delete", kind, &tenant, limit]),
        // The manager makes it again while there is something to sum up.
        "foreigncluster" => kubectl(at, &["delete", kind, there, limit]),
        // The gateways are told by it, and it is made again.
        "connection" | "network" => kubectl(
            at,
            &["delete", kind, "--all", "-n", &tenant, "--wait=false"],
        ),
        _ => kubectl(at, &["delete", kind, "--all", "-n", &tenant, limit]),
    };

    deleted.map(drop)
}

async fn what_the_manager_made_is_made_again_as_it_was(peering: &'static Peering) -> Result<()> {
    let webs = peering.web("made-again").await?;
    let before = [
        remaps(&peering.rome, MILAN).await?,
        remaps(&peering.milan, ROME).await?,
    ];
    let mut expected = Vec::new();
    for (cluster, there) in [(&peering.rome, MILAN), (&peering.milan, ROME)] {
        let made = made(cluster, there)?;
        ensure!(made.lines().count() >= 6, "{made}");
        expected.push(made);
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

    until(Deadline::after(SOON), "all to be back", async || {
        let clusters = [(&peering.rome, MILAN), (&peering.milan, ROME)];
        for ((cluster, there), expected) in clusters.into_iter().zip(&expected) {
            let made = made(cluster, there)?;
            ensure!(made == *expected, "{}: {made}", cluster.name());
        }
        Ok(())
    })
    .await?;
    until_connections_are(peering, "Connected").await?;
    let after = [
        remaps(&peering.rome, MILAN).await?,
        remaps(&peering.milan, ROME).await?,
    ];
    ensure!(after == before, "other addresses: {after:?}");
    reach_each_other(peering, &webs).await?;
    Ok(())
}

/// What the manager makes of a peering and of the nodes, with the addresses.
fn made(cluster: &Cluster, there: &str) -> Result<String> {
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

/// The chart's objects are Helm's: nobody but Helm makes them again.
async fn what_helm_made_is_made_again_by_an_install(peering: &'static Peering) -> Result<()> {
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
    until_whole(peering).await?;
    reach_each_other(peering, &webs).await?;

    // With this one goes what the manager has made for all peers, the Service that peers
    // call included: a new one has another port, of which the client has to be told.
    for cluster in peering.clusters() {
        let manager = "deployment/liqo-controller-manager";
        kubectl(cluster, &["delete", "-n", LIQO, manager, "--timeout=60s"])?;
        install(cluster)?;
    }
    peering.connect()?;
    until_whole(peering).await?;
    reach_each_other(peering, &webs).await?;

    Ok(())
}

/// Every pod of each is answered by every pod of the other, soon.
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

/// Every pod of `here` is answered by every pod of `there`, a cluster called `abroad`, soon.
pub(crate) async fn reaches(home: &Cluster, here: &Web, abroad: &str, there: &Web) -> Result<()> {
    for from in &here.pods {
        for to in &there.pods {
            let what = format!("{} to be answered by {}", from.name, to.name);
            until(Deadline::after(SOON), &what, async || {
                let address = seen(home, abroad, to.address).await?;
                let answer = here.ask(from, &format!("{address}:8080")).await?;
                ensure!(answer.contains(&to.name), "{answer}");
                Ok(())
            })
            .await?;
        }
    }

    Ok(())
}
