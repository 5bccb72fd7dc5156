//! The order in which objects of a remote namespace end, by the versions of the provider's API server.

use crate::fixture::SOON;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::{Namespace, Running};
use serde_json::Value;

/// Watches of a remote namespace and of objects in it.
pub(super) struct Order {
    namespace: Running,
    objects: Vec<(String, Running)>,
}

impl Order {
    /// Begins to watch a namespace and objects in it, named as the path of their resource and their name.
    pub(super) async fn watch(
        provider: &Cluster,
        namespace: &str,
        objects: &[(&str, String)],
    ) -> Result<Self> {
        let remote = Namespace::existing(provider, namespace).await?;
        let field = format!("fieldSelector=metadata.name={namespace}");
        let path = format!("/api/v1/namespaces?watch=1&{field}");
        let mut order = Self {
            namespace: remote.spawn(&["get", "--raw", &path])?,
            objects: Vec::new(),
        };
        event(&mut order.namespace, |it| it["type"] == "ADDED").await?;
        for (resource, name) in objects {
            let (group, plural) = resource.rsplit_once('/').context("no group")?;
            let path = format!("/{group}/namespaces/{namespace}/{plural}?watch=1");
            let mut watch = remote.spawn(&["get", "--raw", &path])?;
            event(&mut watch, |it| is(it, "ADDED", name)).await?;
            order.objects.push((name.clone(), watch));
        }

        Ok(order)
    }

    /// Checks that the deletion of the namespace has begun after all objects were gone.
    pub(super) async fn check(mut self) -> Result<()> {
        let is_deleted = |it: &Value| it["object"]["metadata"]["deletionTimestamp"].is_string();
        let deleted = event(&mut self.namespace, is_deleted).await?;
        for (name, watch) in &mut self.objects {
            let gone = event(watch, |it| is(it, "DELETED", name)).await?;
            ensure!(gone < deleted, "{name}: {gone}, namespace: {deleted}");
        }

        Ok(())
    }
}

fn is(event: &Value, type_: &str, name: &str) -> bool {
    event["type"] == type_ && event["object"]["metadata"]["name"] == name
}

/// Waits for an event, and returns the version of its object.
async fn event(watch: &mut Running, is_wanted: impl Fn(&Value) -> bool) -> Result<u64> {
    loop {
        let line = watch.line_with("{\"type\":", SOON).await?;
        let event: Value = serde_json::from_str(&line)?;
        if is_wanted(&event) {
            let version = event["object"]["metadata"]["resourceVersion"].as_str();
            return Ok(version.context("no version")?.parse()?);
        }
    }
}
