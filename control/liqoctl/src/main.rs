//! Installs, connects and inspects clusters.
//!
//! ```text
//! cli       the command line
//! commands  one module per command, and kinds: one module per kind of `liqoctl VERB KIND`
//! verbs     create, get and delete, for any kind
//! steps     idempotent steps, of which commands that change clusters are made
//! pair      the two clusters of a peering; tenant, objects: what a cluster has of a peer
//! cluster   requests to one API server; helm: the only program that is run
//! progress  the lines that a user reads meanwhile
//! ```
//!
//! A module imports only modules below it. Decisions are functions over values (`install/detect`,
//! `network/diagnose`, `info/render`, ...), tested without a cluster.

#![forbid(unsafe_code)]

mod cidrs;
mod cli;
mod cluster;
mod commands;
mod failure;
mod global;
mod helm;
mod kinds;
mod manifest;
mod objects;
mod output;
mod pair;
mod parse;
mod progress;
mod prompt;
mod removal;
mod steps;
mod tenant;
mod verbs;
mod wait;

use clap::Parser as _;
use std::process::ExitCode;

/// Exit code after Ctrl-C, as shells have it: 128 and the number of the signal.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help is no failure; a wrong flag is one like every other.
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("ERRO: failed to start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(async {
        tokio::select! {
            result = cli.run() => match result {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
                Err(error) => {
                    progress::clear();
                    eprintln!("ERRO: {error:#}");
                    ExitCode::FAILURE
                }
            },
            () = interrupted() => {
                progress::clear();
                eprintln!("ERRO: interrupted: run the same command again to complete it");
                ExitCode::from(INTERRUPTED)
            }
        }
    });
    // A prompt that nobody answered must not hold the end up.
    runtime.shutdown_background();
    code
}

/// Ends at Ctrl-C, or never if the signal cannot be had.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Returns whether whoever read our output has seen enough, as `head` does.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
