//! Tells each caller who it seems to be, and which pod has answered.
//!
//! ```text
//! /         client=10.1.0.9:40112 pod=web-1 node=a1 ip=10.1.0.7
//! /json     the same and the request's path and Host, as JSON
//! /healthz  ok
//! ```
//!
//! Any other path is answered as `/` is. The names come from the environment:
//! `POD_NAME`, `NODE_NAME` and `POD_IP`, which a pod sets from its own fields.

#![forbid(unsafe_code)]

mod answer;
mod identity;
mod listen;
mod options;
mod request;
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
    // Before the first thread, which inherits it. Process 1 must take the signals
    // itself: without, a pod would linger until it is killed.
    stops.thread_block()?;

    let listener = listen::listen(options.address, options.port)
        .map_err(|error| format!("failed to listen on port {}: {error}", options.port))?;
    writeln!(io::stdout(), "listening on {}", listener.local_addr()?)?;
    serve::start(listener, Identity::from_environment())?;
    stops.wait()?;

    Ok(())
}
