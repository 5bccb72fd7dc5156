//! Starts the runtime with the controllers.

use super::Cli;
use crate::connection::Connection;
use crate::kubeconfig::{self, Shared};
use crate::node::{NodeController, WorkItem};
use crate::reflected::Reflected;
use crate::reflection::conflicts::Conflicts;
use crate::reflection::controller::ReflectionController;
use crate::reflection::event::controller::{ObjectEvents, PodEvents};
use crate::reflection::event::drops::Drops;
use crate::reflection::omitted::Omitted;
use crate::reflection::tokens::controller::TokenController;
use crate::server;
use crate::settings::Settings;
use crate::workload::{Durations, WorkloadController};
use anyhow::Context as _;
use control_api::VirtualNode;
use control_runtime::{
    self as runtime, Key, LeaseSettings, Replicas, Runtime, RuntimeStatus, Timing, transport,
};
use kube::{Api, Client, Config};
use prometheus_client::registry::Registry;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use telemetry::http::Observed;

/// Name of the process in Events.
const NAME: &str = "virtual-kubelet";

/// Lease that the virtual kubelets of a provider share, as upstream's.
const PEER_LEASE: &str = "virtual-kubelet-leader-election";

/// Timeout of the first request to the API server; the request is then repeated.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time between two attempts.
const RETRY: Duration = Duration::from_secs(2);

/// The metrics of the controllers of reflection.
struct Counts {
    conflicts: Conflicts,
    omitted: Omitted,
    drops: Drops,
    reflected: Reflected,
}

impl Counts {
    fn new(registry: &mut Registry, cli: &Cli) -> Self {
        Self {
            conflicts: Conflicts::new(registry),
            omitted: Omitted::new(registry),
            drops: Drops::new(registry),
            reflected: Reflected::new(registry, &cli.nodename, &cli.foreign_cluster_id),
        }
    }
}

impl Cli {
    /// Runs until the process receives a signal to stop.
    ///
    /// # Errors
    ///
    /// Returns an error if the process cannot start.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let config = Config::infer()
            .await
            .context("failed to find the API server: run in a pod, or set KUBECONFIG")?;
        let client = transport::client(&config)?;
        let mut registry = Registry::with_prefix("liqo_virtual_kubelet");
        let metrics = runtime::Metrics::new(&mut registry);
        let of_server = server::Metrics::new(&mut registry);
        let counts = Counts::new(&mut registry, &self);
        let durations = Durations::new(&mut registry);
        let registry = Arc::new(registry);
        let state = Arc::new(State::default());
        let health = telemetry::http::serve(self.http, Arc::clone(&registry), Arc::clone(&state));
        let served = telemetry::http::serve(self.metrics_address, registry, Arc::clone(&state));
        let has_metrics = self.metrics_enabled;
        let managed = async move {
            let settings = self.settings(version(&client).await)?;
            let virtual_node = virtual_node(&client, &settings).await;
            let replicas = self.replicas();
            let content = Shared::default();
            let mut runtime = Runtime::new(client, self.runtime_settings(), metrics);
            let node = NodeController::new(settings.clone(), Connection::new(content.clone()));
            let injector = runtime.add(node, &replicas)?;
            let server = self.server(&mut runtime, &settings, of_server)?;
            let tokens = self.tokens(&virtual_node);
            if self.runs_pods() {
                let workload = WorkloadController::new(settings, content.clone(), tokens.clone());
                let workload = workload.counted(counts.reflected.clone());
                let workload = workload.measured(durations);
                runtime.add(workload, &replicas)?;
            }
            if let Some(tokens) = tokens {
                runtime.add(TokenController::new(tokens), &replicas)?;
            }
            self.add_reflection(&mut runtime, &virtual_node, counts)?;
            let followed = kubeconfig::follow(self.kubeconfig.clone(), content, move || {
                injector.push(WorkItem::Connection);
            });
            drop(state.runtime.set(runtime.status()));
            let served = async {
                if let Some((server, listener)) = server {
                    server.run(listener, stop()).await;
                }
            };
            tokio::select! {
                followed = followed => followed.context("failed to follow --kubeconfig")?,
                // Both end by the same signal.
                ((), ()) = async { tokio::join!(runtime.run(stop()), served) } => {}
            }
            anyhow::Ok(())
        };

        tokio::select! {
            health = health => health.context("the health server has ended"),
            served = served, if has_metrics => served.context("the metrics server has ended"),
            managed = managed => managed,
        }
    }

    /// Adds the controllers that reflect objects and Events.
    fn add_reflection(
        &self,
        runtime: &mut Runtime,
        node: &VirtualNode,
        counts: Counts,
    ) -> anyhow::Result<()> {
        if let Some(events) = self.pod_events(node) {
            let events = PodEvents::new(events, counts.drops.clone());
            let events = events.counted(counts.reflected.clone());
            runtime.add(events, &self.replicas())?;
        }
        if let Some(events) = self.object_events(node) {
            let events = ObjectEvents::new(events, counts.drops);
            let events = events.counted(counts.reflected.clone());
            runtime.add(events, &self.of_the_peer())?;
        }
        if let Some(reflection) = self.reflection(node) {
            let reflection = ReflectionController::new(reflection, counts.conflicts);
            let reflection = reflection.counted(counts.reflected);
            runtime.add(reflection.omitting(counts.omitted), &self.of_the_peer())?;
        }

        Ok(())
    }

    fn runtime_settings(&self) -> runtime::Settings {
        let named = self.pod_name.clone().filter(|name| !name.is_empty());
        runtime::Settings {
            name: NAME,
            identity: named.unwrap_or_else(|| format!("{NAME}-{}", std::process::id())),
            // No controller of this process creates keys.
            random: || [0; 32],
        }
    }

    /// The replica that holds the Lease writes; the others keep their caches warm.
    fn replicas(&self) -> Replicas {
        Replicas::WarmStandby(self.lease(&self.nodename))
    }

    /// One virtual kubelet of a provider reflects what all of them need; the others follow nothing of it.
    fn of_the_peer(&self) -> Replicas {
        Replicas::ColdStandby(self.lease(PEER_LEASE))
    }

    fn lease(&self, name: &str) -> LeaseSettings {
        LeaseSettings {
            namespace: self.tenant_namespace.clone(),
            name: name.to_owned(),
            timing: Timing::default(),
        }
    }
}

/// Returns the version of this cluster's API server. Waits until that responds.
async fn version(client: &Client) -> String {
    let info = repeated("the version of the API server", || {
        client.apiserver_version()
    });
    info.await.git_version
}

/// Returns the VirtualNode. Waits until it exists.
async fn virtual_node(client: &Client, settings: &Settings) -> VirtualNode {
    let Key { namespace, name } = settings.virtual_node();
    let nodes: Api<VirtualNode> = Api::namespaced(client.clone(), &namespace);
    let what = format!("the VirtualNode {namespace}/{name}");
    repeated(&what, || nodes.get(&name)).await
}

/// Returns the first response of the API server that is no error.
async fn repeated<T, F>(what: &str, mut read: impl FnMut() -> F) -> T
where
    F: Future<Output = kube::Result<T>>,
{
    loop {
        match tokio::time::timeout(TIMEOUT, read()).await {
            Ok(Ok(response)) => return response,
            Ok(Err(error)) => tracing::warn!(%error, "failed to read {what}: retrying"),
            Err(_) => tracing::warn!("timed out while reading {what}: retrying"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Completes when the process receives a signal to stop.
async fn stop() {
    match telemetry::stop::requested().await {
        Ok(signal) => tracing::info!(signal, "stopping"),
        Err(error) => tracing::error!(%error, "stopping, because signals cannot be received"),
    }
}

/// Health and readiness of the process.
#[derive(Default)]
struct State {
    runtime: OnceLock<RuntimeStatus>,
}

impl Observed for State {
    fn healthy(&self) -> Result<(), String> {
        self.runtime.get().map_or(Ok(()), RuntimeStatus::healthy)
    }

    fn ready(&self) -> Result<(), String> {
        let runtime = self.runtime.get();
        runtime.map_or_else(|| Err("starting".to_owned()), RuntimeStatus::ready)
    }
}
