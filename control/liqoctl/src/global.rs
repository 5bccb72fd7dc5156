//! The flags of every command.

use crate::parse;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Flags of every command.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Global {
    /// The kubeconfig file of the cluster. Default: KUBECONFIG or ~/.kube/config.
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

    /// The namespace of the objects that the command reads or writes; Liqo's for install, uninstall, info, version, peer, unpeer and
    /// authenticate.
    #[arg(long, short, global = true, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,

    /// Liqo's namespace. Default: the one with the cluster ID; `liqo` for a new installation.
    #[arg(long, global = true, value_name = "NAMESPACE")]
    pub(crate) liqo_namespace: Option<String>,

    /// Annotations of every object that is created: key=value,...
    #[arg(long, global = true, value_delimiter = ',', value_parser = parse::pair, value_name = "KEY=VALUE")]
    pub(crate) global_annotations: Vec<(String, String)>,

    /// Labels of every object that is created: key=value,...
    #[arg(long, global = true, value_delimiter = ',', value_parser = parse::pair, value_name = "KEY=VALUE")]
    pub(crate) global_labels: Vec<(String, String)>,

    /// Skip confirmations.
    #[arg(long, global = true)]
    pub(crate) skip_confirm: bool,

    /// Print more details.
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,

    /// The limit of the command, such as 90s or 2m0s. Default: depends on the command.
    #[arg(long, global = true, value_parser = parse::duration, value_name = "DURATION")]
    pub(crate) timeout: Option<Duration>,
}
