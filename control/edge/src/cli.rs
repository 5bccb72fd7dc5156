//! The command line.

use anyhow::Context as _;
use clap::{Parser, Subcommand};

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
}

/// Threads for name resolution. Requests of many clients must not start many threads.
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
        let Command::Proxy(proxy) = self.command;

        runtime.block_on(proxy.run())
    }
}
