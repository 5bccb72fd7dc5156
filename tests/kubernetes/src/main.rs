//! The program that `cargo xtask cluster` runs, which is also process 1 of nodes.

#![forbid(unsafe_code)]

use clap::Parser as _;
use kubernetes_lab::cli::{self, Cli};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(Cli::parse())
}
