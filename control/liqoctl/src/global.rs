//! The flags that every command takes.

use crate::parse;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Flags that every command takes.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Global {
    /// The kubeconfig file of the cluster. Without this, KUBECONFIG or ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig to use.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// The cluster of the kubeconfig to use.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) cluster: Option<String>,

    /// The user of the kubeconfig to use.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// The namespace of the object that a command is about.
    #[arg(long, short, global = true, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,

    /// Liqo's namespace. Without this, it is found by its label; `liqo` for an installation.
    #[arg(long, global = true, value_name = "NAMESPACE")]
    pub(crate) liqo_namespace: Option<String>,

    /// Annotations for all that is created: key=value,...
    #[arg(long, global = true, value_delimiter = ',', value_parser = parse::pair, value_name = "KEY=VALUE")]
    pub(crate) global_annotations: Vec<(String, String)>,

    /// Labels for all that is created: key=value,...
    #[arg(long, global = true, value_delimiter = ',', value_parser = parse::pair, value_name = "KEY=VALUE")]
    pub(crate) global_labels: Vec<(String, String)>,

    /// Skip confirmations.
    #[arg(long, global = true)]
    pub(crate) skip_confirm: bool,

    /// Tell more.
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,

    /// How long to wait at most, as 90s or 2m0s. Without this, what suits the command.
    #[arg(long, global = true, value_parser = parse::duration, value_name = "DURATION")]
    pub(crate) timeout: Option<Duration>,
}
