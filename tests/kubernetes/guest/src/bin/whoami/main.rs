//! An HTTP server that returns the address of the client and the identity of its pod.
//!
//! ```text
//! /         client=10.1.0.9:40112 pod=web-1 node=a1 ip=10.1.0.7
//! /json     the same and the request's path and Host, as JSON
//! /healthz  ok
//! ```
//!
//! Any other path is the same as `/`. The identity consists of the variables `POD_NAME`,
//! `NODE_NAME` and `POD_IP`, which the manifest of the pod sets by the downward API.

#![forbid(unsafe_code)]

mod identity;
mod listen;
mod options;
mod request;
mod response;
mod serve;

use identity::Identity;
use nix::sys::signal::{SigSet, Signal};
use options::Options;
use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("whoami: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let options = Options::parse(std::env::args().skip(1))?;
    let mut stops = SigSet::empty();
    stops.add(Signal::SIGINT);
    stops.add(Signal::SIGTERM);
    // Threads inherit the signal mask, so the signals are blocked before the first thread starts.
    // Process 1 must handle SIGTERM, or the pod ends only when the kubelet kills it.
    stops.thread_block()?;

    let listener = listen::listen(options.address, options.port)
        .map_err(|error| format!("failed to listen on port {}: {error}", options.port))?;
    writeln!(io::stdout(), "listening on {}", listener.local_addr()?)?;
    serve::start(listener, Identity::from_environment())?;
    stops.wait()?;

    Ok(())
}
