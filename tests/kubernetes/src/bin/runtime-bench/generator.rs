//! Creates and changes objects, many at a time.

use crate::objects::{self, Creation};
use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::{Method, Request};
use kube::Client;
use kubernetes_lab::wait::{Deadline, SOON, until};
use serde_json::Value;

/// The number of requests at a time. The API server and etcd have no more throughput with more.
const CONCURRENCY: usize = 64;

/// Sends requests to the API server.
pub(crate) struct Generator {
    pub(crate) client: Client,
}

impl Generator {
    /// Creates all objects.
    pub(crate) async fn create(&self, creations: Vec<Creation>) -> Result<()> {
        let requests = creations
            .into_iter()
            .map(|it| (Method::POST, it.path, it.object));
        self.send(requests).await
    }

    /// Applies merge patches, given by path and patch.
    pub(crate) async fn patch(
        &self,
        patches: impl IntoIterator<Item = (String, Value)>,
    ) -> Result<()> {
        let requests = patches
            .into_iter()
            .map(|(path, patch)| (Method::PATCH, path, patch));
        self.send(requests).await
    }

    /// Waits until pods can be created in a namespace.
    pub(crate) async fn until_usable(&self, namespace: &str) -> Result<()> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        until(Deadline::after(SOON), "service accounts", async || {
            self.get(&path).await.map(drop)
        })
        .await
    }

    /// Waits until the controller manager has resolved all Configurations.
    pub(crate) async fn until_configured(&self) -> Result<()> {
        until(Deadline::after(SOON), "all Configurations", async || {
            for index in 0..objects::TENANTS {
                let object: Value =
                    serde_json::from_str(&self.get(&objects::configuration(index)).await?)?;
                ensure!(
                    object["status"]["remote"]["cidr"].is_object(),
                    "{}",
                    object["status"]
                );
            }
            Ok(())
        })
        .await
    }

    /// Returns the number of watches that the API server serves.
    pub(crate) async fn watches(&self) -> Result<u64> {
        let text = self.get("/metrics").await?;
        let watches = text.lines().filter(|line| {
            line.starts_with("apiserver_longrunning_requests{") && line.contains("verb=\"WATCH\"")
        });
        let mut sum = 0;
        for line in watches {
            let (_, value) = line.rsplit_once(' ').context("a sample has a value")?;
            sum += value
                .parse::<u64>()
                .context("the number of watches is whole")?;
        }

        Ok(sum)
    }

    async fn get(&self, path: &str) -> Result<String> {
        let request = Request::get(path).body(Vec::new())?;
        let response = self.client.request_text(request).await;
        response.with_context(|| format!("failed to read {path}"))
    }

    async fn send(&self, requests: impl Iterator<Item = (Method, String, Value)>) -> Result<()> {
        stream::iter(requests)
            .map(|(method, path, body)| async move {
                let kind = match method {
                    Method::PATCH => "application/merge-patch+json",
                    _ => "application/json",
                };
                let request = Request::builder().method(method).uri(&path);
                let request = request
                    .header("content-type", kind)
                    .body(serde_json::to_vec(&body)?)?;
                let sent = self.client.request_text(request).await;
                sent.map(drop)
                    .with_context(|| format!("failed to write to {path}"))
            })
            .buffer_unordered(CONCURRENCY)
            .try_collect()
            .await
    }
}
