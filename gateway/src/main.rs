//! The gateway of a cluster: WireGuard to the gateways of all peers, VXLAN to the cluster's nodes.
//!
//! A module marked PURE does no I/O and reads no clock. The results of its functions depend only on
//! their arguments.
//!
//! - `cipher` selects the implementation of ChaCha20-Poly1305.
//! - `engine` (PURE) implements the WireGuard sessions and their probes.
//! - `offload` (PURE) segments and coalesces super-packets.
//! - `path` (PURE) determines the health of the path to each peer.
//! - `planned` (PURE) derives the peers of the engine from the desired state, and the changes of both.
//! - `tables` (PURE) translates the desired state into entries of the eBPF maps.
//! - `shell` owns all sockets, devices and threads.
//! - `cli` is the command line.

#![deny(unsafe_code)]

mod cipher;
mod cli;
mod engine;
mod mutant;
mod offload;
mod path;
mod planned;
mod shell;
mod tables;

use clap::Parser as _;
use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut out = io::stdout().lock();
    match cli::Cli::parse().run(&mut out) {
        Ok(()) => ExitCode::SUCCESS,
        // A reader such as `head` may close the pipe early, which is no error.
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
