//! The connection to the provider: its API server and credentials, and whether it responds.
//!
//! The Node's Lease is renewed only while the provider responds, by the ForeignCluster or by a probe of its own.

use crate::kubeconfig::Shared;
use crate::settings::Settings;
use control_api::ForeignCluster;
use control_api::core::foreign_cluster::ForeignClusterConditionStatus as Status;
use control_runtime::{
    Cache, Cluster, ClusterChange, Env, Event, Key, Outcome, Plan, Probe, Ref, RemoteConfig,
};
use std::time::{Duration, Instant};

/// Interval of probes while the ForeignCluster does not say whether the provider responds.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// Time for the response of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The connection to the provider.
pub(crate) struct Connection {
    content: Shared,
    /// The configuration that was set.
    config: Option<RemoteConfig>,
    /// Whether the last probe was answered; `None` before the first result.
    is_responding: Option<bool>,
    probed_at: Option<Instant>,
}

impl Connection {
    /// Creates a connection with a kubeconfig that a task reads.
    pub(crate) fn new(content: Shared) -> Self {
        Self {
            content,
            config: None,
            is_responding: None,
            probed_at: None,
        }
    }

    /// Returns whether the provider responds.
    pub(crate) fn is_responding(&self, settings: &Settings, cache: &Cache) -> bool {
        reported(settings, cache).unwrap_or(self.is_responding == Some(true))
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
                    self.config = Some(config);
                }
                Err(error) => plan.events.push(invalid(settings, &error.to_string())),
            },
            Some(Err(error)) => plan.events.push(invalid(settings, &error)),
        }
        if self.config.is_none() || reported(settings, cache).is_some() {
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
        let is_responding = Some(outcome.is_success());
        let before = std::mem::replace(&mut self.is_responding, is_responding);

        before != is_responding
    }
}

/// Returns whether the provider responds by the ForeignCluster; `None` if that does not say.
fn reported(settings: &Settings, cache: &Cache) -> Option<bool> {
    let foreign = cache.local::<ForeignCluster>(&Key::cluster(&*settings.provider))?;
    if foreign.is_api_server(Status::Established) {
        return Some(true);
    }

    foreign.is_api_server(Status::Error).then_some(false)
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
