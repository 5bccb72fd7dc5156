//! The connection to the provider: its API server and credentials, and whether it responds.
//!
//! The Node's Lease is renewed only while the provider responds, by the ForeignCluster or by a probe of its own, and for some time
//! after that while the networks are connected: an upgrade of the provider's control plane does not concern pods that run.

use crate::kubeconfig::Shared;
use crate::server::User;
use crate::settings::Settings;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use control_api::ForeignCluster;
use control_api::core::foreign_cluster::ForeignClusterConditionStatus as Status;
use control_runtime::{
    Cache, Cluster, ClusterChange, Env, Event, Key, Outcome, Plan, Probe, Ref, RemoteConfig,
};
use k8s_openapi::jiff::Timestamp;
use kube::Config;
use std::time::{Duration, Instant};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

/// Interval of probes while the ForeignCluster does not say whether the provider responds.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// Time for the response of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether the API server of the provider responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provider {
    /// Nothing says so yet.
    Unknown,
    /// It responds.
    Responds,
    /// It has not responded for this time.
    Away(Duration),
}

/// The connection to the provider.
pub(crate) struct Connection {
    content: Shared,
    /// The configuration that was set.
    config: Option<RemoteConfig>,
    /// Since when probes are answered or not; `None` before the first result.
    probes: Option<(bool, Instant)>,
    probed_at: Option<Instant>,
}

impl Connection {
    /// Creates a connection with a kubeconfig that a task reads.
    pub(crate) fn new(content: Shared) -> Self {
        Self {
            content,
            config: None,
            probes: None,
            probed_at: None,
        }
    }

    /// Returns whether the provider responds.
    pub(crate) fn provider(&self, settings: &Settings, cache: &Cache, env: &Env<'_>) -> Provider {
        let probed = || match self.probes {
            None => Provider::Unknown,
            Some((true, _)) => Provider::Responds,
            Some((false, since)) => Provider::Away(env.at.saturating_duration_since(since)),
        };

        reported(settings, cache, env.now).unwrap_or_else(probed)
    }

    /// Plans the address and the credentials of the provider, and the next probe, after which `item` is planned again.
    pub(crate) fn plan<I>(
        &mut self,
        settings: &Settings,
        item: I,
        cache: &Cache,
        env: &Env<'_>,
    ) -> Plan<I> {
        let mut plan = Plan::default();
        match self.content.get() {
            None => {}
            Some(Ok(text)) => match RemoteConfig::parse(&text, settings.destinations) {
                Ok(config) if self.config.as_ref() == Some(&config) => {}
                Ok(config) => {
                    let cluster = Cluster::remote(&settings.provider);
                    let set = ClusterChange::Set(cluster, Box::new(config.clone()));
                    plan.clusters.push(set);
                    self.content.set_user(user(config.as_ref()));
                    self.config = Some(config);
                }
                Err(error) => plan.events.push(invalid(settings, &error.to_string())),
            },
            Some(Err(error)) => plan.events.push(invalid(settings, &error)),
        }
        if self.config.is_none() || reported(settings, cache, env.now).is_some() {
            return plan;
        }
        let elapsed = self
            .probed_at
            .map(|at| env.at.saturating_duration_since(at));
        let wait = elapsed.map_or(Duration::ZERO, |it| PROBE_INTERVAL.saturating_sub(it));
        if wait.is_zero() {
            self.probed_at = Some(env.at);
            plan.probes.push(Probe {
                cluster: Cluster::remote(&settings.provider),
                path: "/livez",
                timeout: PROBE_TIMEOUT,
            });
            plan.requeue.push((PROBE_INTERVAL, item));
        } else {
            plan.requeue.push((wait, item));
        }

        plan
    }

    /// Takes the result of a probe, and returns whether the provider has begun or ceased to respond.
    pub(crate) fn take(&mut self, outcome: &Outcome) -> bool {
        // A standby has sent nothing.
        if matches!(outcome, Outcome::NotLeader) {
            return false;
        }
        let is_responding = outcome.is_success();
        let is_changed = self
            .probes
            .is_none_or(|(before, _)| before != is_responding);
        if let Some(at) = self.probed_at.filter(|_| is_changed) {
            self.probes = Some((is_responding, at));
        }

        is_changed
    }
}

/// Returns whether the provider responds by the ForeignCluster; `None` if that does not say.
fn reported(settings: &Settings, cache: &Cache, now: Timestamp) -> Option<Provider> {
    let foreign = cache.local::<ForeignCluster>(&Key::cluster(&*settings.provider))?;
    if foreign.is_api_server(Status::Established) {
        return Some(Provider::Responds);
    }
    let outage = now.duration_since(foreign.api_server_outage()?);

    Some(Provider::Away(
        Duration::try_from(outage).unwrap_or_default(),
    ))
}

/// Returns the user in the client certificate of a kubeconfig.
fn user(config: &Config) -> Option<String> {
    let certificate = config.auth_info.client_certificate_data.as_ref()?;
    let pem = STANDARD.decode(certificate).ok()?;
    let certificate = CertificateDer::from_pem_slice(&pem).ok()?;

    User::of_certificate(&certificate).map(|it| it.name)
}

fn invalid(settings: &Settings, error: &str) -> Event {
    Event {
        object: Ref::of::<control_api::VirtualNode>(&Cluster::Local, &settings.virtual_node()),
        is_warning: true,
        reason: "InvalidKubeconfig",
        note: format!("spec.kubeconfigSecretRef: {error}"),
        is_repeated: false,
    }
}
