//! `liqoctl network connect`: the objects of a peering, written in upstream's order, with
//! the two sides at the same time.

use super::args::{Connect, TIMEOUT};
use super::diagnose;
use super::gateways::{self, Gateway};
use super::grant::{self, Grant};
use crate::cidrs::Cidrs;
use crate::commands::version;
use crate::global::Global;
use crate::kinds::configuration;
use crate::kinds::gateway::Template;
use crate::kinds::gateway_client::Endpoint;
use crate::pair::{Pair, Side};
use crate::progress::{self, begin};
use crate::wait::{Deadline, Found};
use crate::{objects, tenant};
use anyhow::Result;
use control_api::{Configuration, Connection, GatewayClient, GatewayServer, Network, labels};
use kube::{Api, ResourceExt as _};

/// Largest inner packet whose outer one still passes a link of 1,500 bytes: 20 bytes of
/// IP, 8 of UDP and 32 of WireGuard go around it.
const MTU_OF_COMMON_LINKS: i64 = 1440;

/// Runs the command.
///
/// # Errors
///
/// Returns an error that names the side, the cause and the cure.
pub(crate) async fn run(global: &Global, options: &Connect) -> Result<()> {
    options.check()?;
    if options.mtu > MTU_OF_COMMON_LINKS {
        progress::warn(format_args!(
            "an MTU of {} needs links of {} bytes all the way between the gateways; packets that do not fit are lost",
            options.mtu,
            options.mtu + 60
        ));
    }
    let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
    let Pair { local, remote } = Pair::open(global, &options.remote).await?;

    let versions = tokio::try_join!(
        version::server(&local.cluster, &local.liqo.namespace),
        version::server(&remote.cluster, &remote.liqo.namespace),
    )?;
    if let (Some(here), Some(there)) = versions
        && here != there
    {
        progress::warn(format_args!(
            "the local cluster has version {here}, the remote one {there}: they should have the same minor version"
        ));
    }

    let (mine, theirs) = tokio::try_join!(
        network_cidrs(&local, deadline),
        network_cidrs(&remote, deadline)
    )?;
    let (here, there) =
        tokio::try_join!(Grant::read(&local, &theirs), Grant::read(&remote, &mine))?;
    grant::confirm(global, &[here, there]).await?;
    let (client_ns, server_ns) = tokio::try_join!(
        tenant::ensure(&local.cluster, &local.peer, deadline),
        tenant::ensure(&remote.cluster, &remote.peer, deadline),
    )?;
    tokio::try_join!(
        configure(&local, &client_ns, &theirs, deadline),
        configure(&remote, &server_ns, &mine, deadline),
    )?;

    let templates = Templates::of(options, &local, &remote);
    let upstream = tokio::try_join!(
        gateways::has_templates(&remote.cluster),
        gateways::has_templates(&local.cluster),
    )?;
    if !options.skip_validation {
        if upstream.0 {
            gateways::check_template(&remote.cluster, "server", &templates.server).await?;
        }
        if upstream.1 {
            gateways::check_template(&local.cluster, "client", &templates.client).await?;
        }
        if !is_initialized(&local, &client_ns, &remote, &server_ns).await? {
            return Ok(());
        }
    }

    let server = Gateway::new(&remote, &server_ns, upstream.0);
    let client = Gateway::new(&local, &client_ns, upstream.1);
    gateways::serve(&server, options, &templates.server, deadline).await?;
    let endpoint = gateways::endpoint(&server, deadline).await?;
    gateways::call(&client, options, &endpoint, &templates.client, deadline).await?;
    if options.disable_sharing_keys {
        progress::info(
            "Public keys are not exchanged, as asked: the gateways cannot connect before",
        );
        return Ok(());
    }
    tokio::try_join!(
        gateways::share_key::<GatewayServer, GatewayClient>(&server, &client, deadline),
        gateways::share_key::<GatewayClient, GatewayServer>(&client, &server, deadline),
    )?;
    if options.wait {
        connected(&client, &server, &endpoint, deadline).await?;
    }
    Ok(())
}

/// The templates that the objects name.
struct Templates {
    server: Template,
    client: Template,
}

impl Templates {
    fn of(options: &Connect, local: &Side, remote: &Side) -> Self {
        let template = |resource: &str, name: &str, namespace: &Option<String>, side: &Side| {
            let namespace = namespace.as_ref().unwrap_or(&side.liqo.namespace);
            Template {
                resource: resource.to_owned(),
                name: name.to_owned(),
                namespace: namespace.clone(),
            }
        };
        Self {
            server: template(
                &options.gw_server_type,
                &options.gw_server_template_name,
                &options.gw_server_template_namespace,
                remote,
            ),
            client: template(
                &options.gw_client_type,
                &options.gw_client_template_name,
                &options.gw_client_template_namespace,
                local,
            ),
        }
    }
}

async fn network_cidrs(side: &Side, deadline: Deadline) -> Result<Cidrs> {
    let step = begin(side.cluster.side, "Retrieving network configuration");
    let cidrs = read_cidrs(side, deadline).await?;
    step.done("Network configuration correctly retrieved");
    Ok(cidrs)
}

/// Reads the CIDRs of a cluster, waiting for its manager to confirm them.
async fn read_cidrs(side: &Side, deadline: Deadline) -> Result<Cidrs> {
    let (cluster, namespace) = (&side.cluster, &side.liqo.namespace);
    let api = Api::<Network>::namespaced(cluster.client.clone(), namespace);
    deadline
        .until("reading the network configuration", async || {
            let listed = api
                .list(&kube::api::ListParams::default().labels(labels::NETWORK_TYPE))
                .await
                .map_err(cluster.failed("list Networks"))?;
            Ok(match Cidrs::of(&listed.items) {
                Ok(cidrs) => Found::Ready(cidrs),
                Err(missing) => Found::Missing(format!(
                    "{missing} in namespace {namespace} of {}",
                    cluster.place()
                )),
            })
        })
        .await
}

/// Applies a Configuration with the peer's CIDRs, and waits until the manager confirms it.
async fn configure(side: &Side, namespace: &str, peer: &Cidrs, deadline: Deadline) -> Result<()> {
    let cluster = &side.cluster;
    let api = Api::<Configuration>::namespaced(cluster.client.clone(), namespace);
    let setting_up = begin(cluster.side, "Setting up network configuration");
    let existing = objects::find::<Configuration>(cluster, namespace, &side.peer).await?;
    let name = existing.map_or_else(|| side.peer.clone(), |existing| existing.name_any());
    let object = configuration::manifest(&name, Some(namespace), &side.peer, peer);
    let mut last = cluster.apply(&api, object).await?;
    setting_up.done("Network configuration correctly set up");

    let waiting = begin(cluster.side, "Waiting for configuration to be applied");
    deadline
        .until("applying the network configuration", async || {
            if let Err(missing) = configuration::is_applied(&last) {
                if let Some(read) = cluster.get(&api, "Configuration", &name).await? {
                    last = read;
                }
                return Ok(Found::Missing(format!("{missing}, in {}", cluster.place())));
            }
            Ok(Found::Ready(()))
        })
        .await?;
    waiting.done("Configuration applied successfully");
    Ok(())
}

/// Returns whether the sides are free for their roles: the local one may not serve the
/// remote one already, nor the remote one call.
async fn is_initialized(
    local: &Side,
    client_ns: &str,
    remote: &Side,
    server_ns: &str,
) -> Result<bool> {
    let looking = begin("", "Checking network is initialized correctly");
    let (server_here, client_there) = tokio::try_join!(
        objects::find::<GatewayServer>(&local.cluster, client_ns, &local.peer),
        objects::find::<GatewayClient>(&remote.cluster, server_ns, &remote.peer),
    )?;
    let reversed = match (&server_here, &client_there) {
        (Some(server), _) => Some(format!("GatewayServer {} in the local", server.name_any())),
        (None, Some(client)) => Some(format!("GatewayClient {} in the remote", client.name_any())),
        (None, None) => None,
    };
    if let Some(what) = reversed {
        drop(looking);
        progress::warn(format_args!(
            "{what} cluster connects the two already, the other way round: nothing to do (`liqoctl network reset` removes it)"
        ));
        return Ok(false);
    }
    looking.done("Network correctly initialized");
    Ok(true)
}

/// Waits until both ends say that they hear each other.
async fn connected(
    client: &Gateway<'_>,
    server: &Gateway<'_>,
    endpoint: &Endpoint,
    deadline: Deadline,
) -> Result<()> {
    let waiting = begin("", "Waiting for the connection to be established");
    deadline
        .until("connecting", async || {
            let (here, there) = tokio::try_join!(
                objects::find::<Connection>(
                    &client.side.cluster,
                    client.namespace,
                    &client.side.peer
                ),
                objects::find::<Connection>(
                    &server.side.cluster,
                    server.namespace,
                    &server.side.peer
                ),
            )?;
            let (here, there) = (
                diagnose::state(here.as_ref()),
                diagnose::state(there.as_ref()),
            );
            if here.is_connected() && there.is_connected() {
                return Ok(Found::Ready(()));
            }
            let reasons = tokio::try_join!(
                gateways::complaints::<GatewayClient>(client),
                gateways::complaints::<GatewayServer>(server)
            )?;
            let addresses = endpoint.addresses.join(", ");
            let told = diagnose::explain(&here, &there, &addresses, endpoint.port);
            Ok(Found::Missing(format!("{told}{}{}", reasons.0, reasons.1)))
        })
        .await?;
    waiting.done("Connection established: both sides are Connected");
    Ok(())
}
