//! `liqoctl create`: objects of a peering, one at a time.

mod args;

pub(crate) use args::Options;

use crate::cli::Global;
use crate::cluster::{Cluster, DEFAULT_NAMESPACE};
use crate::forge::{self, ServerEndpoint, Template};
use crate::kinds::Kind;
use crate::network;
use crate::output::{self, Format};
use crate::progress::step;
use crate::wait::{Deadline, Found};
use anyhow::Result;
use args::{Command, Common};
use control_api::{Configuration, GatewayClient, GatewayServer, PublicKey};
use kube::Api;
use serde_json::Value;
use std::time::Duration;

/// Whether an object is ready, or what is missing.
type State = Result<(), String>;

/// How long --wait waits if nobody says otherwise.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs the command.
///
/// # Errors
///
/// Returns an error if the API server refuses the object.
pub(crate) async fn run(global: &Global, options: Options) -> Result<()> {
    match options.command {
        Command::Configuration(options) => {
            let common = &options.common;
            let forged = |namespace: &str, _: &str| {
                forge::configuration(
                    &common.name,
                    Some(namespace),
                    &common.remote_cluster_id,
                    &forge::texts(&options.pod_cidr),
                    &forge::texts(&options.external_cidr),
                )
            };
            let is_done = |object: &Configuration| network::is_applied(object);
            make(
                global,
                common,
                "Configuration",
                forged,
                options.wait.then_some(is_done),
            )
            .await
        }
        Command::Gatewayserver(options) => {
            let common = &options.common;
            let forged = |namespace: &str, liqo: &str| {
                let endpoint = ServerEndpoint {
                    service_type: options.service_type.word().to_owned(),
                    port: options.port,
                    node_port: options.node_port,
                    load_balancer_ip: options.load_balancer_ip.clone(),
                };
                let template = options.template.get(liqo);
                let peer = &common.remote_cluster_id;
                forge::gateway_server(
                    &common.name,
                    namespace,
                    peer,
                    &endpoint,
                    options.mtu,
                    &template,
                )
            };
            let is_done = |object: &GatewayServer| served(object);
            make(
                global,
                common,
                "GatewayServer",
                forged,
                options.wait.then_some(is_done),
            )
            .await
        }
        Command::Gatewayclient(options) => {
            let common = &options.common;
            let forged = |namespace: &str, liqo: &str| {
                let endpoint = (
                    &options.addresses[..],
                    options.port,
                    options.protocol.word(),
                );
                let template = options.template.get(liqo);
                let peer = &common.remote_cluster_id;
                forge::gateway_client(
                    &common.name,
                    namespace,
                    peer,
                    endpoint,
                    options.mtu,
                    &template,
                )
            };
            let is_done = |object: &GatewayClient| called(object);
            make(
                global,
                common,
                "GatewayClient",
                forged,
                options.wait.then_some(is_done),
            )
            .await
        }
        Command::Publickey(options) => {
            let common = &options.common;
            let forged = |namespace: &str, _: &str| {
                forge::public_key(
                    &common.name,
                    Some(namespace),
                    &common.remote_cluster_id,
                    &options.public_key.0,
                    None,
                )
            };
            let never: Option<fn(&PublicKey) -> State> = None;
            make(global, common, "PublicKey", forged, never).await
        }
    }
}

/// Prints the object, or applies it and waits for what `is_done` wants.
async fn make<K: Kind>(
    global: &Global,
    common: &Common,
    kind: &str,
    forged: impl FnOnce(&str, &str) -> Value,
    is_done: Option<impl Fn(&K) -> State>,
) -> Result<()> {
    let cluster = Cluster::local(global).await?;
    if let Some(format) = common.output {
        // Printing must work without a cluster at hand: the default name will do.
        let liqo = global
            .liqo_namespace
            .as_deref()
            .unwrap_or(DEFAULT_NAMESPACE);
        let mut object = forged(&cluster.namespace, liqo);
        forge::add_metadata(
            &mut object,
            &global.global_labels,
            &global.global_annotations,
        );
        return print(format, object);
    }
    let installation = cluster.installation().await?;
    let object = forged(&cluster.namespace, &installation.namespace);
    let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
    let creating = step("", format_args!("Creating {kind}"));
    let api = Api::<K>::namespaced(cluster.client.clone(), &cluster.namespace);
    let mut last = cluster.apply(&api, object).await?;
    creating.done(format_args!("{kind} correctly created"));
    let Some(is_done) = is_done else {
        return Ok(());
    };
    let waiting = step("", format_args!("Waiting for {kind} to be ready"));
    deadline
        .until(&format!("making {kind} ready"), async || {
            if let Err(missing) = is_done(&last) {
                if let Ok(Some(read)) = api.get_opt(&common.name).await {
                    last = read;
                }
                return Ok(Found::Missing(missing));
            }
            Ok(Found::Ready(()))
        })
        .await?;
    waiting.done(format_args!("{kind} is ready"));
    Ok(())
}

pub(crate) fn print(format: Format, object: Value) -> Result<()> {
    output::print(format, &forge::printed(object))
}

/// Returns whether a server may be called.
///
/// # Errors
///
/// Returns what is missing.
fn served(server: &GatewayServer) -> Result<(), String> {
    let status = server.status.clone().unwrap_or_default();
    let has_address = status
        .endpoint
        .is_some_and(|endpoint| !endpoint.addresses.is_empty());
    match (has_address, status.server_ref.is_some()) {
        (true, true) => Ok(()),
        (false, _) => Err("it has no endpoint yet".to_owned()),
        (true, false) => Err("it has no serverRef yet".to_owned()),
    }
}

/// Returns whether a client has what it needs to call.
///
/// # Errors
///
/// Returns what is missing.
fn called(client: &GatewayClient) -> Result<(), String> {
    let status = client.status.clone().unwrap_or_default();
    match status.client_ref.is_some() {
        true => Ok(()),
        false => Err("it has no clientRef yet".to_owned()),
    }
}

impl args::ServerTemplate {
    fn get(&self, liqo: &str) -> Template {
        template(
            &self.type_,
            &self.template_name,
            self.template_namespace.as_deref(),
            liqo,
        )
    }
}

impl args::ClientTemplate {
    fn get(&self, liqo: &str) -> Template {
        template(
            &self.type_,
            &self.template_name,
            self.template_namespace.as_deref(),
            liqo,
        )
    }
}

fn template(resource: &str, name: &str, namespace: Option<&str>, liqo: &str) -> Template {
    Template {
        resource: resource.to_owned(),
        name: name.to_owned(),
        namespace: namespace.unwrap_or(liqo).to_owned(),
    }
}
