//! Installs, connects and inspects clusters.
//!
//! ```text
//! cli       the command line
//! commands  one module per command, and kinds: one module per kind of `liqoctl VERB KIND`
//! verbs     create, get and delete, for any kind
//! steps     idempotent steps, of which commands that change clusters consist
//! observed  one object, read by a list, by the responses to writes and by a watch
//! pair      the two clusters of a peering; tenant, objects: a peer's namespace and objects
//! namespaces, label_selector: the namespaces and labels that flags choose
//! manager   the controller-manager's settings; daemon_sets: those whose pods need a patch
//! pod_state why a pod does not run; printable: text of other clusters, for terminals
//! cluster   requests to one API server; helm: runs the program helm
//! progress  progress lines on the terminal
//! ```
//!
//! A module imports only modules below it. Decisions are functions over values (`install/detect`,
//! `network/diagnose`, `info/render`, ...), tested without a cluster.

#![forbid(unsafe_code)]

#[macro_use]
mod switch;

mod cidrs;
mod cli;
mod cluster;
mod commands;
mod daemon_sets;
mod failure;
mod global;
mod helm;
mod kinds;
mod label_selector;
mod manager;
mod manifest;
mod namespaces;
mod objects;
mod observed;
mod output;
mod pair;
mod parse;
mod pod_state;
mod printable;
mod progress;
mod prompt;
mod removal;
mod state;
mod steps;
mod tenant;
mod verbs;
mod wait;

use clap::Parser as _;
use std::process::ExitCode;

/// Exit code after Ctrl-C, as in shells: 128 plus the number of the signal.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // `--help` ends with success, an invalid flag with the exit code of every other error.
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
    // A thread that still waits for input must not delay the exit.
    runtime.shutdown_background();
    code
}

/// Returns after Ctrl-C. Never returns if the signal handler cannot be installed.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Returns whether the reader of standard output has closed it, as `head` does.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
