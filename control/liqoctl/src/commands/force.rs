//! `liqoctl force unpeer`: ends a peering without the other cluster.

use crate::cluster::{Cluster, FIELD_MANAGER};
use crate::failure::{self, Unreachable};
use crate::global::Global;
use crate::objects::Kind;
use crate::pair::Side;
use crate::progress::begin;
use crate::removal::Removal;
use crate::steps::Runner;
use crate::wait::{Deadline, PERIOD};
use crate::{parse, prompt, tenant};
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use control_api::{
    Configuration, ForeignCluster, GatewayClient, GatewayServer, Identity, NamespaceMap,
    ResourceSlice, Tenant, VirtualNode, annotations,
};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::pin::pin;
use std::time::Duration;

/// Default limit of the command. The controllers wait at most 10 s for a cluster that is declared dead. Most of the time is for the
/// tenant namespace, which ends after the grace periods of its pods.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Flags of `liqoctl force`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Ends a peering, and deletes its objects in the local cluster only.
    ///
    /// Example: liqoctl force unpeer milan
    Unpeer {
        /// The cluster ID of the cluster that will never respond again.
        #[arg(value_parser = parse::cluster_id)]
        cluster_id: String,
    },
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error if the peer is unknown, or if an object still exists at the deadline.
pub(crate) async fn run(global: &Global, options: &Options) -> Result<()> {
    let Command::Unpeer { cluster_id: peer } = &options.command;
    let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
    let cluster = Cluster::local(global).await?;
    let liqo = cluster.installation().await?;
    let api = Api::<ForeignCluster>::all(cluster.client.clone());
    let (foreign, namespace) = tokio::try_join!(
        cluster.get(&api, "ForeignCluster", peer),
        tenant::find(&cluster, peer),
    )?;
    if foreign.is_none() && namespace.is_none() {
        let known = tenant::all(&cluster).await?;
        let known: Vec<String> = known.into_iter().map(|(_, peer)| peer).collect();
        bail!(
            "{} has no peer {peer} (known peers: {})",
            cluster.place(),
            known.join(", ")
        );
    }
    if prompt::is_interactive() && !global.skip_confirm {
        let text = format!(
            "This deletes all objects of the peering with {peer}, and declares that cluster dead. Continue?"
        );
        prompt::confirm(&text).await?;
    }
    if foreign.is_some() {
        declare_dead(&cluster, peer).await?;
    }
    let Some(namespace) = namespace else {
        return Ok(());
    };
    let side = Side {
        cluster,
        liqo,
        peer: peer.clone(),
    };
    Runner::run(deadline, async |runner| {
        let mut deleted = pin!(delete_objects(runner, &side, &namespace));
        let declared = declare_dead_once_known(&side.cluster, peer);
        tokio::select! {
            deleted = &mut deleted => deleted?,
            declared = declared, if foreign.is_none() => {
                declared?;
                deleted.await?;
            }
        }
        tenant::removal::delete_with_content(&side.cluster, &namespace, deadline).await
    })
    .await
}

/// Waits for the ForeignCluster, which the controller manager creates a moment after the first object of a new peer.
async fn declare_dead_once_known(cluster: &Cluster, peer: &str) -> Result<()> {
    let api = Api::<ForeignCluster>::all(cluster.client.clone());
    loop {
        match cluster.get(&api, "ForeignCluster", peer).await {
            Ok(Some(_)) => return declare_dead(cluster, peer).await,
            Ok(None) => {}
            // The API server may be restarting. The deletions in progress have a time limit.
            Err(error) if error.is::<Unreachable>() => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Lets the controllers end without the peer.
///
/// # Errors
///
/// Returns an error if the API server refuses the annotation.
pub(super) async fn declare_dead(cluster: &Cluster, peer: &str) -> Result<()> {
    let api = Api::<ForeignCluster>::all(cluster.client.clone());
    let marking = begin("", "Marking ForeignCluster as permanently unreachable");
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patch =
        json!({"metadata": {"annotations": {annotations::PERMANENTLY_UNREACHABLE: "true"}}});
    match api.patch(peer, &params, &Patch::Merge(&patch)).await {
        Ok(_) => {}
        // The last object of the peer was deleted meanwhile.
        Err(error) if failure::is_not_found(&error) => {}
        Err(error) => {
            return Err(cluster.failed(&format!("change ForeignCluster {peer}"))(
                error,
            ));
        }
    }
    marking.done("ForeignCluster marked as permanently unreachable");
    Ok(())
}

/// Deletes the objects before their namespace: the namespace controller of Kubernetes waits 5 s before it begins.
async fn delete_objects(runner: &Runner, side: &Side, namespace: &str) -> Result<()> {
    let workloads = async {
        // The controller manager creates the VirtualNode of a ResourceSlice again.
        all::<ResourceSlice>(runner, side, namespace, "resourceslices").await?;
        all::<VirtualNode>(runner, side, namespace, "virtualnodes").await?;
        all::<NamespaceMap>(runner, side, namespace, "namespacemaps").await?;
        all::<Identity>(runner, side, namespace, "identities").await?;
        all::<Tenant>(runner, side, namespace, "tenant").await
    };
    let network = async {
        all::<GatewayClient>(runner, side, namespace, "gateway client").await?;
        all::<GatewayServer>(runner, side, namespace, "gateway server").await?;
        all::<Configuration>(runner, side, namespace, "network configuration").await
    };
    tokio::try_join!(workloads, network)?;
    Ok(())
}

async fn all<K: Kind>(
    runner: &Runner,
    side: &Side,
    namespace: &str,
    noun: &'static str,
) -> Result<()> {
    let removal = Removal::<K>::new(side, namespace, noun);
    runner.undo(vec![removal.boxed()], true).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_apiserver::{ApiServer, Front, Reply};
    use std::sync::atomic::{AtomicUsize, Ordering};

    const MILAN: &str = "/apis/core.liqo.io/v1beta1/foreignclusters/milan";

    #[tokio::test]
    async fn the_wait_for_the_foreign_cluster_outlasts_a_restart_of_the_api_server() {
        let server = ApiServer::start();
        server.put(
            MILAN,
            json!({"apiVersion": "core.liqo.io/v1beta1", "kind": "ForeignCluster", "metadata": {"name": "milan"},
                "spec": {"clusterID": "milan"}}),
        );
        let requests = AtomicUsize::new(0);
        let front = Front::start(&server, move |_| {
            match requests.fetch_add(1, Ordering::Relaxed) {
                0..3 => Reply::Bytes(Vec::new()),
                _ => Reply::Forward,
            }
        });
        let cluster = Cluster::behind(&front, "");

        declare_dead_once_known(&cluster, "milan").await.unwrap();

        let milan = server.get(MILAN).unwrap();
        let annotations = &milan["metadata"]["annotations"];
        assert_eq!(annotations[annotations::PERMANENTLY_UNREACHABLE], "true");
    }
}
