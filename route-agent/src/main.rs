//! Routes a node's traffic for remote clusters into the overlay, and return traffic to the pods.
//!
//! ```text
//! file or API server ---> control_source ---> Fabric --.
//!                                                      +--> plan --> desired State ---.
//! probe replies --------> liveness ---------> View ----'                              |
//!                                                                                     v
//! kernel notifications -> kernel::observe --> observed State -----------------------> diff
//!                                                                                     |
//!                                                               kernel::apply <-------'
//! ```
//!
//! The modules `plan`, `diff`, `liveness` and `path` are pure: they do no IO, and read neither the
//! clock nor randomness. The module `agent` runs the event loop.

#![forbid(unsafe_code)]

mod cli;

mod agent;

mod settings;

mod liveness;

mod view;

mod underlay;

mod gro;

mod cards;

mod probe;

mod path;

mod echo_responder;

mod plan;

mod filter;

mod ruleset;

mod state;

mod diff;

mod kernel;

mod cleanup;

mod removal;

mod status;

mod metrics;

mod privileges;

mod mutant;

#[cfg(test)]
mod testing;

use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::main() {
        Ok(()) => ExitCode::SUCCESS,
        // A reader such as `head` closes the pipe early, which is no failure of the command.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            for cause in error.chain().skip(1) {
                eprintln!("  because: {cause}");
            }
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
