//! The flags, those of upstream's virtual kubelet.

use crate::pod::forge::ApiServerSupport;
use crate::server::CertificateType;
use crate::settings::Settings;
use anyhow::{Context as _, bail};
use clap::{ArgAction, Parser};
use control_api::ReflectedResource;
use control_api::offloading::policy::Policy;
use control_runtime::Destinations;
use ipam::Remap;
use ipnet::Ipv4Net;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Represents resources of a provider as a Node, and has the pods of the Node run there.
///
/// The controller manager creates a Deployment with these flags for each VirtualNode.
#[derive(Debug, Parser)]
#[command(name = "virtual-kubelet", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// Cluster ID of the provider.
    #[arg(long, value_name = "ID")]
    pub(super) foreign_cluster_id: String,

    /// Name of the VirtualNode, and of its Node.
    #[arg(long, value_name = "NAME")]
    pub(super) nodename: String,

    /// Address of this pod, which the Node reports.
    #[arg(long, value_name = "ADDRESS", env = "POD_IP")]
    pub(super) node_ip: IpAddr,

    /// Namespace of the VirtualNode.
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE")]
    pub(super) tenant_namespace: String,

    /// Namespace of Liqo.
    #[arg(long, value_name = "NAME", default_value = "liqo")]
    liqo_namespace: String,

    /// Cluster ID of this cluster.
    #[arg(long, value_name = "ID")]
    pub(super) home_cluster_id: String,

    /// Name of this pod, which identifies the replica in the Lease.
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub(super) pod_name: Option<String>,

    /// CIDRs of this cluster's pods.
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',')]
    pub(super) local_podcidr: Vec<Ipv4Net>,

    /// CIDRs of the provider's pods, each with the CIDR at the same position of --remote-pod-cidr-remap.
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',')]
    remote_pod_cidr: Vec<Ipv4Net>,

    /// CIDRs that the provider's pods have in this cluster.
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',')]
    remote_pod_cidr_remap: Vec<Ipv4Net>,

    /// External CIDRs of the provider, likewise.
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',')]
    remote_external_cidr: Vec<Ipv4Net>,

    /// CIDRs that the external CIDRs of the provider have in this cluster.
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',')]
    remote_external_cidr_remap: Vec<Ipv4Net>,

    /// Let claims of pods have storage of the provider.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    enable_storage: bool,

    /// StorageClass of the provider for claims that name none.
    #[arg(long, value_name = "NAME")]
    remote_real_storage_class_name: Option<String>,

    /// Reflect Ingresses with the class --remote-real-ingress-class-name of the provider, instead of without class.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub(super) enable_ingress: bool,

    /// IngressClass of the provider.
    #[arg(long, value_name = "NAME")]
    pub(super) remote_real_ingress_class_name: Option<String>,

    /// Reflect Services of type LoadBalancer with a class of the provider.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub(super) enable_load_balancer: bool,

    /// Class of load balancers of the provider.
    #[arg(long, value_name = "NAME")]
    pub(super) remote_real_load_balancer_class_name: Option<String>,

    #[command(flatten)]
    pub(super) reflection: Reflection,

    /// Further annotations of the Node.
    #[arg(long, value_name = "KEY=VALUE,...", value_delimiter = ',', value_parser = pair)]
    node_extra_annotations: Vec<(String, String)>,

    /// Further labels of the Node.
    #[arg(long, value_name = "KEY=VALUE,...", value_delimiter = ',', value_parser = pair)]
    node_extra_labels: Vec<(String, String)>,

    /// Let pods reach the API server of this cluster by tokens.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    enable_apiserver_support: bool,

    /// Do not report the addresses of remote pods.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    disable_ip_reflection: bool,

    /// Where pods reach the API server of this cluster, if not at the Service `kubernetes`.
    #[arg(long, value_name = "HOST", requires = "home_api_server_port")]
    home_api_server_host: Option<String>,

    /// Port of --home-api-server-host.
    #[arg(long, value_name = "PORT", requires = "home_api_server_host")]
    home_api_server_port: Option<u16>,

    /// Address and port of the kubelet's API, by which logs, exec, attach, port-forward and metrics reach pods.
    #[arg(long, value_name = "[ADDRESS]:PORT", default_value = ":10250", value_parser = address)]
    pub(super) listen_address: SocketAddr,

    /// Origin of the certificate of the kubelet's API.
    #[arg(long, value_name = "TYPE", default_value = "kubelet")]
    pub(super) certificate_type: CertificateType,

    /// Serve metrics.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub(super) metrics_enabled: bool,

    /// Address and port of the metrics.
    #[arg(long, value_name = "[ADDRESS]:PORT", default_value = ":5872", value_parser = address)]
    pub(super) metrics_address: SocketAddr,

    /// Address and port of the health endpoints.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080")]
    pub(super) http: SocketAddr,

    /// Secret with the kubeconfig for the provider, which is mounted at --kubeconfig.
    #[arg(long, value_name = "NAME")]
    foreign_kubeconfig_secret_name: Option<String>,

    /// File with the kubeconfig for the provider.
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/var/run/secrets/liqo.io/kubeconfig/kubeconfig"
    )]
    pub(super) kubeconfig: PathBuf,

    /// Create the Node. Without it, objects are reflected only.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    create_node: bool,

    /// Report the Node as ready only while the pod networks are connected.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    node_check_network: bool,

    /// Time for which the Node and its pods stay ready while the API server of the provider does not respond, and the networks
    /// are connected.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    api_server_grace_period: Duration,

    /// Let the provider have its API server at loopback and link-local addresses, for several clusters on one machine.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    local_api_servers: bool,
}

const EXAMPLES: &str = "\
Examples:
  virtual-kubelet --foreign-cluster-id=milan --nodename=milan --node-ip=10.244.0.5 \\
    --tenant-namespace=liqo-tenant-milan --home-cluster-id=rome --metrics-enabled
  virtual-kubelet --foreign-cluster-id=milan --nodename=milan --node-ip=10.244.0.5 \\
    --tenant-namespace=liqo-tenant-milan --home-cluster-id=rome --create-node=false";

/// Workers and policies of the reflectors. Zero workers switch a reflector off; other numbers have no effect.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Reflection {
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub(super) pod_reflection_workers: u32,
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    pub(super) service_reflection_workers: u32,
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub(super) endpointslice_reflection_workers: u32,
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    pub(super) ingress_reflection_workers: u32,
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    pub(super) configmap_reflection_workers: u32,
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    pub(super) secret_reflection_workers: u32,
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    pub(super) serviceaccount_reflection_workers: u32,
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    pub(super) persistentvolumeclaim_reflection_workers: u32,
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    pub(super) event_reflection_workers: u32,
    #[arg(long, value_name = "TYPE", default_value = "DenyList")]
    pub(super) service_reflection_type: Policy,
    #[arg(long, value_name = "TYPE", default_value = "DenyList")]
    pub(super) ingress_reflection_type: Policy,
    #[arg(long, value_name = "TYPE", default_value = "DenyList")]
    pub(super) configmap_reflection_type: Policy,
    #[arg(long, value_name = "TYPE", default_value = "DenyList")]
    pub(super) secret_reflection_type: Policy,
    #[arg(long, value_name = "TYPE", default_value = "DenyList")]
    pub(super) event_reflection_type: Policy,
    /// Further kind to reflect, with its policy, and whether the provider's status is written back. Can be repeated.
    #[arg(long, value_name = "RESOURCE.VERSION.GROUP:TYPE[:status]")]
    pub(super) reflected_resource: Vec<ReflectedResource>,
}

impl Cli {
    /// Returns whether pods run at the provider; otherwise other objects are reflected only.
    pub(super) fn runs_pods(&self) -> bool {
        self.reflection.pod_reflection_workers > 0
    }

    /// Returns how pods reach the API server of this cluster.
    pub(super) fn api_server_support(&self) -> ApiServerSupport {
        if self.enable_apiserver_support {
            ApiServerSupport::TokenApi
        } else {
            ApiServerSupport::Disabled
        }
    }

    /// Returns the values for the controllers. `version` is that of this cluster's API server.
    ///
    /// # Errors
    ///
    /// Returns an error that names the flags which contradict each other.
    pub(super) fn settings(&self, version: String) -> anyhow::Result<Settings> {
        let pod_remaps = remaps("pod", &self.remote_pod_cidr, &self.remote_pod_cidr_remap)?;
        let external = (&self.remote_external_cidr, &self.remote_external_cidr_remap);
        let external_remaps = remaps("external", external.0, external.1)?;
        if let Some(name) = self.repeated_resource() {
            bail!("--reflected-resource names {name} twice: choose one version");
        }
        let destinations = if self.local_api_servers {
            Destinations::Any
        } else {
            Destinations::Remote
        };

        Ok(Settings {
            node: self.nodename.clone(),
            home: self.home_cluster_id.clone(),
            provider: self.foreign_cluster_id.clone(),
            tenant_namespace: self.tenant_namespace.clone(),
            address: self.node_ip,
            creates_node: self.create_node,
            checks_network: self.node_check_network,
            api_server_grace_period: self.api_server_grace_period,
            has_storage: self.enable_storage,
            pod_remaps,
            external_remaps,
            reflects_ips: !self.disable_ip_reflection,
            reflects_events: self.reflection.event_reflection_workers > 0,
            labels: self.node_extra_labels.iter().cloned().collect(),
            annotations: self.node_extra_annotations.iter().cloned().collect(),
            api_server_support: self.api_server_support(),
            home_api_server: self
                .home_api_server_host
                .clone()
                .zip(self.home_api_server_port),
            service_port: service_port(),
            version,
            kubelet_port: self.listen_address.port(),
            destinations,
        })
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    control_api::duration::parse(text, "5m")
}

/// Returns the port of the Service `kubernetes`, which Kubernetes sets in the environment of each pod.
fn service_port() -> u16 {
    let port = std::env::var("KUBERNETES_SERVICE_PORT").ok();
    port.and_then(|it| it.parse().ok()).unwrap_or(443)
}

fn remaps(kind: &str, from: &[Ipv4Net], to: &[Ipv4Net]) -> anyhow::Result<Vec<Remap>> {
    if from.len() != to.len() {
        bail!(
            "--remote-{kind}-cidr has {} CIDRs and --remote-{kind}-cidr-remap has {}: give as many",
            from.len(),
            to.len()
        );
    }
    let pairs = from.iter().zip(to);
    let remaps = pairs.map(|(from, to)| {
        Remap::new(*from, *to).with_context(|| {
            format!("--remote-{kind}-cidr: {from} and {to} need prefixes of one length")
        })
    });

    remaps.collect()
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let pair = pair.map(|(key, value)| (key.to_owned(), value.to_owned()));

    pair.ok_or_else(|| format!("`{text}`: use KEY=VALUE"))
}

/// Parses an address as upstream writes it, without a host for all addresses.
fn address(text: &str) -> Result<SocketAddr, String> {
    let full = if text.starts_with(':') {
        format!("0.0.0.0{text}")
    } else {
        text.to_owned()
    };

    full.parse()
        .map_err(|_| format!("`{text}`: use [ADDRESS]:PORT, such as :5872"))
}

/// Flags without which no test starts.
#[cfg(test)]
pub(super) const REQUIRED: [&str; 6] = [
    "virtual-kubelet",
    "--foreign-cluster-id=milan",
    "--nodename=milan",
    "--node-ip=10.244.0.5",
    "--tenant-namespace=liqo-tenant-milan",
    "--home-cluster-id=rome",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(flags: &[&str]) -> anyhow::Result<Settings> {
        Cli::try_parse_from(REQUIRED.iter().chain(flags))?.settings("v1.35.4".to_owned())
    }

    /// From the template of a VirtualNode of upstream (v1.2.0).
    #[test]
    fn the_arguments_of_upstream_are_accepted() {
        let settings = settings(&[
            "--liqo-namespace=liqo",
            "--local-podcidr=10.244.0.0/16",
            "--enable-storage",
            "--remote-real-storage-class-name=standard",
            "--pod-reflection-workers=10",
            "--service-reflection-workers=3",
            "--endpointslice-reflection-workers=10",
            "--ingress-reflection-workers=3",
            "--configmap-reflection-workers=3",
            "--secret-reflection-workers=3",
            "--serviceaccount-reflection-workers=3",
            "--persistentvolumeclaim-reflection-workers=3",
            "--event-reflection-workers=3",
            "--service-reflection-type=DenyList",
            "--ingress-reflection-type=DenyList",
            "--configmap-reflection-type=DenyList",
            "--secret-reflection-type=DenyList",
            "--event-reflection-type=AllowList",
            "--enable-apiserver-support=true",
            "--metrics-enabled=true",
            "--metrics-address=:5872",
            "--foreign-kubeconfig-secret-name=kubeconfig-resourceslice-milan",
            "--create-node=true",
            "--node-check-network=true",
        ])
        .unwrap();

        assert!(settings.has_storage && settings.creates_node && settings.checks_network);
        assert_eq!(settings.api_server_support, ApiServerSupport::TokenApi);
    }

    #[test]
    fn events_without_workers_are_not_reflected() {
        assert!(settings(&[]).unwrap().reflects_events);
        let flag = "--event-reflection-workers=0";
        assert!(!settings(&[flag]).unwrap().reflects_events);
    }

    #[test]
    fn the_flags_are_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
        assert!(settings(&["--certificate-type=self-signed"]).is_ok());
    }

    #[test]
    fn addresses_of_the_provider_are_remapped_by_position() {
        let settings = settings(&[
            "--remote-pod-cidr=10.244.0.0/16",
            "--remote-pod-cidr-remap=10.71.0.0/16",
            "--remote-external-cidr=10.70.0.0/16",
            "--remote-external-cidr-remap=10.72.0.0/16",
        ])
        .unwrap();

        let remapped = |address: &str| {
            let remapped = settings.remapped(address.parse().unwrap());
            remapped.map(|it| it.to_string())
        };
        assert_eq!(remapped("10.244.1.7"), Some("10.71.1.7".to_owned()));
        assert_eq!(remapped("10.70.0.9"), Some("10.72.0.9".to_owned()));
        assert_eq!(remapped("192.0.2.1"), None);
        assert_eq!(remapped("fd00::1"), None);
    }

    #[test]
    fn wrong_flags_are_errors_that_name_them() {
        for (flags, expected) in [
            (
                &["--remote-pod-cidr=10.244.0.0/16"][..],
                "--remote-pod-cidr-remap",
            ),
            (
                &[
                    "--remote-pod-cidr=10.244.0.0/16",
                    "--remote-pod-cidr-remap=10.0.0.0/8",
                ],
                "prefixes of one length",
            ),
            (&["--node-extra-labels=a"], "KEY=VALUE"),
            (&["--metrics-address=5872"], "[ADDRESS]:PORT"),
            (&["--service-reflection-type=denylist"], "DenyList"),
            (&["--home-api-server-host=a"], "--home-api-server-port"),
            (&["--unknown"], "--unknown"),
            (&["--reflected-resource=secrets.v1"], "core group"),
            (
                &["--reflected-resource=roles.v1.rbac.authorization.k8s.io"],
                "roles.v1.rbac",
            ),
            (
                &[
                    "--reflected-resource=widgets.v1.example.com",
                    "--reflected-resource=widgets.v2.example.com:AllowList",
                ],
                "names widgets.example.com twice",
            ),
        ] {
            let error = format!("{:#}", settings(flags).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }
}
