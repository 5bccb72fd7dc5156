//! Starts the runtime with the controllers.

use super::Cli;
use crate::connection::Connection;
use crate::kubeconfig::{self, Shared};
use crate::node::{NodeController, WorkItem};
use crate::workload::WorkloadController;
use anyhow::Context as _;
use control_runtime::{
    self as runtime, LeaseSettings, Replicas, Runtime, RuntimeStatus, Timing, transport,
};
use kube::{Client, Config};
use prometheus_client::registry::Registry;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use telemetry::http::Observed;

/// Name of the process in Events.
const NAME: &str = "virtual-kubelet";

/// Timeout of the first request to the API server; the request is then repeated.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time between two attempts.
const RETRY: Duration = Duration::from_secs(2);

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
        let registry = Arc::new(registry);
        let state = Arc::new(State::default());
        let health = telemetry::http::serve(self.http, Arc::clone(&registry), Arc::clone(&state));
        let served = telemetry::http::serve(self.metrics_address, registry, Arc::clone(&state));
        let has_metrics = self.metrics_enabled;
        let managed = async move {
            let settings = self.settings(version(&client).await)?;
            let replicas = self.replicas();
            let content = Shared::default();
            let mut runtime = Runtime::new(client, self.runtime_settings(), metrics);
            let connection = Connection::new(content.clone());
            let node = NodeController::new(settings.clone(), connection);
            let injector = runtime.add(node, &replicas)?;
            if self.runs_pods() {
                runtime.add(WorkloadController::new(settings), &replicas)?;
            }
            let changed = move || injector.push(WorkItem::Connection);
            let followed = kubeconfig::follow(self.kubeconfig.clone(), content, changed);
            drop(state.runtime.set(runtime.status()));
            tokio::select! {
                followed = followed => followed.context("failed to follow --kubeconfig")?,
                () = runtime.run(stop()) => {}
            }
            anyhow::Ok(())
        };

        tokio::select! {
            health = health => health.context("the health server has ended"),
            served = served, if has_metrics => served.context("the metrics server has ended"),
            managed = managed => managed,
        }
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
        Replicas::WarmStandby(LeaseSettings {
            namespace: self.tenant_namespace.clone(),
            name: self.nodename.clone(),
            timing: Timing::default(),
        })
    }
}

/// Returns the version of this cluster's API server. Waits until that responds.
async fn version(client: &Client) -> String {
    loop {
        match tokio::time::timeout(TIMEOUT, client.apiserver_version()).await {
            Ok(Ok(info)) => return info.git_version,
            Ok(Err(error)) => {
                tracing::warn!(%error, "failed to read the version of the API server: retrying")
            }
            Err(_) => {
                tracing::warn!("timed out while reading the version of the API server: retrying")
            }
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
