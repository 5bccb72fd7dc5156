//! Metrics of the Node's pods, which the provider has collected for this cluster.

use super::body::{Body, collected};
use super::exposition::{OwnPods, filtered};
use super::metrics::Metrics;
use super::provider::Provider;
use super::refusal::Refusal;
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Longest response of the provider, in bytes.
const METRICS_LEN_MAX: usize = 16 << 20;

/// Responses in memory at a time. Others wait.
const SCRAPES_MAX: usize = 3;

/// Time for which a request waits for others.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Path with the usage of resources.
const RESOURCE: &str = "metrics/resource";

/// Reads metrics of the provider.
#[derive(Debug)]
pub(crate) struct Scraper {
    provider: Provider,
    /// Cluster ID of this cluster.
    home: String,
    metrics: Metrics,
    scrapes: Semaphore,
}

impl Scraper {
    /// Creates a reader of the metrics for a cluster.
    pub(crate) fn new(provider: Provider, home: &str, metrics: Metrics) -> Self {
        Self {
            provider,
            home: home.to_owned(),
            metrics,
            scrapes: Semaphore::new(SCRAPES_MAX),
        }
    }

    /// Returns the metrics of a kubelet's path, without those of other pods.
    ///
    /// # Errors
    ///
    /// Returns a refusal if the provider refuses, or sends too much.
    pub(crate) async fn metrics(&self, path: &str, pods: &[Arc<Pod>]) -> Result<Body, Refusal> {
        let own = OwnPods::new(pods);
        self.read(path, |text| {
            let (kept, dropped) = filtered(text, &own);
            self.metrics.dropped(dropped);
            Body::from(kept)
        })
        .await
    }

    /// Returns what `take` makes of the usage of resources.
    ///
    /// # Errors
    ///
    /// Returns a refusal if the provider refuses, or sends too much.
    pub(crate) async fn usage<T>(&self, take: impl FnOnce(&str) -> T) -> Result<T, Refusal> {
        self.read(RESOURCE, take).await
    }

    async fn read<T>(&self, path: &str, take: impl FnOnce(&str) -> T) -> Result<T, Refusal> {
        let permit = timeout(WAIT_MAX, self.scrapes.acquire()).await;
        let _permit = permit.map_err(|_| {
            let message = "other requests for metrics of the provider are in progress: retry";
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message)
        })?;
        let body = self.provider.metrics(&self.home, path).await?;
        let bytes = collected(body, METRICS_LEN_MAX).await;
        let bytes = bytes.map_err(|error| {
            Refusal::unreachable(format!("failed to read metrics of the provider: {error}"))
        })?;

        Ok(take(&String::from_utf8_lossy(&bytes)))
    }
}
