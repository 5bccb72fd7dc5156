//! Turns a cluster's resources into addresses, Services, keys and status.
//!
//! ```text
//! kind        the kinds of objects that the manager follows
//! world       the objects, and the tasks that a change causes (PURE)
//! task        the work items (PURE)
//! allocation  the owners of CIDRs and addresses (PURE)
//! plan        the writes of a task, one file per concern (PURE)
//! write       writes, as values (PURE)
//! controller  connects world and plan to the runtime, which has watches, requests, Events and Lease
//! ```
//!
//! Nothing that is decided is kept but in the objects: a manager that begins reads the statuses and
//! goes on. There are no finalizers: what a manager that was down has missed, it cleans up when it
//! begins. `docs/security.md` lists its rights.

#![forbid(unsafe_code)]

mod cli;
mod condition;
mod controller;
mod installation;
mod kind;
mod metrics;
mod plan;
mod state;
mod task;
mod world;
mod write;

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
