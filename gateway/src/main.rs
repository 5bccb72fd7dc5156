//! WireGuard for all peers of a cluster, and the end of its overlay.
//!
//! `engine` decides (PURE, without IO), `offload` takes super-packets apart and
//! together (PURE), `tables` translates the desired state for kernel and engine
//! (PURE), `shell` owns every file descriptor, `cli` is what a person types.

#![deny(unsafe_code)]

mod cli;
mod engine;
mod mutant;
mod offload;
mod path;
mod shell;
mod tables;

use clap::Parser as _;
use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut out = io::stdout().lock();
    match cli::Cli::parse().run(&mut out) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough, as `head` does.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
