//! Flags of `liqoctl install`.

use crate::parse;
use clap::{Args, Subcommand};
use ipnet::Ipv4Net;
use std::path::PathBuf;

/// What to install, and how.
#[derive(Args, Debug, Default)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) provider: Option<Provider>,

    /// The id of the cluster. Without this, one that is installed keeps its id, and a new
    /// one gets a random one.
    #[arg(long, global = true, value_name = "ID", value_parser = parse::cluster_id)]
    pub(crate) cluster_id: Option<String>,

    /// Labels of the cluster, which peers see: key=value,...
    #[arg(long, global = true, value_delimiter = ',', value_parser = parse::pair, value_name = "KEY=VALUE")]
    pub(crate) cluster_labels: Vec<(String, String)>,

    /// The URL under which peers reach the API server. Without this, the kubeconfig's.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) api_server_url: Option<String>,

    /// The CIDRs of pods. Without this, they are found.
    #[arg(long, global = true, value_delimiter = ',', value_parser = parse::cidr, value_name = "CIDR")]
    pub(crate) pod_cidr: Vec<Ipv4Net>,

    /// The CIDR of Services. Without this, it is found.
    #[arg(long, global = true, value_parser = parse::cidr, value_name = "CIDR")]
    pub(crate) service_cidr: Option<Ipv4Net>,

    /// CIDRs that Liqo must not give to peers: those of nodes, VPNs, offices.
    #[arg(long, global = true, value_delimiter = ',', value_parser = parse::cidr, value_name = "CIDR")]
    pub(crate) reserved_subnets: Vec<Ipv4Net>,

    /// Do not compare --api-server-url with the kubeconfig.
    #[arg(long, global = true)]
    pub(crate) disable_api_server_sanity_check: bool,

    /// Do not check the nodes' kernels.
    #[arg(long, global = true)]
    pub(crate) disable_kernel_version_check: bool,

    /// Send no telemetry (there is none; for scripts that say so).
    #[arg(long, global = true)]
    pub(crate) disable_telemetry: bool,

    /// Let Prometheus collect metrics.
    #[arg(long, global = true)]
    pub(crate) enable_metrics: bool,

    /// Check and render, but write nothing.
    #[arg(long, global = true)]
    pub(crate) dry_run: bool,

    /// Write the values for the chart to a file instead of installing.
    #[arg(long, global = true)]
    pub(crate) only_output_values: bool,

    /// The file for --only-output-values.
    #[arg(
        long,
        global = true,
        default_value = "values.yaml",
        value_name = "FILE"
    )]
    pub(crate) dump_values_path: PathBuf,

    /// The chart to install, a folder or an archive. Without this, the one in this program.
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) local_chart_path: Option<PathBuf>,

    /// Where upstream downloads the chart from; not used, for scripts that say so.
    #[arg(long, global = true, hide = true, value_name = "URL")]
    pub(crate) repo_url: Option<String>,

    /// Set a value of the chart: key=value.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Set a value of the chart to a string: key=value.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub(crate) set_string: Vec<String>,

    /// A file with values of the chart.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) values: Vec<PathBuf>,

    /// Do not check the cluster first.
    #[arg(long, global = true)]
    pub(crate) skip_validation: bool,

    /// The version of Liqo: the tag of its images. Without this, the chart's own.
    #[arg(long, global = true, value_name = "VERSION")]
    pub(crate) version: Option<String>,
}

/// What kind of cluster it is.
#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Provider {
    /// A cluster of kubeadm.
    Kubeadm,
    /// A cluster of kind.
    Kind,
    /// A cluster of k3s.
    K3s,
    /// A cluster of OpenShift.
    Openshift,
    /// A cluster of Azure's Kubernetes service.
    Aks(Aks),
    /// A cluster of Amazon's Kubernetes service.
    Eks(Eks),
    /// A cluster of Google's Kubernetes service.
    Gke(Gke),
}

/// Flags about a cluster of Azure's.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Aks {
    /// The subscription's id.
    #[arg(long, value_name = "ID")]
    pub(crate) subscription_id: Option<String>,
    /// The subscription's name.
    #[arg(long, value_name = "NAME")]
    pub(crate) subscription_name: Option<String>,
    /// The cluster's resource group.
    #[arg(long, value_name = "NAME")]
    pub(crate) resource_group_name: Option<String>,
    /// The cluster's name.
    #[arg(long, value_name = "NAME")]
    pub(crate) resource_name: Option<String>,
    /// The resource group of its virtual network.
    #[arg(long, value_name = "NAME")]
    pub(crate) vnet_resource_group_name: Option<String>,
    /// The host name of its API server.
    #[arg(long, value_name = "NAME")]
    pub(crate) fqdn: Option<String>,
    /// Its API server is reached by a private link.
    #[arg(long)]
    pub(crate) private_link: bool,
}

/// Flags about a cluster of Amazon's.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Eks {
    /// The cluster's name.
    #[arg(long, value_name = "NAME")]
    pub(crate) eks_cluster_name: Option<String>,
    /// The cluster's region.
    #[arg(long, value_name = "REGION")]
    pub(crate) eks_cluster_region: Option<String>,
    /// The IAM user for peers; for authentication, which this version has not.
    #[arg(long, default_value = "liqo-cluster-user", value_name = "NAME")]
    pub(crate) user_name: String,
    /// The IAM policy for peers; for authentication, which this version has not.
    #[arg(long, default_value = "liqo-cluster-policy", value_name = "NAME")]
    pub(crate) policy_name: String,
    /// The key id of that user.
    #[arg(long, value_name = "ID")]
    pub(crate) access_key_id: Option<String>,
    /// The secret of that user.
    #[arg(long, value_name = "SECRET")]
    pub(crate) secret_access_key: Option<String>,
}

/// Flags about a cluster of Google's; its name is --cluster-id.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gke {
    /// The project's id.
    #[arg(long, value_name = "ID")]
    pub(crate) project_id: Option<String>,
    /// The zone of a zonal cluster.
    #[arg(long, value_name = "ZONE")]
    pub(crate) zone: Option<String>,
    /// The region of a regional cluster.
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,
    /// A service account's key; not used, for scripts that say so.
    #[arg(long, value_name = "FILE")]
    pub(crate) credentials_path: Option<PathBuf>,
}
