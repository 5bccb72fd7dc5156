//! Turns a cluster's resources into addresses, Services, keys and status.
//!
//! ```text
//! kind         the kinds of objects that concern it
//! world        what is known of them (PURE); a change tells which tasks it makes
//! task, queue  the work, each piece about one thing (PURE)
//! allocation   which CIDR and address is whose (PURE)
//! plan         what to write for a task, one file per concern (PURE)
//! write        changes of objects, as values (PURE)
//! election     which of several managers acts (PURE)
//! shell        watches, the loop, requests, Events, the Lease
//! ```
//!
//! Nothing that is decided is kept but in the objects: a manager that begins reads the statuses and
//! goes on. There are no finalizers: what a manager that was down has missed, it cleans up when it
//! begins. `docs/security.md` lists its rights.

#![forbid(unsafe_code)]

mod allocation;
mod cidr;
mod cli;
mod condition;
mod election;
mod kind;
mod metrics;
mod plan;
mod queue;
mod shell;
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
