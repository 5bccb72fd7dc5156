//! Turns a cluster's resources into addresses, Services, keys and status.
//!
//! ```text
//! network     networking: CIDRs and addresses, gateways, keys, Connections (PURE)
//! cli         arguments; starts the runtime with the controllers
//! ```
//!
//! A controller keeps no decision but in the objects: a manager that starts reads the statuses and
//! continues. There are no finalizers: a manager that starts removes leftovers of the time when none
//! ran. `docs/security.md` lists its rights.

#![forbid(unsafe_code)]

mod cli;
mod installation;
mod metrics;
mod network;
mod state;

use clap::Parser as _;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    telemetry::logging::init();
    match cli.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
