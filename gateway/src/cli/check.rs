//! The command `gateway check`.

use crate::shell::{desired, keys};
use clap::Args;
use control_source::file;
use std::io::Write;
use std::path::PathBuf;

/// Validate a fabric file and its private keys.
///
/// Prints document, object, field and remedy of each error. Exits with code 1 if the file has an
/// error.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Check {
    /// The fabric file.
    file: PathBuf,

    /// Also validate the private keys in this directory.
    #[arg(long, value_name = "DIR", env = "LIQO_KEYS")]
    keys: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  gateway check fabric.yaml
  gateway check fabric.yaml --keys keys";

impl Check {
    pub(super) fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let fabric = file::load(&self.file)?;
        if let Some(directory) = &self.keys {
            keys::read(directory, desired::key_secrets(&fabric))?;
        }
        writeln!(
            out,
            "{} is valid: cluster {}, {} nodes, {} gateway replicas, {} peers, {} mapped addresses",
            self.file.display(),
            fabric.cluster_id,
            fabric.nodes.len(),
            fabric.replicas.len(),
            fabric.peers.len(),
            fabric.ips.len(),
        )?;

        Ok(())
    }
}
