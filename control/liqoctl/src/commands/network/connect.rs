//! `liqoctl network connect`: the steps of a peering's network in upstream's order. Steps of both sides
//! run concurrently.

use super::args::{Connect, TIMEOUT, Templates, Tunnel};
use super::grant::{self, Grant};
use super::steps::{
    Address, AdvertisedCidrs, Client, Connected, Gateway, GatewayKey, GatewayPod,
    PeerConfiguration, PeerKey, Server, check_template, has_templates,
};
use crate::cidrs::Cidrs;
use crate::global::Global;
use crate::kinds::gateway::{Gateway as Kind, Spec};
use crate::manager;
use crate::pair::{Pair, Side};
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
    check(&options.tunnel)?;
    let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
    let pair = Pair::open(global, &options.remote).await?;
    warn_about_versions(&pair).await?;

    Runner::run(deadline, async |runner| {
        let agreed = agree(runner, global, &pair).await?;
        let (here, there) = runner
            .both(
                (&TenantNamespace::of(&pair.local), &()),
                (&TenantNamespace::of(&pair.remote), &()),
            )
            .await?;
        let client = End {
            side: &pair.local,
            namespace: &here,
        };
        let server = End {
            side: &pair.remote,
            namespace: &there,
        };
        establish(runner, &options.tunnel, client, server, &agreed).await
    })
    .await
}

/// One end of the tunnel.
#[derive(Clone, Copy)]
pub(crate) struct End<'a> {
    /// The cluster of the gateway.
    pub(crate) side: &'a Side,
    /// The tenant namespace.
    pub(crate) namespace: &'a str,
}

impl<'a> End<'a> {
    fn configuration(self) -> PeerConfiguration<'a> {
        PeerConfiguration {
            side: self.side,
            namespace: self.namespace,
        }
    }
}

/// The CIDRs that two clusters exchange.
pub(crate) struct Agreed {
    local: Cidrs,
    remote: Cidrs,
}

impl Agreed {
    /// Returns the CIDRs of the peer of a side.
    fn of_peer(&self, side: &Side) -> &Cidrs {
        match side.cluster.side {
            "local" => &self.remote,
            _ => &self.local,
        }
    }
}

/// Checks the flags, and warns about an MTU that common links do not have.
///
/// # Errors
///
/// Returns an error with the remedy if two flags contradict each other.
pub(crate) fn check(tunnel: &Tunnel) -> Result<()> {
    let mtu = tunnel.gateways.mtu;
    if mtu > MTU_OF_COMMON_LINKS {
        progress::warn(format_args!(
            "an MTU of {mtu} requires a path MTU of {} bytes between the gateways; larger packets are dropped",
            mtu + TUNNEL_OVERHEAD
        ));
    }
    tunnel.gateways.check()
}

/// Reads the CIDRs that each cluster claims, and has them confirmed. Writes nothing.
///
/// # Errors
///
/// Returns an error if an API server fails, or if the user does not confirm.
pub(crate) async fn agree(runner: &Runner, global: &Global, pair: &Pair) -> Result<Agreed> {
    let Pair { local, remote } = pair;
    let (mine, theirs) = runner
        .both(
            (&AdvertisedCidrs(local), &()),
            (&AdvertisedCidrs(remote), &()),
        )
        .await?;
    let (here, there) = tokio::try_join!(Grant::read(local, &theirs), Grant::read(remote, &mine))?;
    grant::confirm(global, &[here, there]).await?;
    Ok(Agreed {
        local: mine,
        remote: theirs,
    })
}

/// Exchanges the CIDRs and connects the gateways.
///
/// # Errors
///
/// Returns an error that names the side, the cause and the remedy.
pub(crate) async fn establish(
    runner: &Runner,
    tunnel: &Tunnel,
    client: End<'_>,
    server: End<'_>,
    agreed: &Agreed,
) -> Result<()> {
    runner
        .both(
            (&client.configuration(), agreed.of_peer(client.side)),
            (&server.configuration(), agreed.of_peer(server.side)),
        )
        .await?;
    let (for_client, for_server) = tokio::try_join!(
        has_templates(&client.side.cluster),
        has_templates(&server.side.cluster),
    )?;
    let client = Gateway::new(client.side, client.namespace, for_client);
    let server = Gateway::new(server.side, server.namespace, for_server);
    let is_free =
        tunnel.gateways.skip_validation || validate(&tunnel.templates, client, server).await?;
    if is_free {
        connect(runner, tunnel, client, server).await?;
    }
    Ok(())
}

/// Warns about clusters with different versions.
///
/// # Errors
///
/// Returns an error if an API server fails.
pub(crate) async fn warn_about_versions(pair: &Pair) -> Result<()> {
    let versions = tokio::try_join!(
        manager::version(&pair.local.cluster, &pair.local.liqo.namespace),
        manager::version(&pair.remote.cluster, &pair.remote.liqo.namespace),
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

/// Checks the templates of upstream's gateways. Returns whether no side has a gateway of the other role.
async fn validate(templates: &Templates, client: Gateway<'_>, server: Gateway<'_>) -> Result<bool> {
    if server.upstream {
        let template = templates.server(server.side);
        check_template(&server.side.cluster, "server", &template).await?;
    }
    if client.upstream {
        let template = templates.client(client.side);
        check_template(&client.side.cluster, "client", &template).await?;
    }
    are_free(client, server).await
}

/// Returns whether no side has a gateway of the other role: that of the client a GatewayServer, or that of
/// the server a GatewayClient.
async fn are_free(client: Gateway<'_>, server: Gateway<'_>) -> Result<bool> {
    let checking = begin("", "Checking network is initialized correctly");
    let (server_here, client_there) = tokio::try_join!(
        client.object::<GatewayServer>(),
        server.object::<GatewayClient>(),
    )?;
    let of = |gateway: Gateway<'_>, kind: &str, name: String| {
        format!("{kind} {name} in the {}", gateway.side.cluster.side)
    };
    let reversed = match (&server_here, &client_there) {
        (Some(found), _) => Some(of(client, "GatewayServer", found.name_any())),
        (None, Some(found)) => Some(of(server, "GatewayClient", found.name_any())),
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
    tunnel: &Tunnel,
    client: Gateway<'_>,
    server: Gateway<'_>,
) -> Result<()> {
    let spec = Spec::<GatewayServer> {
        endpoint: tunnel.gateways.endpoint(),
        mtu: tunnel.gateways.mtu,
        template: tunnel.templates.server(server.side),
    };
    let name = runner.apply(&Server(server), &spec).await?;
    wait_for_pod(runner, server, &name).await?;
    let reported = runner.apply(&Address(server), &()).await?;

    let spec = Spec::<GatewayClient> {
        endpoint: tunnel.gateways.server_address(&reported),
        mtu: tunnel.gateways.mtu,
        template: tunnel.templates.client(client.side),
    };
    let name = runner.apply(&Client(client), &spec).await?;
    wait_for_pod(runner, client, &name).await?;
    if tunnel.disable_sharing_keys {
        progress::info(
            "Public keys are not exchanged (--disable-sharing-keys): the gateways cannot connect without them",
        );
        return Ok(());
    }
    tokio::try_join!(
        share_key::<GatewayServer, GatewayClient>(runner, server, client),
        share_key::<GatewayClient, GatewayServer>(runner, client, server),
    )?;
    if tunnel.wait {
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
