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

    /// With --kubernetes, the namespace of Liqo.
    #[arg(
        long,
        value_name = "NAME",
        env = "POD_NAMESPACE",
        default_value = "liqo"
    )]
    namespace: String,

    /// With --kubernetes, namespaces that may hold the objects of any peer, besides those
    /// labelled liqo.io/tenant-namespace=true.
    #[arg(
        long,
        value_name = "NAME,...",
        env = "LIQO_TENANT_NAMESPACES",
        value_delimiter = ','
    )]
    tenant_namespaces: Vec<String>,
}

impl Arguments {
    /// Returns what they say.
    pub fn origin(self) -> Origin {
        match self.config {
            Some(path) => Origin::File(path),
            None => Origin::Cluster(Installation {
                namespace: self.namespace,
                tenant_namespaces: self.tenant_namespaces,
            }),
        }
    }
}
