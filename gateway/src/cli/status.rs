//! The command `gateway status`.

mod table;

use super::Instance;
use clap::{Args, ValueEnum};
use std::io::Write;

/// Show peers, sessions, drops and packet sizes of a running gateway.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Status {
    #[command(flatten)]
    instance: Instance,

    /// Output format.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  gateway status
  gateway status --instance gateway-1 -o json | jq .engine.drops";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// Human-readable tables.
    Table,
    /// The complete status document as JSON.
    Json,
}

impl Status {
    pub(super) fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let document = telemetry::status::query(&self.instance.socket())?;
        match self.output {
            Output::Json => writeln!(out, "{document:#}")?,
            Output::Table => table::print(&document, out)?,
        }

        Ok(())
    }
}
