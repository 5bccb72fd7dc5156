//! The flags, and the process that they describe.

use crate::authentication::{self, ApiServerSettings, AuthenticationController};
use crate::certificates::CertificateController;
use crate::daemon_set::DaemonSetController;
use crate::endpoint_ip::EndpointIpController;
use crate::foreign_cluster::{self, ForeignClusterController, Refusals};
use crate::installation;
use crate::metrics::Metrics;
use crate::multicluster::{self, MultiClusterController};
use crate::namespace::{self, NamespaceController};
use crate::network::{NetworkController, Settings, State};
use crate::node_failure::{self, NodeFailureController};
use crate::offloading::{self, OffloadingController};
use crate::replication::ReplicationController;
use crate::shadow_endpoint_slice::{self, ShadowEndpointSliceController};
use crate::shadow_pod::{self, ShadowPodController};
use crate::state;
use crate::webhook;
use anyhow::Context as _;
use clap::{ArgAction, Parser};
use control_api::offloading::quota::LimitsEnforcement;
use control_credentials::KeyType;
use control_runtime::{
    self as runtime, Destinations, LeaseSettings, Replicas, Runtime, Timing, transport,
};
use control_source::Installation;
use ipam::DEFAULT_POOLS;
use ipnet::Ipv4Net;
use k8s_openapi::ByteString;
use kube::Config;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use x25519_dalek::StaticSecret;

mod grants;
mod webhook_args;

use grants::GrantsArgs;
use webhook_args::WebhookArgs;

/// Reconciles the objects of a cluster's peerings: addresses, Services, keys, credentials and statuses.
///
/// Runs in the cluster that it manages, or outside of it with a kubeconfig.
#[derive(Debug, Parser)]
#[command(name = "controller-manager", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(flatten)]
    installation: Installation,

    /// Name of this pod, which identifies the replica in the Lease.
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pod_name: Option<String>,

    /// Pools from which the CIDRs of peers are remapped, in order of preference.
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',', value_parser = pool, default_values_t = DEFAULT_POOLS)]
    pools: Vec<Ipv4Net>,

    /// Labels of this cluster, which peers receive [kept here for `liqoctl` to read].
    #[arg(long, value_name = "KEY=VALUE,...", value_delimiter = ',', value_parser = label)]
    cluster_labels: Vec<(String, String)>,

    /// Where peers reach this API server, if not at the address of a control plane node.
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    api_server_address_override: String,

    /// Certificates that peers trust for this API server, PEM in base64, if not those of the cluster.
    #[arg(long, value_name = "BASE64", value_parser = certificates)]
    ca_override: Option<ByteString>,

    /// Let peers trust this API server by their own root certificates.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    trusted_ca: bool,

    /// Authenticate consumers, and keep the credentials at providers.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    authentication_enabled: bool,

    /// Let providers have their API servers at loopback and link-local addresses, for several clusters on one machine.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    local_api_servers: bool,

    /// Create an RSA key for this cluster instead of Ed25519, which some API servers do not accept.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    tls_compatibility_mode: bool,

    /// Time after which a nonce is deleted that no consumer has used.
    #[arg(long, value_name = "DURATION", default_value = "168h", value_parser = duration)]
    nonce_ttl: std::time::Duration,

    #[command(flatten)]
    grants: GrantsArgs,

    /// How limits of containers count against the Quota of a consumer: None, Soft or Hard.
    #[arg(long, value_name = "MODE", default_value = "None", value_parser = limits_enforcement)]
    default_limits_enforcement: LimitsEnforcement,

    /// Keys of kubernetes.io, k8s.io and liqo.io that providers may set as labels of virtual nodes.
    #[arg(long, value_name = "KEY,...", value_delimiter = ',', value_parser = offloading::label_key)]
    allowed_node_labels: Vec<String>,

    /// Image of the virtual kubelets whose VkOptionsTemplate names none. If empty, VirtualNodes have no virtual kubelet.
    #[arg(long, value_name = "IMAGE", default_value = "")]
    virtual_kubelet_image: String,

    /// Delete the terminating pods of consumers on nodes that are not ready, so that they are created on other nodes.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    enable_node_failure_controller: bool,

    /// Leave out the endpoints that a consumer's pods have at its other providers, to which this cluster is connected.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    deny_direct_connections: bool,

    /// Let pods that run in another cluster reach the API server of this one, at the IP `api-server`.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    expose_api_server: bool,

    /// Time for which endpoints of a consumer stay ready while its API server does not respond, and the networks are connected.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    api_server_grace_period: std::time::Duration,

    /// Export Services to peers, and import theirs, by the Multi-Cluster Services API.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    multi_cluster: bool,

    /// Labels of the namespaces into which Services of peers are imported. If empty, these are all namespaces.
    #[arg(long, value_name = "KEY=VALUE,...", value_delimiter = ',', value_parser = namespace_label, default_value = "multicluster.liqo.io/import=true")]
    multi_cluster_namespaces: Vec<(String, String)>,

    /// The UDP port on which gateway pods listen.
    #[arg(long, value_name = "PORT", default_value_t = 51840, value_parser = clap::value_parser!(u16).range(1..))]
    gateway_port: u16,

    /// Create a placeholder Deployment for each peer, for which upstream's `liqoctl network connect` waits.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    gateway_deployments: bool,

    /// Image of those Deployments, with a program that sleeps until it is stopped.
    #[arg(long, value_name = "IMAGE", default_value = "")]
    gateway_deployment_image: String,

    #[command(flatten)]
    webhook: WebhookArgs,

    /// Serve metrics and health at this address.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080")]
    http: SocketAddr,

    /// Act only while holding the Lease `liqo-controller-manager`; needed with several replicas.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    leader_elect: bool,
}

/// Name of the process in Events, and of its Lease.
const NAME: &str = "liqo-controller-manager";

const EXAMPLES: &str = "\
Examples:
  controller-manager --namespace=liqo --pools=10.0.0.0/8,192.168.0.0/16
  controller-manager --namespace=liqo --leader-elect=false --http=127.0.0.1:8080
  controller-manager --authentication-enabled --api-server-address-override=https://203.0.113.7:6443
  controller-manager --gateway-deployments --gateway-deployment-image=registry.k8s.io/pause:3.10";

/// The controllers of the endpoints of consumers, of those that providers reach through this cluster, and of exported Services.
type Endpoints = (
    ShadowEndpointSliceController,
    EndpointIpController,
    Option<MultiClusterController>,
);

impl Cli {
    /// Runs until the process receives a signal to stop.
    ///
    /// # Errors
    ///
    /// Returns an error if the process cannot start.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let mut network = State::new(self.settings()?)
            .context("--pools is invalid: use pools that do not overlap")?;
        let config = Config::infer()
            .await
            .context("failed to find the API server: run in a pod, or set KUBECONFIG")?;
        let client = transport::client(&config)?;
        let mut registry = Registry::with_prefix("liqo_controller_manager");
        let metrics = Metrics::new(&mut registry);
        let webhook_metrics = webhook::Metrics::new(&mut registry);
        let endpoint_metrics = shadow_endpoint_slice::Metrics::new(&mut registry);
        let failure_metrics = node_failure::Metrics::new(&mut registry);
        let runtime_metrics = runtime::Metrics::new(&mut registry);
        let state = Arc::new(state::State::default());
        let served = telemetry::http::serve(self.http, Arc::new(registry), Arc::clone(&state));
        let (runtime_settings, replicas) = (self.runtime_settings(), self.replicas());
        let (authentication, offloading) = (self.authentication(), self.offloading());
        let (namespaces, shadow_pods) = (self.namespaces(), self.shadow_pods());
        let endpoints = self.of_endpoints(endpoint_metrics);
        let refusals = Refusals::default();
        let foreign_clusters =
            ForeignClusterController::new(self.foreign_clusters(), refusals.clone());
        let (destinations, reviews) = (self.destinations(), client.clone());
        let managed = async move {
            let namespace = network.settings.namespace.clone();
            let installation = installation::owner(&client, &namespace).await;
            network.settings.installation = installation.clone();
            let mut runtime = Runtime::new(client, runtime_settings, runtime_metrics);
            runtime.add(NetworkController::new(network, metrics), &replicas)?;
            let injector = runtime.add(foreign_clusters, &replicas)?;
            if let Some(settings) = authentication {
                let user = installation::user(&reviews).await?;
                let namespace = settings.namespace.clone();
                let report = refusals.report(injector);
                let replication = ReplicationController::new(namespace, destinations, report);
                let controller = AuthenticationController::new(settings, user);
                runtime.add(controller, &replicas)?;
                runtime.add(replication, &replicas)?;
                runtime.add(OffloadingController::new(offloading), &replicas)?;
                runtime.add(NamespaceController::new(namespaces), &replicas)?;
                runtime.add(ShadowPodController::new(shadow_pods), &replicas)?;
                add_endpoints(&mut runtime, endpoints, &replicas)?;
                if self.enable_node_failure_controller {
                    runtime.add(NodeFailureController::new(failure_metrics), &replicas)?;
                }
            }
            if self.webhook.has_certificates() {
                let settings = self.webhook.certificates(&namespace, installation);
                runtime.add(CertificateController::new(settings), &replicas)?;
            }
            if self.webhook.webhook {
                runtime.add(DaemonSetController, &replicas)?;
                let reader = runtime.reader();
                let server = self.webhook.server(reader, &namespace, webhook_metrics);
                let (server, listener) = server.await?;
                state.set_webhook(server.readiness());
                state.set(runtime.status());
                tokio::join!(runtime.run(stop()), server.run(listener, stop()));
            } else {
                state.set(runtime.status());
                runtime.run(stop()).await;
            }
            anyhow::Ok(())
        };

        tokio::select! {
            served = served => served.context("the HTTP server has ended"),
            managed = managed => managed,
        }
    }

    fn runtime_settings(&self) -> runtime::Settings {
        runtime::Settings {
            name: NAME,
            identity: self.identity(),
            random: || StaticSecret::random().to_bytes(),
        }
    }

    fn replicas(&self) -> Replicas {
        if !self.leader_elect {
            return Replicas::Active;
        }
        Replicas::WarmStandby(LeaseSettings {
            namespace: self.installation.namespace.clone(),
            name: NAME.to_owned(),
            timing: Timing::default(),
        })
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        if self.gateway_deployments && self.gateway_deployment_image.is_empty() {
            anyhow::bail!(
                "--gateway-deployments needs --gateway-deployment-image=IMAGE, such as registry.k8s.io/pause:3.10"
            );
        }
        let image = self
            .gateway_deployments
            .then(|| self.gateway_deployment_image.clone());

        Ok(Settings {
            namespace: self.installation.namespace.clone(),
            tenant_namespaces: self.installation.tenant_namespaces.clone(),
            pools: self.pools.clone(),
            gateway_port: self.gateway_port,
            exposes_api_server: self.expose_api_server,
            deployment_image: image,
            installation: None,
        })
    }

    /// Returns the settings of authentication, if it is enabled.
    fn authentication(&self) -> Option<authentication::Settings> {
        let is_rsa = self.tls_compatibility_mode;
        self.authentication_enabled
            .then(|| authentication::Settings {
                namespace: self.installation.namespace.clone(),
                tenant_namespaces: self.installation.tenant_namespaces.clone(),
                key_type: if is_rsa {
                    KeyType::Rsa
                } else {
                    KeyType::Ed25519
                },
                nonce_ttl: self.nonce_ttl,
                api_server: ApiServerSettings {
                    address: self.api_server_address_override.clone(),
                    ca: self.ca_override.as_ref().map(|ca| ca.0.clone()),
                    is_trusted: self.trusted_ca,
                },
                grants: self.grants.grants(&self.cluster_labels),
            })
    }

    /// Returns where providers may have their API servers.
    fn destinations(&self) -> Destinations {
        if self.local_api_servers {
            Destinations::Any
        } else {
            Destinations::Remote
        }
    }

    fn offloading(&self) -> offloading::Settings {
        offloading::Settings {
            limits_enforcement: self.default_limits_enforcement,
            allowed_node_labels: self.allowed_node_labels.clone(),
            kubelets: (!self.virtual_kubelet_image.is_empty()).then(|| offloading::Kubelets {
                namespace: self.installation.namespace.clone(),
                tenant_namespaces: self.installation.tenant_namespaces.clone(),
                image: self.virtual_kubelet_image.clone(),
            }),
        }
    }

    fn shadow_pods(&self) -> shadow_pod::Settings {
        shadow_pod::Settings {
            namespace: self.installation.namespace.clone(),
            enforces_resources: self.webhook.enforces_resources(),
        }
    }

    fn namespaces(&self) -> namespace::Settings {
        namespace::Settings {
            namespace: self.installation.namespace.clone(),
            has_virtual_kubelets: !self.virtual_kubelet_image.is_empty(),
        }
    }

    fn of_endpoints(&self, metrics: shadow_endpoint_slice::Metrics) -> Endpoints {
        let settings = multicluster::Settings {
            namespace_labels: self.namespace_labels(),
            endpoints: self.endpoints(),
        };
        let exports = MultiClusterController::new(settings, metrics.clone());
        (
            ShadowEndpointSliceController::new(self.endpoints(), metrics),
            EndpointIpController::new(self.installation.namespace.clone()),
            Some(exports).filter(|_| self.multi_cluster),
        )
    }

    /// Returns the labels of the namespaces into which Services of peers are imported.
    fn namespace_labels(&self) -> BTreeMap<String, String> {
        let labels = self.multi_cluster_namespaces.iter();
        let labels = labels.filter(|(key, _)| !key.is_empty());

        labels.cloned().collect()
    }

    fn endpoints(&self) -> shadow_endpoint_slice::Settings {
        shadow_endpoint_slice::Settings {
            namespace: self.installation.namespace.clone(),
            tenant_namespaces: self.installation.tenant_namespaces.clone(),
            deny_direct_connections: self.deny_direct_connections,
            api_server_grace_period: self.api_server_grace_period,
        }
    }

    fn foreign_clusters(&self) -> foreign_cluster::Settings {
        foreign_cluster::Settings {
            namespace: self.installation.namespace.clone(),
            tenant_namespaces: self.installation.tenant_namespaces.clone(),
            has_authentication: self.authentication_enabled,
        }
    }

    fn identity(&self) -> String {
        let named = self.pod_name.clone().filter(|name| !name.is_empty());
        let named = named.or_else(|| std::env::var("HOSTNAME").ok());
        named.unwrap_or_else(|| format!("controller-manager-{}", std::process::id()))
    }
}

/// Completes when the process receives a signal to stop.
async fn stop() {
    match telemetry::stop::requested().await {
        Ok(signal) => tracing::info!(signal, "stopping"),
        Err(error) => tracing::error!(%error, "stopping, because signals cannot be received"),
    }
}

fn pool(text: &str) -> Result<Ipv4Net, String> {
    let remedy = || format!("`{text}` is not an IPv4 CIDR: use one like 10.0.0.0/8");
    let pool: Ipv4Net = text.trim().parse().map_err(|_| remedy())?;
    if pool != pool.trunc() {
        return Err(format!(
            "`{text}` has bits beyond its prefix: use {}",
            pool.trunc()
        ));
    }

    Ok(pool)
}

fn certificates(text: &str) -> Result<ByteString, String> {
    let quoted = serde_json::Value::from(text.trim());
    serde_json::from_value(quoted)
        .map_err(|error| format!("{error}: use PEM in base64, on one line"))
}

fn duration(text: &str) -> Result<std::time::Duration, String> {
    control_api::duration::parse(text, "168h")
}

fn limits_enforcement(text: &str) -> Result<LimitsEnforcement, String> {
    serde_json::from_value(text.into()).map_err(|_| format!("`{text}`: use None, Soft or Hard"))
}

/// Reads a label of namespaces. The empty text of a flag without labels is a label without key.
fn namespace_label(text: &str) -> Result<(String, String), String> {
    if text.is_empty() {
        return Ok(Default::default());
    }

    label(text)
}

fn label(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let pair = pair.map(|(key, value)| (key.to_owned(), value.to_owned()));

    pair.ok_or_else(|| format!("`{text}` is not a label: use KEY=VALUE"))
}

fn add_endpoints(
    runtime: &mut Runtime,
    (slices, ips, exports): Endpoints,
    replicas: &Replicas,
) -> anyhow::Result<()> {
    runtime.add(slices, replicas)?;
    runtime.add(ips, replicas)?;
    if let Some(exports) = exports {
        runtime.add(exports, replicas)?;
    }

    Ok(())
}

#[cfg(test)]
mod tests;
