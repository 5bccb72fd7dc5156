//! The command line.

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

mod metric_agent;
mod proxy;

/// Serves other clusters.
#[derive(Debug, Parser)]
#[command(name = "edge", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Proxy(proxy::ProxyArgs),
    MetricAgent(Box<metric_agent::MetricAgentArgs>),
}

/// Threads for name resolution and files. Requests of many clients must not start many threads.
const BLOCKING_THREADS_MAX: usize = 4;

impl Cli {
    /// Runs until the process receives a signal to stop.
    ///
    /// # Errors
    ///
    /// Returns an error if the process cannot start.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .build()
            .context("failed to start the asynchronous runtime")?;

        runtime.block_on(async {
            match self.command {
                Command::Proxy(proxy) => proxy.run().await,
                Command::MetricAgent(agent) => agent.run().await,
            }
        })
    }
}

/// Completes when the process receives a signal to stop.
async fn stop() {
    match telemetry::stop::requested().await {
        Ok(signal) => tracing::info!(signal, "stopping"),
        Err(error) => tracing::error!(%error, "stopping, because signals cannot be received"),
    }
}

/// Raises the soft limit of open files to the hard limit, because a connection or scrape may need several.
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "failed to raise the limit of open files: many connections may fail");
    }
}

fn count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|&count| count > 0);
    count.ok_or_else(|| format!("`{text}` is not a positive number: use one like 256"))
}
