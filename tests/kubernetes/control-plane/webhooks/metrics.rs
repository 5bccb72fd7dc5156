//! The metrics of an API server about admission webhooks.

use anyhow::{Context as _, Result};
use kube::Client;

/// The response of the endpoint `/metrics`.
pub(crate) struct Metrics(String);

impl Metrics {
    pub(crate) async fn read(client: &Client) -> Result<Self> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = client.request_text(request).await;
        Ok(Self(text.context("failed to read the metrics")?))
    }

    /// Returns the number of calls of a webhook.
    pub(crate) fn calls(&self, webhook: &str) -> f64 {
        self.sum("request_total", webhook, "")
    }

    /// Returns the number of requests that a webhook has not reviewed, and that were allowed.
    pub(crate) fn fail_open(&self, webhook: &str) -> f64 {
        self.sum("fail_open_count", webhook, "")
    }

    /// Returns the duration of all calls of a webhook, in seconds.
    pub(crate) fn duration(&self, webhook: &str) -> f64 {
        self.sum("admission_duration_seconds_sum", webhook, "")
    }

    /// Returns the number of calls of a webhook that took at most `limit` seconds, an upper bound of a bucket.
    pub(crate) fn within(&self, webhook: &str, limit: &str) -> f64 {
        let bound = format!("le=\"{limit}\"");
        self.sum("admission_duration_seconds_bucket", webhook, &bound)
    }

    /// Returns the sum of the samples of a metric whose labels contain a text.
    fn sum(&self, metric: &str, webhook: &str, label: &str) -> f64 {
        let metric = format!("apiserver_admission_webhook_{metric}{{");
        let webhook = format!("name=\"{webhook}\"");
        let samples = self.0.lines().filter(|line| {
            line.starts_with(&metric) && line.contains(&webhook) && line.contains(label)
        });
        let values = samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        values.sum()
    }
}
