//! Parses the command line, and runs the commands `run`, `check`, `status` and `cleanup`.

use crate::agent::{Agent, Options};
use crate::cleanup;
use crate::liveness;
use crate::metrics;
use crate::privileges;
use crate::removal;
use crate::settings::Settings;
use crate::status::{self, Shared, Status};
use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use prometheus_client::registry::Registry;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Routes a node's traffic for remote clusters into the overlay, and return traffic to the pods.
///
/// One agent runs on each node, in the node's own network namespace. It needs the
/// capability NET_ADMIN and the program nft. Traffic continues while the agent is stopped.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  route-agent run --config /etc/liqo/fabric.yaml --node worker-1
  route-agent check /etc/liqo/fabric.yaml --node worker-1
  route-agent status
  route-agent status -o json | jq '.peers[] | select(.gateways == [])'
  route-agent cleanup";

#[derive(Debug, Subcommand)]
enum Command {
    /// Configures this node's overlay device, routes and nft table for the live gateways.
    #[command(after_help = "\
Examples:
  route-agent run --config fabric.yaml --node worker-1
  route-agent run --config fabric.yaml --node worker-1 --http 127.0.0.1:9476
  route-agent run --kubernetes --node worker-1      in a pod, or with KUBECONFIG")]
    Run(Run),

    /// Validates a file. An error names the object, the field and the remedy.
    #[command(after_help = "\
Examples:
  route-agent check fabric.yaml
  route-agent check fabric.yaml --node worker-1")]
    Check(Check),

    /// Shows the gateway replicas, remote clusters and dropped packets of a running agent.
    #[command(after_help = "\
Examples:
  route-agent status
  route-agent status -o json")]
    Status(Query),

    /// Removes the device, rule, routes, nexthops and nft table of a stopped agent.
    ///
    /// The command finds the objects by the numbers below. Pass the numbers that the agent used.
    #[command(after_help = "\
Examples:
  route-agent cleanup
  route-agent cleanup --route-table 4711")]
    Cleanup(Cleanup),
}

#[derive(Debug, Args)]
struct Run {
    #[command(flatten)]
    source: control_source::Arguments,

    /// Name of this node.
    #[arg(long, env = "NODE_NAME")]
    node: String,

    /// Name of this pod's DaemonSet, for --kubernetes. If the DaemonSet is deleted, the agent
    /// removes its kernel state when it stops.
    #[arg(long, value_name = "NAME", env = "LIQO_DAEMONSET")]
    daemonset: Option<String>,

    /// Address and port on which to serve /metrics, /healthz and /readyz.
    #[arg(long, env = "LIQO_HTTP")]
    http: Option<SocketAddr>,

    #[command(flatten)]
    instance: Instance,

    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Args)]
struct Check {
    /// YAML file with the objects of the cluster.
    file: PathBuf,

    /// Name of a Node object that the file must contain.
    #[arg(long, env = "NODE_NAME")]
    node: Option<String>,
}

#[derive(Debug, Args)]
struct Query {
    #[command(flatten)]
    instance: Instance,

    /// Output format.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Args)]
struct Cleanup {
    #[command(flatten)]
    instance: Instance,

    #[command(flatten)]
    settings: Settings,
}

/// Selects one of the agents that run on this machine.
#[derive(Debug, Args)]
struct Instance {
    /// Name of the agent's status socket.
    #[arg(long, env = "LIQO_INSTANCE", default_value = "route-agent", value_parser = telemetry::instance::parse)]
    instance: String,

    /// Directory of the status sockets.
    #[arg(long, env = "LIQO_RUN_DIR", default_value = "/run/liqo")]
    run_dir: PathBuf,
}

impl Instance {
    fn socket(&self) -> PathBuf {
        self.run_dir.join(format!("{}.sock", self.instance))
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// Human-readable tables.
    Table,
    /// One JSON document.
    Json,
}

impl Cli {
    /// Runs the command, and writes its result to `out`.
    ///
    /// # Errors
    ///
    /// Returns an error with the failed step as context.
    pub(crate) fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        match self.command {
            Command::Run(args) => block_on(run(args)),
            Command::Check(args) => check(&args, out),
            Command::Status(args) => show(&args, out),
            Command::Cleanup(args) => block_on(clean_up(args, out)),
        }
    }
}

fn block_on(future: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    telemetry::logging::init();
    // Each thread has its own capabilities. Drop them before the runtime starts threads, which then
    // inherit the reduced set.
    privileges::drop_capabilities()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;

    runtime.block_on(future)
}

async fn run(args: Run) -> anyhow::Result<()> {
    let stop = telemetry::stop::requested();
    let socket = telemetry::status::Server::bind(&args.instance.socket()).await?;
    let shared = Shared::default();
    let (registry, source_metrics) = metrics::registry(shared.clone());
    let options = Options {
        origin: args.source.origin(),
        node: args.node,
        settings: args.settings.clone(),
        liveness: liveness::Config::default(),
        metrics: source_metrics,
    };
    let document = shared.clone();
    let status = socket.serve_async(async || {
        document.refresh().await;
        serde_json::to_value(document.read()).expect("a status is a map with text keys")
    });

    let mut agent = None;
    let signal = tokio::select! {
        ended = work(&mut agent, options, shared.clone()) => return ended,
        () = status => bail!("the status socket ended"),
        served = serve(args.http, registry, shared) => return served,
        signal = stop => signal.context("failed to wait for signals")?,
    };
    if let Some(agent) = &mut agent {
        // The gateways must receive the announcement before their time-out for this node expires.
        // The request to the API server below may take seconds, so send the announcement first.
        agent.announce_stop();
    }
    if let Some(mut agent) = agent
        && removal::is_removed(agent.source(), args.daemonset.as_deref()).await
    {
        drop(agent);
        tracing::info!(
            signal,
            "the installation is being removed: removing all kernel state of the route agent"
        );
        return remove_state(args.settings).await;
    }
    tracing::info!(
        signal,
        "stopping; the overlay device, routes and nft table stay, and traffic continues"
    );

    Ok(())
}

/// Starts an agent, stores it in `slot`, and runs its event loop until the caller drops this
/// future. The caller then finds the agent in `slot` for the shutdown.
async fn work(slot: &mut Option<Agent>, options: Options, shared: Shared) -> anyhow::Result<()> {
    let agent = slot.insert(Agent::start(options, shared).await?);
    tracing::info!("applied the desired state to the kernel");
    agent.run().await;

    Ok(())
}

async fn remove_state(settings: Settings) -> anyhow::Result<()> {
    match cleanup::run(settings).await {
        Ok(removed) => tracing::info!(removed, "removed all kernel state of the route agent"),
        Err(errors) => return Err(report_left_over(&errors)),
    }

    Ok(())
}

/// Logs each error of a clean-up, and returns one error with the number of errors.
fn report_left_over(errors: &[crate::kernel::Error]) -> anyhow::Error {
    for error in errors {
        tracing::error!(error = format!("{error:#}"), "failed to remove an object");
    }

    anyhow::anyhow!("{} objects could not be removed", errors.len())
}

/// Serves metrics and health checks. Without an address, the future never completes.
async fn serve(
    address: Option<SocketAddr>,
    registry: Registry,
    shared: Shared,
) -> anyhow::Result<()> {
    let Some(address) = address else {
        return std::future::pending().await;
    };
    telemetry::http::serve(address, Arc::new(registry), Arc::new(Health(shared))).await?;

    Ok(())
}

struct Health(Shared);

impl telemetry::http::Observed for Health {
    fn healthy(&self) -> Result<(), String> {
        Ok(())
    }

    fn ready(&self) -> Result<(), String> {
        self.0.readiness()
    }

    async fn refresh(&self) {
        self.0.refresh().await;
    }
}

fn check(args: &Check, out: &mut impl Write) -> anyhow::Result<()> {
    let fabric = control_source::file::load(&args.file)?;
    let names: Vec<_> = fabric.nodes.iter().map(|node| node.name.as_str()).collect();
    if let Some(node) = &args.node
        && !names.contains(&node.as_str())
    {
        bail!(crate::plan::Error::unknown_node(&fabric, node));
    }
    writeln!(
        out,
        "{} is valid: cluster {}, {} nodes ({}), {} gateway replicas, {} remote clusters",
        args.file.display(),
        fabric.cluster_id,
        names.len(),
        names.join(", "),
        fabric.replicas.len(),
        fabric.peers.len(),
    )?;

    Ok(())
}

fn show(args: &Query, out: &mut impl Write) -> anyhow::Result<()> {
    let document = telemetry::status::query(&args.instance.socket())?;
    match args.output {
        Output::Json => writeln!(out, "{document:#}")?,
        Output::Table => {
            let document: Status =
                serde_json::from_value(document).context("the agent has another version")?;
            status::print(&document, out)?;
        }
    }

    Ok(())
}

async fn clean_up(args: Cleanup, out: &mut impl Write) -> anyhow::Result<()> {
    // `bind` fails while an agent is running, and replaces the socket of an agent that was killed.
    let socket = telemetry::status::Server::bind(&args.instance.socket()).await;
    let socket = socket.context("a running agent would restore these objects: stop it first")?;
    let cleaned = cleanup::run(args.settings).await;
    drop(socket);

    match cleaned {
        Ok(0) => writeln!(out, "nothing of the route agent was left")?,
        Ok(removed) => writeln!(out, "removed {removed} objects of the route agent")?,
        Err(errors) => return Err(report_left_over(&errors)),
    }

    Ok(())
}

/// Parses the arguments of the process, and runs the command.
///
/// # Errors
///
/// See [`Cli::run`].
pub(crate) fn main() -> anyhow::Result<()> {
    Cli::parse().run(&mut io::stdout())
}

#[cfg(test)]
mod tests;
