//! `liqoctl authenticate` and `unauthenticate`: the local cluster, a consumer, obtains the credentials of a provider,
//! the remote cluster, and returns them.
//!
//! ```text
//! consumer                                  provider
//! tenant namespace                          tenant namespace, nonce
//! key, signature of the nonce           ->  Tenant
//! Identity                              <-  status of the Tenant
//! ```

mod in_band;
mod removal;

pub(crate) use in_band::is_through_tunnel;
pub(crate) use removal::{Unauthenticate, remove, requested, unauthenticate};

use crate::cluster::RemoteFlags;
use crate::failure;
use crate::global::Global;
use crate::kinds::{identity, nonce, signed_nonce, tenant as tenants};
use crate::objects::{self, Kind};
use crate::pair::{Pair, Side};
use crate::progress;
use crate::steps::Runner;
use crate::tenant::TenantNamespace;
use crate::wait::Deadline;
use anyhow::{Error, Result};
use clap::Args;
use control_api::{Tenant, labels};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use std::time::Duration;

/// Default limit of the commands.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Flags of `liqoctl authenticate`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    remote: RemoteFlags,

    #[command(flatten)]
    route: Route,
}

/// Flags of the route to the provider's API server.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Route {
    /// Reach the API server of the provider through the network that connects the clusters.
    #[arg(long, conflicts_with = "proxy_url")]
    pub(crate) in_band: bool,

    /// The URL of the proxy in front of the provider's API server.
    #[arg(long, value_name = "URL")]
    proxy_url: Option<String>,
}

/// The tenant namespaces of a peering.
#[derive(Clone, Debug)]
pub(crate) struct Namespaces {
    /// In the local cluster.
    pub(crate) local: String,
    /// In the remote cluster.
    pub(crate) remote: String,
    /// Whether this command has created `local`, so that it contains no object of an earlier peering.
    is_local_new: bool,
    /// Whether this command has created `remote`.
    is_remote_new: bool,
}

impl Namespaces {
    /// Creates the tenant namespaces of both clusters.
    ///
    /// # Errors
    ///
    /// Returns an error if an API server fails, or if a namespace is still being deleted at the deadline.
    pub(crate) async fn ensure(runner: &Runner, pair: &Pair) -> Result<Self> {
        let (here, there) = (
            TenantNamespace::of(&pair.local),
            TenantNamespace::of(&pair.remote),
        );
        let (local, remote) = runner.both((&here, &()), (&there, &())).await?;
        Ok(Self {
            local,
            remote,
            is_local_new: here.is_new(),
            is_remote_new: there.is_new(),
        })
    }
}

/// Runs `liqoctl authenticate`.
///
/// # Errors
///
/// Returns an error that names the side, the cause and the remedy.
pub(crate) async fn run(global: &Global, options: &Options) -> Result<()> {
    let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
    let pair = Pair::open_liqo(global, &options.remote).await?;
    Runner::run(deadline, async |runner| {
        let namespaces = Namespaces::ensure(runner, &pair).await?;
        authenticate(runner, &pair, &namespaces, &options.route).await
    })
    .await
}

/// Obtains the credentials of the provider.
///
/// # Errors
///
/// Returns an error with the provider's reason if it refuses them.
pub(crate) async fn authenticate(
    runner: &Runner,
    pair: &Pair,
    namespaces: &Namespaces,
    route: &Route,
) -> Result<()> {
    let Pair { local, remote } = pair;
    let id = &local.liqo.cluster_id;
    let provider = &remote.cluster;
    // The nonce, and one that the provider has signed as a consumer. A new namespace has at most objects of a concurrent
    // `liqoctl`, whose names are the same, so that an Apply updates them.
    let secrets: Vec<Secret> = match namespaces.is_remote_new {
        true => Vec::new(),
        false => objects::list(provider, &namespaces.remote, id).await?,
    };
    let labelled = |label: &str| {
        let is_labelled = |it: &&Secret| it.labels().get(label).is_some_and(|it| it == "true");
        Vec::from_iter(secrets.iter().filter(is_labelled).cloned())
    };
    let nonce = nonce::step(provider, &namespaces.remote, id).known(labelled(labels::NONCE));
    let key = tenants::key_step(&local.cluster, &local.liqo.namespace);
    let (nonce, key, proxy_url) = tokio::try_join!(
        runner.apply(&nonce, &()),
        runner.apply(&key, &()),
        route.proxy_url(pair, namespaces),
    )?;
    let proof = tenants::Proof::new(&key, id, &nonce)?;
    let proxy_url = proxy_url.as_deref();
    let mut tenant = tenants::step(provider, &namespaces.remote, id, &proof, proxy_url);
    if namespaces.is_remote_new {
        tenant = tenant.known(Vec::new());
    }
    let granted = match runner.apply(&tenant, &()).await {
        Ok(granted) => granted,
        Err(error) => {
            return Err(with_reason::<Tenant>(remote, &namespaces.remote, error).await);
        }
    };
    let peer = &remote.liqo.cluster_id;
    let identity = identity::step(&local.cluster, &namespaces.local, peer, &granted);
    tokio::try_join!(
        runner.apply(&identity, &()),
        remove_stale(pair, namespaces, &nonce, labelled(labels::SIGNED_NONCE)),
    )?;
    Ok(())
}

/// Removes nonces of earlier peerings that were signed and never used. Upstream's `liqoctl` refuses to replace them.
/// `signed` are those of the provider.
async fn remove_stale(
    pair: &Pair,
    namespaces: &Namespaces,
    nonce: &[u8],
    signed: Vec<Secret>,
) -> Result<()> {
    let Pair { local, remote } = pair;
    let reverse = async {
        let cluster = &remote.cluster;
        if signed.is_empty() {
            return Ok(());
        }
        let selector = nonce::selector(&local.peer);
        let nonces: Vec<Secret> =
            objects::select(&local.cluster, &namespaces.local, &selector).await?;
        let current = nonces.iter().find_map(nonce::text);
        signed_nonce::delete_stale(cluster, &namespaces.remote, signed, current).await
    };
    let (cluster, peer) = (&local.cluster, &local.peer);
    let forward = async {
        if namespaces.is_local_new {
            return Ok(());
        }
        let signed = signed_nonce::list(cluster, &namespaces.local, peer).await?;
        signed_nonce::delete_stale(cluster, &namespaces.local, signed, Some(nonce)).await
    };
    tokio::try_join!(forward, reverse)?;
    Ok(())
}

impl Route {
    /// Returns the URL of the proxy through which the consumer reaches the provider.
    async fn proxy_url(&self, pair: &Pair, namespaces: &Namespaces) -> Result<Option<String>> {
        match self.in_band {
            true => in_band::proxy_url(pair, &namespaces.local).await.map(Some),
            false => Ok(self.proxy_url.clone()),
        }
    }
}

/// Adds the provider's last warning about an object of a kind to an error.
pub(crate) async fn with_reason<K: Kind>(provider: &Side, namespace: &str, error: Error) -> Error {
    let api = Api::<Event>::namespaced(provider.cluster.client.clone(), namespace);
    let kind = K::kind(&());
    let fields = format!("regarding.kind={kind},type=Warning,regarding.namespace={namespace}");
    match api.list(&ListParams::default().fields(&fields)).await {
        Ok(list) => match last_warning(&list.items) {
            Some(reason) => error.context(format!("the provider reports {reason}")),
            None => error,
        },
        Err(event_error) => {
            // A peering user may not read Events.
            if !failure::is_forbidden(&event_error) {
                progress::warn(format_args!(
                    "failed to read the Events of the provider: {event_error}"
                ));
            }
            error
        }
    }
}

/// Returns reason and note of the newest Event.
fn last_warning(events: &[Event]) -> Option<String> {
    let time = |event: &&Event| {
        let series = event
            .series
            .as_ref()
            .map(|series| series.last_observed_time.clone());
        series.or_else(|| event.event_time.clone())
    };
    let last = events.iter().max_by_key(time)?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(format!("{}: {}", text(&last.reason), text(&last.note)))
}

#[cfg(test)]
mod tests;
