//! Flags of `liqoctl install`.

use crate::parse;
use clap::{Args, Subcommand};
use ipnet::Ipv4Net;
use std::path::PathBuf;

/// Flags of `liqoctl install`.
#[derive(Args, Debug, Default)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) provider: Option<Provider>,

    /// The cluster ID. Default: the ID of the installation, or a random one for a new installation.
    #[arg(long, global = true, value_name = "ID", value_parser = parse::cluster_id)]
    pub(crate) cluster_id: Option<String>,

    /// Labels of the cluster, which peers receive: key=value,...
    #[arg(long, global = true, value_delimiter = ',', value_parser = parse::pair, value_name = "KEY=VALUE")]
    pub(crate) cluster_labels: Vec<(String, String)>,

    /// The URL of the API server for peers. Default: the server in the kubeconfig.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) api_server_url: Option<String>,

    /// The pod CIDRs. Default: detected.
    #[arg(long, global = true, value_delimiter = ',', value_parser = parse::cidr, value_name = "CIDR")]
    pub(crate) pod_cidr: Vec<Ipv4Net>,

    /// The service CIDR. Default: detected.
    #[arg(long, global = true, value_parser = parse::cidr, value_name = "CIDR")]
    pub(crate) service_cidr: Option<Ipv4Net>,

    /// CIDRs that Liqo must not use for remapping: those of nodes, VPNs, offices.
    #[arg(long, global = true, value_delimiter = ',', value_parser = parse::cidr, value_name = "CIDR")]
    pub(crate) reserved_subnets: Vec<Ipv4Net>,

    /// Do not compare --api-server-url with the kubeconfig.
    #[arg(long, global = true)]
    pub(crate) disable_api_server_sanity_check: bool,

    /// Do not check the nodes' kernels.
    #[arg(long, global = true)]
    pub(crate) disable_kernel_version_check: bool,

    /// No effect, because there is no telemetry. Accepted for scripts.
    #[arg(long, global = true)]
    pub(crate) disable_telemetry: bool,

    /// Create the objects with which Prometheus collects metrics.
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

    /// Keep the pods of DaemonSets from before the installation off virtual nodes, which restarts them on all nodes.
    /// `liqoctl info` names these DaemonSets and the patch. Asks for confirmation.
    #[arg(long, global = true)]
    pub(crate) patch_daemonsets: bool,

    /// The chart to install, a folder or an archive. Default: the chart in this program.
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) local_chart_path: Option<PathBuf>,

    /// No effect: the URL of upstream's chart. Accepted for scripts.
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

    /// The version of Liqo: the tag of its images. Default: the version of the chart.
    #[arg(long, global = true, value_name = "VERSION")]
    pub(crate) version: Option<String>,
}

/// The distribution or cloud service of the cluster.
#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Provider {
    /// Kubeadm.
    Kubeadm,
    /// Kind.
    Kind,
    /// K3s.
    K3s,
    /// OpenShift.
    Openshift,
    /// Azure Kubernetes Service.
    Aks(Aks),
    /// Amazon Elastic Kubernetes Service.
    Eks(Eks),
    /// Google Kubernetes Engine.
    Gke(Gke),
}

/// Flags of Azure Kubernetes Service.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Aks {
    /// The ID of the subscription.
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
    /// The resource group of the virtual network.
    #[arg(long, value_name = "NAME")]
    pub(crate) vnet_resource_group_name: Option<String>,
    /// The host name of the API server.
    #[arg(long, value_name = "NAME")]
    pub(crate) fqdn: Option<String>,
    /// The API server is behind a private link.
    #[arg(long)]
    pub(crate) private_link: bool,
}

/// Flags of Amazon Elastic Kubernetes Service.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Eks {
    /// The cluster's name.
    #[arg(long, value_name = "NAME")]
    pub(crate) eks_cluster_name: Option<String>,
    /// The cluster's region.
    #[arg(long, value_name = "REGION")]
    pub(crate) eks_cluster_region: Option<String>,
    /// No effect: the IAM user of upstream's consumers. Accepted for scripts.
    #[arg(long, default_value = "liqo-cluster-user", value_name = "NAME")]
    pub(crate) user_name: String,
    /// No effect: the IAM policy of upstream's consumers. Accepted for scripts.
    #[arg(long, default_value = "liqo-cluster-policy", value_name = "NAME")]
    pub(crate) policy_name: String,
    /// Refused: Liqo issues no access keys of AWS to consumers.
    #[arg(long, value_name = "ID")]
    pub(crate) access_key_id: Option<String>,
    /// Refused as --access-key-id.
    #[arg(long, value_name = "SECRET")]
    pub(crate) secret_access_key: Option<String>,
}

/// Flags of Google Kubernetes Engine. The name of the cluster is --cluster-id.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gke {
    /// The ID of the project.
    #[arg(long, value_name = "ID")]
    pub(crate) project_id: Option<String>,
    /// The zone of a zonal cluster.
    #[arg(long, value_name = "ZONE")]
    pub(crate) zone: Option<String>,
    /// The region of a regional cluster.
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,
    /// No effect: the key of a service account. Accepted for scripts.
    #[arg(long, value_name = "FILE")]
    pub(crate) credentials_path: Option<PathBuf>,
}
