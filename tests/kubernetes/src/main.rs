//! The laboratory's command: `cargo xtask cluster`, and what its nodes run.

#![forbid(unsafe_code)]

use clap::Parser as _;
use kubernetes_lab::cli::{self, Cli};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(Cli::parse())
}
