//! `liqoctl peer`: connects two networks, obtains the credentials of the provider, the remote cluster, and requests
//! resources of it.
//!
//! The network, the credentials and the request are independent, so their steps run concurrently. Replication of the
//! request begins once the credentials exist.

use super::authenticate::{Namespaces, Route, authenticate, with_reason};
use super::network::args::{Gateways, Templates, Tunnel};
use super::network::connect::{self, Agreed, End};
use crate::cluster::RemoteFlags;
use crate::global::Global;
use crate::kinds::resource_slice::{self, Amounts, DEFAULT_CLASS, Request};
use crate::kinds::virtual_node;
use crate::pair::Pair;
use crate::steps::Runner;
use crate::wait::{Deadline, PERIOD};
use anyhow::Result;
use clap::{Args, ValueEnum};
use control_api::ResourceSlice;
use kube::Api;
use std::time::{Duration, Instant};

/// Default limit of the command.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Time from the authentication until the controller manager knows that the provider accepts its requests again.
const REFUSAL_MAX: Duration = Duration::from_secs(20);

/// Flags of `liqoctl peer`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    remote: RemoteFlags,

    #[command(flatten)]
    route: Route,

    #[command(flatten)]
    amounts: Amounts,

    #[command(flatten)]
    gateways: Gateways,

    /// The cluster with the server of the tunnel.
    #[arg(
        long,
        default_value = "Provider",
        value_name = "CLUSTER",
        ignore_case = true
    )]
    gw_server_service_location: Location,

    #[command(flatten)]
    created: Created,

    /// Do not connect the networks.
    #[arg(long)]
    networking_disabled: bool,

    /// The class of the ResourceSlice, which selects the controller that decides at the provider.
    #[arg(long, default_value = DEFAULT_CLASS, value_name = "CLASS")]
    resource_slice_class: String,
}

switches! {
    /// Objects that the command creates for resources.
    struct Created {
        /// Whether a ResourceSlice is created.
        create_resource_slice,
        /// Whether a VirtualNode is created for the ResourceSlice.
        create_virtual_node,
    }
}

/// A cluster of a peering.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    /// The local cluster.
    #[value(name = "Consumer")]
    Consumer,
    /// The remote cluster.
    #[value(name = "Provider")]
    Provider,
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error that names the side, the cause and the remedy.
pub(crate) async fn run(global: &Global, options: Options) -> Result<()> {
    let tunnel = (!options.networking_disabled).then(|| options.tunnel());
    if let Some(tunnel) = &tunnel {
        connect::check(tunnel)?;
    }
    let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
    let pair = Pair::open_liqo(global, &options.remote).await?;
    Runner::run(deadline, async |runner| {
        let network = match &tunnel {
            Some(tunnel) => {
                connect::warn_about_versions(&pair).await?;
                Some((tunnel, connect::agree(runner, global, &pair).await?))
            }
            None => None,
        };
        let namespaces = Namespaces::ensure(runner, &pair).await?;
        let peering = Peering {
            runner,
            pair: &pair,
            namespaces: &namespaces,
        };
        // In-band authentication needs the tunnel.
        if options.route.in_band {
            peering
                .connect(network.as_ref(), options.gw_server_service_location)
                .await?;
        }
        let connected = async {
            match options.route.in_band {
                true => Ok(()),
                false => {
                    let location = options.gw_server_service_location;
                    peering.connect(network.as_ref(), location).await
                }
            }
        };
        let request = options.request(&pair);
        let requested = async {
            match peering.request(request.as_ref()).await {
                // One of an earlier peering may be denied until the authentication is complete.
                Err(_) if peering.is_forbidden(request.as_ref()).await? => Ok(false),
                requested => requested.map(|()| true),
            }
        };
        let authenticated = authenticate(runner, &pair, &namespaces, &options.route);
        let ((), (), is_done) = tokio::try_join!(connected, authenticated, requested)?;
        if is_done {
            return Ok(());
        }
        peering.until_permitted(request.as_ref()).await?;
        peering.request(request.as_ref()).await
    })
    .await
}

impl Options {
    fn tunnel(&self) -> Tunnel {
        Tunnel {
            gateways: self.gateways.clone(),
            templates: Templates::default(),
            disable_sharing_keys: false,
            wait: true,
        }
    }

    /// Returns the request of resources, if there is one.
    fn request(&self, pair: &Pair) -> Option<Request> {
        self.created.create_resource_slice.then(|| Request {
            name: pair.local.peer.clone(),
            class: self.resource_slice_class.clone(),
            amounts: self.amounts.clone(),
            with_virtual_node: self.created.create_virtual_node,
        })
    }
}

/// Two clusters, and their tenant namespaces.
struct Peering<'a> {
    runner: &'a Runner,
    pair: &'a Pair,
    namespaces: &'a Namespaces,
}

impl Peering<'_> {
    async fn connect(&self, network: Option<&(&Tunnel, Agreed)>, server: Location) -> Result<()> {
        let Some((tunnel, agreed)) = network else {
            return Ok(());
        };
        let consumer = End {
            side: &self.pair.local,
            namespace: &self.namespaces.local,
        };
        let provider = End {
            side: &self.pair.remote,
            namespace: &self.namespaces.remote,
        };
        let (client, server) = match server {
            Location::Provider => (consumer, provider),
            Location::Consumer => (provider, consumer),
        };
        connect::establish(self.runner, tunnel, client, server, agreed).await
    }

    /// Requests resources, and waits for the decision of the provider and the VirtualNode.
    async fn request(&self, request: Option<&Request>) -> Result<()> {
        let Some(request) = request else {
            return Ok(());
        };
        let (consumer, provider) = (&self.pair.local.cluster, &self.pair.local.peer);
        let namespace = &self.namespaces.local;
        let slice = request.step(consumer, namespace, provider);
        let resources = match self.runner.apply(&slice, &()).await {
            Ok(resources) => resources,
            Err(error) => {
                let (side, namespace) = (&self.pair.remote, &self.namespaces.remote);
                return Err(with_reason::<ResourceSlice>(side, namespace, error).await);
            }
        };
        resource_slice::report(&request.class, resources.as_ref());
        // Without a decision on the resources there is no VirtualNode yet.
        if request.with_virtual_node && resources.is_some() {
            let node = virtual_node::step(consumer, namespace, &request.name);
            self.runner.apply(&node, &()).await?;
        }
        Ok(())
    }

    /// Returns whether a ResourceSlice is denied because the provider refuses the requests of this cluster.
    async fn is_forbidden(&self, request: Option<&Request>) -> Result<bool> {
        let Some(request) = request else {
            return Ok(false);
        };
        let cluster = &self.pair.local.cluster;
        let api = Api::<ResourceSlice>::namespaced(cluster.client.clone(), &self.namespaces.local);
        let slice = cluster.get(&api, "ResourceSlice", &request.name).await?;
        Ok(slice.as_ref().is_some_and(resource_slice::is_forbidden))
    }

    /// Waits until the controller manager knows that the provider accepts its requests again. It asks every 15 s.
    async fn until_permitted(&self, request: Option<&Request>) -> Result<()> {
        let end = Instant::now() + REFUSAL_MAX;
        while self.is_forbidden(request).await? && Instant::now() < end {
            tokio::time::sleep(PERIOD).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn boolean_flags_accept_both_forms_of_upstream() {
        let parse = |arguments: &[&str]| {
            Command::parse_from([&["test"], arguments].concat())
                .options
                .created
                .create_resource_slice
        };

        assert!(parse(&[]));
        assert!(parse(&["--create-resource-slice"]));
        assert!(!parse(&["--create-resource-slice=false"]));
        assert!(!parse(&["--create-resource-slice", "false"]));
    }
}
