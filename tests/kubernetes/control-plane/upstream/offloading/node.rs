//! The requests of a node's kubelet, and of the scheduler, for pods that no container runtime runs.

use crate::authentication::site::Site;
use crate::fixture::{Deadline, SOON, until};
use crate::upstream::rest::Rest;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Binding, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

pub(crate) struct Node<'a> {
    site: &'a Site,
    rest: Rest,
    namespace: &'a str,
}

impl<'a> Node<'a> {
    /// Adds a node, whose pods in one namespace are run.
    pub(crate) async fn add(site: &'a Site, name: &str, namespace: &'a str) -> Result<Self> {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        site.apply(&node).await?;
        let rest = Rest::new(site.client.clone(), "kubelet");

        Ok(Self {
            site,
            rest,
            namespace,
        })
    }

    /// Binds a pod to a node.
    pub(crate) async fn bind(&self, pod: &str, node: &str) -> Result<()> {
        let binding: Binding = serde_json::from_value(json!({
            "metadata": {"name": pod, "namespace": self.namespace},
            "target": {"kind": "Node", "name": node},
        }))?;
        let parameters = PostParams::default();
        let bound = self
            .pods()
            .create_subresource::<_, Value>("binding", pod, &parameters, &binding)
            .await;
        bound.context("failed to bind a pod")?;

        Ok(())
    }

    /// Reports the status of a pod.
    pub(crate) async fn report(&self, pod: &str, status: &Value) -> Result<Value> {
        let mut object = self.rest.get("Pod", self.namespace, pod).await?;
        object["kind"] = json!("Pod");
        object["status"] = status.clone();

        self.rest.update_part("status", &object).await
    }

    /// Ends a pod that is to be deleted.
    pub(crate) async fn end(&self, pod: &str, status: &Value) -> Result<()> {
        let pods = self.pods();
        until(Deadline::after(SOON), "the end of a pod", async || {
            let found = pods.get(pod).await?;
            ensure!(found.metadata.deletion_timestamp.is_some(), "it lives");
            Ok(())
        })
        .await?;
        self.report(pod, status).await?;

        self.remove(pod).await
    }

    /// Removes a pod at once.
    pub(crate) async fn remove(&self, pod: &str) -> Result<()> {
        let now = DeleteParams::default().grace_period(0);
        let removed = self.pods().delete(pod, &now).await;
        removed.context("failed to delete a pod")?;

        Ok(())
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.site.client.clone(), self.namespace)
    }
}
