//! Flags that select the source of the desired state.

use crate::installation::Installation;
use crate::source::Origin;
use clap::Args;
use std::path::PathBuf;

/// Source of the desired state, as flags.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// The desired state: a YAML file of Liqo's resources and the nodes; watched for change.
    #[arg(
        long,
        value_name = "FILE",
        env = "LIQO_CONFIG",
        required_unless_present = "kubernetes",
        conflicts_with = "kubernetes"
    )]
    config: Option<PathBuf>,

    /// Read the desired state from the API server of the cluster instead, with the credentials of the
    /// pod's service account or of KUBECONFIG.
    #[arg(long)]
    kubernetes: bool,

    #[command(flatten)]
    installation: Installation,
}

impl Arguments {
    /// Returns the selected source.
    pub fn origin(self) -> Origin {
        match self.config {
            Some(path) => Origin::File(path),
            None => Origin::Cluster(self.installation),
        }
    }
}
