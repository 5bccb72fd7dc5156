//! A scrape: requests to all selected kubelets at a time, within limits, and the merged response.

use super::budget::{Budget, Share};
use super::filter::{Merger, NodeSamples};
use super::kubelet::{Client, ClientError, KubeletError, KubeletSettings};
use super::metrics::Metrics;
use super::route::Endpoint;
use super::selection::{Kubelet, Selection};
use futures_util::{StreamExt as _, stream};
use https_server::{Limit, Slots};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

/// Nodes whose failure is remembered, so that only changes are logged.
const FAILING_MAX: usize = 10_000;

/// Limits of scrapes.
#[derive(Clone, Copy, Debug)]
pub struct ScrapeLimits {
    /// Scrapes in progress, of all requesters.
    pub scrapes: usize,
    /// Scrapes in progress for the metrics of one consumer.
    pub scrapes_per_consumer: usize,
    /// Requests to kubelets in progress, of all scrapes.
    pub kubelets: usize,
    /// Requests to kubelets in progress, of one scrape.
    pub kubelets_per_scrape: usize,
    /// Samples in memory, of all scrapes, in bytes.
    pub memory: usize,
    /// Samples in memory, of one scrape, in bytes.
    pub memory_per_scrape: usize,
    /// Time for all kubelets.
    pub timeout: Duration,
}

impl Default for ScrapeLimits {
    fn default() -> Self {
        Self {
            scrapes: 32,
            // Virtual nodes of one provider are scraped one by one, with four endpoints each.
            scrapes_per_consumer: 8,
            kubelets: 256,
            kubelets_per_scrape: 64,
            memory: 256 << 20,
            memory_per_scrape: 64 << 20,
            // metrics-server waits 10 s.
            timeout: Duration::from_secs(8),
        }
    }
}

/// Scrapes kubelets.
#[derive(Debug)]
pub(super) struct Scraper {
    settings: KubeletSettings,
    limits: ScrapeLimits,
    metrics: Metrics,
    pub(super) in_progress: Slots<String>,
    kubelets: Semaphore,
    memory: Budget,
    /// Reason of the last failure of each node's kubelet.
    failing: Mutex<BTreeMap<String, &'static str>>,
    lacks_credentials: AtomicBool,
}

/// The samples of a scrape.
#[derive(Debug)]
pub(super) struct Scraped {
    /// Text of each family.
    pub(super) texts: Vec<String>,
    /// Memory of the samples.
    pub(super) shares: Vec<Share>,
}

/// Why a scrape has no samples.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScrapeError {
    /// The agent has no credentials for kubelets.
    #[error("the metric agent cannot ask kubelets")]
    Client(#[from] ClientError),
    /// No kubelet has responded.
    #[error("none of {0} kubelets has responded: see the log of liqo-metric-agent")]
    NoKubelet(usize),
    /// The samples exceed a limit. A part of them would look as if pods were gone.
    #[error("{0}")]
    Memory(super::budget::Exceeded),
}

impl Scraper {
    pub(super) fn new(settings: KubeletSettings, limits: ScrapeLimits, metrics: Metrics) -> Self {
        Self {
            settings,
            limits,
            metrics,
            in_progress: Slots::new(Limit {
                total: limits.scrapes,
                per_source: limits.scrapes_per_consumer,
            }),
            kubelets: Semaphore::new(limits.kubelets),
            memory: Budget::new(limits.memory),
            failing: Mutex::default(),
            lacks_credentials: AtomicBool::new(false),
        }
    }

    /// Scrapes the selected kubelets. Kubelets that fail are missing in the result, which says so in a comment.
    ///
    /// # Errors
    ///
    /// Returns [`ScrapeError`] if there are no samples.
    pub(super) async fn scrape(
        &self,
        selection: Selection,
        endpoint: Endpoint,
    ) -> Result<Scraped, ScrapeError> {
        for reason in selection.skipped.values() {
            self.metrics.skipped(reason.reason());
        }
        let (asked, skipped) = (selection.kubelets.len(), selection.skipped.len());
        let client = self.client().await?;
        let memory = Budget::new(self.limits.memory_per_scrape);
        let deadline = Instant::now() + self.limits.timeout;
        let mut requests = stream::iter(selection.kubelets)
            .map(|(node, kubelet)| {
                let (client, mut share) = (&client, memory.share(&self.memory));
                async move {
                    let asked = self.ask(client, (&node, &kubelet), endpoint, deadline, &mut share);
                    let result = asked.await;
                    (node, result, share)
                }
            })
            .buffered(self.limits.kubelets_per_scrape);
        let (mut merger, mut shares, mut failed) = (Merger::default(), Vec::new(), 0);
        while let Some((node, result, share)) = requests.next().await {
            self.log(&node, result.as_ref().err());
            match result {
                Ok(samples) => {
                    self.metrics.asked(endpoint.path(), "ok");
                    self.metrics.filtered(samples.counts);
                    merger.add(samples);
                    shares.push(share);
                }
                Err(error) => {
                    self.metrics.asked(endpoint.path(), error.reason());
                    failed += 1;
                    if let KubeletError::Memory(exceeded) = error {
                        return Err(ScrapeError::Memory(exceeded));
                    }
                }
            }
        }
        if asked > 0 && failed == asked {
            return Err(ScrapeError::NoKubelet(asked));
        }
        let mut texts = Vec::new();
        if failed + skipped > 0 {
            let all = asked + skipped;
            texts.push(format!(
                "# liqo-metric-agent: samples of {} of {all} nodes: {failed} kubelets have failed, {skipped} are not asked\n",
                asked - failed
            ));
        }
        texts.extend(merger.finish(failed == 0).into_texts());

        Ok(Scraped { texts, shares })
    }

    /// Reads the credentials, and logs when that begins to fail or to succeed.
    async fn client(&self) -> Result<Client, ClientError> {
        let loaded = Client::load(&self.settings).await;
        let was_failure = self
            .lacks_credentials
            .swap(loaded.is_err(), Ordering::Relaxed);
        match &loaded {
            Err(error) if !was_failure => {
                let cause = error.source().map(ToString::to_string);
                tracing::error!(cause, "there are no credentials for kubelets: {error}");
            }
            Ok(_) if was_failure => tracing::info!("there are credentials for kubelets again"),
            Ok(_) | Err(_) => {}
        }
        loaded
    }

    async fn ask(
        &self,
        client: &Client,
        (node, kubelet): (&str, &Kubelet),
        endpoint: Endpoint,
        deadline: Instant,
        share: &mut Share,
    ) -> Result<NodeSamples, KubeletError> {
        let asked = async {
            // The semaphore is never closed.
            let _permit = self.kubelets.acquire().await;
            client.scrape(node, kubelet, endpoint, share).await
        };

        timeout_at(deadline, asked)
            .await
            .unwrap_or(Err(KubeletError::Timeout))
    }

    /// Logs when a kubelet begins to fail, fails for another reason, or responds again.
    fn log(&self, node: &str, error: Option<&KubeletError>) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = error.map(KubeletError::reason);
        if failing.get(node).copied() == reason {
            return;
        }
        match error {
            Some(error) => {
                let cause = error.source().map(ToString::to_string);
                tracing::warn!(node, cause, "failed to read metrics: {error}");
                if failing.len() >= FAILING_MAX {
                    failing.clear();
                }
                failing.insert(node.to_owned(), error.reason());
            }
            None => {
                tracing::info!(node, "the kubelet responds again");
                failing.remove(node);
            }
        }
    }
}
