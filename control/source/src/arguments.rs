//! The flags that say where the desired state is.

use crate::source::Origin;
use crate::watch::Installation;
use clap::Args;
use std::path::PathBuf;

/// Where the desired state is.
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

    /// Take the desired state from the API server of the cluster instead: with the pod's
    /// service account, or by KUBECONFIG.
    #[arg(long)]
    kubernetes: bool,

    #[command(flatten)]
    installation: Installation,
}

impl Arguments {
    /// Returns what they say.
    pub fn origin(self) -> Origin {
        match self.config {
            Some(path) => Origin::File(path),
            None => Origin::Cluster(self.installation),
        }
    }
}
