//! `liqoctl network connect`: the steps of a peering's network in upstream's order. Steps of both sides
//! run concurrently.

use super::args::{Connect, TIMEOUT};
use super::grant::{self, Grant};
use super::steps::{
    Address, AdvertisedCidrs, Client, Connected, Gateway, GatewayKey, GatewayPod,
    PeerConfiguration, PeerKey, Server, check_template, has_templates,
};
use crate::commands::version;
use crate::global::Global;
use crate::kinds::gateway::{Gateway as Kind, Spec};
use crate::pair::Pair;
use crate::progress::{self, begin};
use crate::steps::Runner;
use crate::tenant::TenantNamespace;
use crate::wait::Deadline;
use anyhow::Result;
use control_api::{GatewayClient, GatewayServer};
use kube::ResourceExt as _;

/// Largest MTU of the tunnel for links of 1,500 bytes, in bytes.
const MTU_OF_COMMON_LINKS: i64 = 1500 - TUNNEL_OVERHEAD;

/// Bytes that the tunnel adds to a packet: 20 of IP, 8 of UDP, 32 of WireGuard.
const TUNNEL_OVERHEAD: i64 = 60;

/// Runs the command.
///
/// # Errors
///
/// Returns an error that names the side, the cause and the remedy.
pub(crate) async fn run(global: &Global, options: &Connect) -> Result<()> {
    options.check()?;
    if options.mtu > MTU_OF_COMMON_LINKS {
        progress::warn(format_args!(
            "an MTU of {} requires a path MTU of {} bytes between the gateways; larger packets are dropped",
            options.mtu,
            options.mtu + TUNNEL_OVERHEAD
        ));
    }
    let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
    let pair = Pair::open(global, &options.remote).await?;
    warn_about_versions(&pair).await?;

    Runner::run(deadline, async |runner| {
        let (client_ns, server_ns) = configure(runner, global, &pair).await?;
        let (for_client, for_server) = tokio::try_join!(
            has_templates(&pair.local.cluster),
            has_templates(&pair.remote.cluster),
        )?;
        let client = Gateway::new(&pair.local, &client_ns, for_client);
        let server = Gateway::new(&pair.remote, &server_ns, for_server);
        let is_free = options.skip_validation || validate(options, client, server).await?;
        if is_free {
            connect(runner, options, client, server).await?;
        }
        Ok(())
    })
    .await
}

async fn warn_about_versions(pair: &Pair) -> Result<()> {
    let versions = tokio::try_join!(
        version::server(&pair.local.cluster, &pair.local.liqo.namespace),
        version::server(&pair.remote.cluster, &pair.remote.liqo.namespace),
    )?;
    if let (Some(here), Some(there)) = versions
        && here != there
    {
        progress::warn(format_args!(
            "the local cluster has version {here}, the remote one {there}: both should have the same minor version"
        ));
    }
    Ok(())
}

/// Exchanges the CIDRs after the confirmation. Returns the tenant namespaces of both sides.
async fn configure(runner: &Runner, global: &Global, pair: &Pair) -> Result<(String, String)> {
    let Pair { local, remote } = pair;
    let (mine, theirs) = runner
        .both(
            (&AdvertisedCidrs(local), &()),
            (&AdvertisedCidrs(remote), &()),
        )
        .await?;
    let (here, there) = tokio::try_join!(Grant::read(local, &theirs), Grant::read(remote, &mine))?;
    grant::confirm(global, &[here, there]).await?;

    let (here, there) = runner
        .both(
            (&TenantNamespace::of(local), &()),
            (&TenantNamespace::of(remote), &()),
        )
        .await?;
    let of = |side, namespace| PeerConfiguration { side, namespace };
    runner
        .both((&of(local, &here), &theirs), (&of(remote, &there), &mine))
        .await?;
    Ok((here, there))
}

/// Checks the templates of upstream's gateways. Returns whether no side has a gateway of the other role.
async fn validate(options: &Connect, client: Gateway<'_>, server: Gateway<'_>) -> Result<bool> {
    if server.upstream {
        let template = options.server_template(server.side);
        check_template(&server.side.cluster, "server", &template).await?;
    }
    if client.upstream {
        let template = options.client_template(client.side);
        check_template(&client.side.cluster, "client", &template).await?;
    }
    are_free(client, server).await
}

/// Returns whether no side has a gateway of the other role: the local one a GatewayServer, or the
/// remote one a GatewayClient.
async fn are_free(client: Gateway<'_>, server: Gateway<'_>) -> Result<bool> {
    let checking = begin("", "Checking network is initialized correctly");
    let (server_here, client_there) = tokio::try_join!(
        client.object::<GatewayServer>(),
        server.object::<GatewayClient>(),
    )?;
    let reversed = match (&server_here, &client_there) {
        (Some(server), _) => Some(format!("GatewayServer {} in the local", server.name_any())),
        (None, Some(client)) => Some(format!("GatewayClient {} in the remote", client.name_any())),
        (None, None) => None,
    };
    if let Some(object) = reversed {
        drop(checking);
        progress::warn(format_args!(
            "{object} cluster already connects the clusters in the other direction: nothing to do (`liqoctl network reset` removes it)"
        ));
        return Ok(false);
    }
    checking.done("Network correctly initialized");
    Ok(true)
}

/// Connects the gateways: the server first, then the client, then the keys of both.
async fn connect(
    runner: &Runner,
    options: &Connect,
    client: Gateway<'_>,
    server: Gateway<'_>,
) -> Result<()> {
    let spec = Spec::<GatewayServer> {
        endpoint: options.endpoint(),
        mtu: options.mtu,
        template: options.server_template(server.side),
    };
    let name = runner.apply(&Server(server), &spec).await?;
    wait_for_pod(runner, server, &name).await?;
    let reported = runner.apply(&Address(server), &()).await?;

    let spec = Spec::<GatewayClient> {
        endpoint: options.server_address(&reported),
        mtu: options.mtu,
        template: options.client_template(client.side),
    };
    let name = runner.apply(&Client(client), &spec).await?;
    wait_for_pod(runner, client, &name).await?;
    if options.disable_sharing_keys {
        progress::info(
            "Public keys are not exchanged (--disable-sharing-keys): the gateways cannot connect without them",
        );
        return Ok(());
    }
    tokio::try_join!(
        share_key::<GatewayServer, GatewayClient>(runner, server, client),
        share_key::<GatewayClient, GatewayServer>(runner, client, server),
    )?;
    if options.wait {
        let connected = Connected { client, server };
        runner.apply(&connected, &reported).await?;
    }
    Ok(())
}

/// Waits for the pod in which upstream's controllers run a gateway.
async fn wait_for_pod(runner: &Runner, gateway: Gateway<'_>, name: &str) -> Result<()> {
    if gateway.upstream {
        runner.apply(&GatewayPod { gateway, name }, &()).await?;
    }
    Ok(())
}

/// Writes the public key of `from`, whose object is an `F`, for `to`, whose object is a `T`.
async fn share_key<F: Kind, T: Kind>(
    runner: &Runner,
    from: Gateway<'_>,
    to: Gateway<'_>,
) -> Result<()> {
    let key = runner.apply(&GatewayKey::<F>::of(from), &()).await?;
    runner.apply(&PeerKey::<T>::of(to), &key).await
}
