//! `liqoctl network disconnect` and `reset`: takes the objects of a peering away, also when
//! only one side can be reached.

use super::args::{Remove, TIMEOUT};
use crate::cluster::Cluster;
use crate::global::Global;
use crate::objects::{self, Kind};
use crate::pair::{Pair, Side};
use crate::progress::{self, begin};
use crate::tenant;
use crate::wait::{Deadline, Found};
use anyhow::{Context as _, Result, anyhow};
use control_api::{Configuration, GatewayClient, GatewayServer};
use kube::{Api, ResourceExt as _};
use std::time::Duration;

/// How long the remote side may take to answer before it is taken for unreachable.
const REMOTE_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs the command.
///
/// # Errors
///
/// Returns an error that names the side, the cause and the cure.
pub(crate) async fn run(global: &Global, options: &Remove, configurations: bool) -> Result<()> {
    let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
    let opened = tokio::time::timeout(
        REMOTE_TIMEOUT.min(deadline.left()),
        Pair::open(global, &options.remote),
    )
    .await
    .unwrap_or_else(|_| Err(anyhow!("one of the clusters does not answer")));
    match opened {
        Ok(Pair { local, remote }) => {
            both(&local, &remote, configurations, options.wait, deadline).await
        }
        Err(error) => {
            let sides = alone(global, options, error).await?;
            remove(&sides, configurations, options.wait, deadline).await
        }
    }
}

/// Returns the local side, if the id of the remote one is given.
async fn alone(global: &Global, options: &Remove, error: anyhow::Error) -> Result<Side> {
    let cluster = Cluster::local(global).await?;
    let Ok(liqo) = cluster.installation().await else {
        // It is the local cluster that fails: nothing can be done without it.
        return Err(error);
    };
    let Some(peer) = options.remote_cluster_id.clone() else {
        let known = tenant::all(&cluster).await.unwrap_or_default();
        let known: Vec<String> = known.into_iter().map(|(_, peer)| peer).collect();
        return Err(error).context(format!(
            "the two sides cannot both be cleaned; add --remote-cluster-id ID (known here: {}) to clean the local one alone",
            if known.is_empty() { "none".to_owned() } else { known.join(", ") },
        ));
    };
    progress::warn(format_args!("only the local side is cleaned: {error:#}"));
    Ok(Side {
        cluster,
        liqo,
        peer,
    })
}

async fn both(
    local: &Side,
    remote: &Side,
    configurations: bool,
    wait: bool,
    deadline: Deadline,
) -> Result<()> {
    // One side's failure must not keep the other one from being cleaned.
    let (here, there) = tokio::join!(
        remove(local, configurations, wait, deadline),
        remove(remote, configurations, wait, deadline),
    );
    match (here, there) {
        (Err(here), Err(there)) => Err(anyhow!("{here:#}; and {there:#}")),
        (here, there) => here.and(there),
    }
}

/// Removes all of one side, clients first: a server that goes first would be called in vain.
async fn remove(side: &Side, configurations: bool, wait: bool, deadline: Deadline) -> Result<()> {
    let Some(namespace) = tenant::find(&side.cluster, &side.peer).await? else {
        begin(side.cluster.side, "Deleting gateways").done("Gateways already deleted");
        if configurations {
            begin(side.cluster.side, "Deleting network configuration")
                .done("Network configuration already deleted");
        }
        return Ok(());
    };
    delete_all::<GatewayClient>(side, &namespace, "gateway client", wait, deadline).await?;
    delete_all::<GatewayServer>(side, &namespace, "gateway server", wait, deadline).await?;
    if configurations {
        delete_all::<Configuration>(side, &namespace, "network configuration", wait, deadline)
            .await?;
    }
    Ok(())
}

async fn delete_all<K: Kind>(
    side: &Side,
    namespace: &str,
    what: &str,
    wait: bool,
    deadline: Deadline,
) -> Result<()> {
    let cluster = &side.cluster;
    let deleting = begin(cluster.side, format_args!("Deleting {what}"));
    let found: Vec<K> = objects::list(cluster, namespace, &side.peer).await?;
    let api = Api::<K>::namespaced(cluster.client.clone(), namespace);
    for object in &found {
        cluster.delete(&api, what, &object.name_any()).await?;
    }
    if wait {
        deadline
            .until(&format!("deleting the {what}"), async || {
                let left: Vec<K> = objects::list(cluster, namespace, &side.peer).await?;
                Ok(match left.first() {
                    None => Found::Ready(()),
                    Some(object) => Found::Missing(still_there(object, cluster)),
                })
            })
            .await?;
    }
    let text = capitalized(what);
    if found.is_empty() {
        deleting.done(format_args!("{text} already deleted"));
    } else {
        deleting.done(format_args!("{text} correctly deleted"));
    }
    Ok(())
}

/// Returns what keeps an object from going.
fn still_there<K: Kind>(object: &K, cluster: &Cluster) -> String {
    let finalizers = object.finalizers();
    let reason = if finalizers.is_empty() {
        String::new()
    } else {
        format!(
            ", its finalizers {} wait for a controller",
            finalizers.join(", ")
        )
    };
    let kind = K::kind(&());
    format!(
        "{kind} {} is still in {}{reason}",
        object.name_any(),
        cluster.place()
    )
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_upstreams() {
        assert_eq!(
            format!("{} correctly deleted", capitalized("gateway client")),
            "Gateway client correctly deleted"
        );
        assert_eq!(capitalized(""), "");
    }
}
