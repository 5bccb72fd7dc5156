//! What a person types.

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
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Steers a node's traffic for remote clusters into the overlay, and back.
///
/// One runs on each node, in the node's own network namespace. It needs the
/// capability NET_ADMIN and the program nft. Traffic flows on while it is stopped.
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
    /// Keeps this node's device, routes and nft table as the file and the gateways demand.
    #[command(after_help = "\
Examples:
  route-agent run --config fabric.yaml --node worker-1
  route-agent run --config fabric.yaml --node worker-1 --http 127.0.0.1:9476
  route-agent run --kubernetes --node worker-1      in a pod, or with KUBECONFIG")]
    Run(Run),

    /// Checks a file and says what is wrong where, and the cure.
    #[command(after_help = "\
Examples:
  route-agent check fabric.yaml
  route-agent check fabric.yaml --node worker-1")]
    Check(Check),

    /// Shows the gateway replicas, the remote clusters and the drops of a running agent.
    #[command(after_help = "\
Examples:
  route-agent status
  route-agent status -o json")]
    Status(Ask),

    /// Removes the device, rule, routes, nexthops and nft table of a stopped agent.
    ///
    /// Recognises them by the numbers below: give those that the agent ran with.
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

    /// With --kubernetes, the DaemonSet that this process is of: when it is removed, the
    /// node gets back what it had.
    #[arg(long, value_name = "NAME", env = "LIQO_DAEMONSET")]
    daemonset: Option<String>,

    /// Where to serve /metrics, /healthz and /readyz.
    #[arg(long, env = "LIQO_HTTP")]
    http: Option<SocketAddr>,

    #[command(flatten)]
    instance: Instance,

    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Args)]
struct Check {
    /// The file that describes the cluster.
    file: PathBuf,

    /// Name of a node that the file must have.
    #[arg(long, env = "NODE_NAME")]
    node: Option<String>,
}

#[derive(Debug, Args)]
struct Ask {
    #[command(flatten)]
    instance: Instance,

    /// How to print it.
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

/// Which agent of this machine.
#[derive(Debug, Args)]
struct Instance {
    /// Name of the agent's status socket.
    #[arg(long, env = "LIQO_INSTANCE", default_value = "route-agent", value_parser = telemetry::instance::parse)]
    instance: String,

    /// The directory of status sockets.
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
    /// Tables for people.
    Table,
    /// One JSON document.
    Json,
}

impl Cli {
    /// Runs the command, writing its result to `out`.
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
    // Before any thread starts: capabilities belong to threads.
    privileges::give_up()?;
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
    let options = Options {
        origin: args.source.origin(),
        node: args.node,
        settings: args.settings.clone(),
        liveness: liveness::Config::default(),
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
        served = serve(args.http, shared) => return served,
        signal = stop => signal.context("failed to wait for signals")?,
    };
    if let Some(agent) = &mut agent {
        agent.rest(); // First of all: what follows may take longer than silence is borne.
    }
    if let Some(mut agent) = agent
        && removal::is_removed(agent.source(), args.daemonset.as_deref()).await
    {
        drop(agent);
        tracing::info!(
            signal,
            "the installation is removed: this node gets back what it had"
        );
        return give_back(args.settings).await;
    }
    tracing::info!(
        signal,
        "stopping; device, routes and filter stay, and traffic flows on"
    );

    Ok(())
}

/// Starts the agent and lets it run; it never ends by itself.
async fn work(slot: &mut Option<Agent>, options: Options, shared: Shared) -> anyhow::Result<()> {
    let agent = slot.insert(Agent::start(options, shared).await?);
    tracing::info!("the kernel's state is as planned");
    agent.run().await;

    Ok(())
}

/// Removes everything of ours from the kernel.
async fn give_back(settings: Settings) -> anyhow::Result<()> {
    match cleanup::run(settings).await {
        Ok(removed) => tracing::info!(removed, "nothing of the route agent is left"),
        Err(errors) => {
            for error in &errors {
                tracing::error!(error = format!("{error:#}"), "clean-up goes on");
            }
            bail!("{} objects could not be removed", errors.len());
        }
    }

    Ok(())
}

/// Serves metrics and health, if asked to.
async fn serve(address: Option<SocketAddr>, shared: Shared) -> anyhow::Result<()> {
    let Some(address) = address else {
        return std::future::pending().await;
    };
    let registry = metrics::registry(shared.clone());
    telemetry::http::serve(address, registry, Arc::new(Health(shared))).await?;

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

fn show(args: &Ask, out: &mut impl Write) -> anyhow::Result<()> {
    let document = telemetry::status::query(&args.instance.socket())?;
    match args.output {
        Output::Json => writeln!(out, "{document:#}")?,
        Output::Table => {
            let document: Status =
                serde_json::from_value(document).context("the agent is of another version")?;
            status::print(&document, out)?;
        }
    }

    Ok(())
}

async fn clean_up(args: Cleanup, out: &mut impl Write) -> anyhow::Result<()> {
    // Refuses while an agent runs, and removes the socket of one that was killed.
    let socket = telemetry::status::Server::bind(&args.instance.socket()).await;
    let socket = socket.context("an agent that runs would put everything back: stop it first")?;
    let cleaned = cleanup::run(args.settings).await;
    drop(socket);

    match cleaned {
        Ok(0) => writeln!(out, "nothing of the route agent was left")?,
        Ok(removed) => writeln!(out, "removed {removed} objects of the route agent")?,
        Err(errors) => {
            for error in &errors {
                tracing::error!(error = format!("{error:#}"), "clean-up goes on");
            }
            bail!("{} objects could not be removed", errors.len());
        }
    }

    Ok(())
}

/// Runs the command line.
///
/// # Errors
///
/// See [`Cli::run`].
pub(crate) fn main() -> anyhow::Result<()> {
    Cli::parse().run(&mut io::stdout())
}

#[cfg(test)]
mod tests;
