//! The gateway of a cluster: WireGuard to all peers, VXLAN to the nodes.
//!
//! `engine` implements the protocol (PURE, without IO), `offload` segments and coalesces super-packets
//! (PURE), `path` determines the health of paths (PURE), `tables` translates the desired state for
//! kernel programs and engine (PURE), `shell` owns all file descriptors, `cli` is the command line.

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
        // The reader, such as `head`, has closed the pipe.
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
