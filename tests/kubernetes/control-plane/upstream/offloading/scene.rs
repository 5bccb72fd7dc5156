//! The consumer `rome` with a virtual kubelet of this project, and its provider `milan` with upstream's controllers.

use super::controllers::Controllers;
use super::golden::Golden;
use crate::authentication::site::Site;
use crate::fixture::{Deadline, SOON, until};
use crate::upstream::rest::Rest;
use anyhow::{Result, ensure};
use serde_json::{Value, json};

pub(super) const GOLDEN: Golden = Golden::ROME;

pub(super) struct Scene<'a> {
    pub(super) rest: Rest,
    pub(super) rome: &'a Site,
    pub(super) milan: &'a Site,
    pub(super) controllers: Controllers<'a>,
}

impl Scene<'_> {
    /// Offloads the namespace `demo` with the objects that its pods need.
    pub(super) async fn offload(&self) -> Result<()> {
        for object in [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}}),
            json!({
                "apiVersion": "offloading.liqo.io/v1beta1",
                "kind": "NamespaceOffloading",
                "metadata": {"name": "offloading", "namespace": "demo"},
                "spec": {
                    "clusterSelector": {"nodeSelectorTerms": []},
                    "namespaceMappingStrategy": "DefaultName",
                    "podOffloadingStrategy": "LocalAndRemote",
                },
            }),
            GOLDEN.original("configmaps", "web-conf")?,
            GOLDEN.original("secrets", "web-secret")?,
        ] {
            self.rome.apply(&object).await?;
        }
        self.controllers.map().await?;
        let offloading = ("NamespaceOffloading", "demo", "offloading");
        let is_ready = |it: &Value| it["status"]["offloadingPhase"] == "Ready";
        self.rest.until(offloading, is_ready).await?;

        Ok(())
    }

    /// Creates a pod on the virtual node, as the scheduler binds it.
    pub(super) async fn create(&self, namespace: &str, name: &str) -> Result<()> {
        let mut pod = GOLDEN.pod()?;
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["namespace"] = json!(namespace);
        // The namespace gets its ServiceAccount a moment after it exists.
        until(Deadline::after(SOON), "the pod", async || {
            self.rest.create(&pod).await
        })
        .await?;

        Ok(())
    }

    pub(super) async fn until_event(&self, pod: &str, text: &str) -> Result<()> {
        until(Deadline::after(SOON), text, async || {
            let events = self.rest.list("Event", "demo", "").await?;
            let is_it = |it: &&Value| {
                let message = it["message"].as_str().unwrap_or_default();
                it["involvedObject"]["name"] == pod && message.contains(text)
            };
            let messages: Vec<_> = events.iter().map(|it| &it["message"]).collect();
            ensure!(events.iter().any(|it| is_it(&it)), "{messages:?}");
            Ok(())
        })
        .await
    }

    pub(super) async fn until_phase(
        &self,
        namespace: &str,
        pod: &str,
        (phase, reason): (&str, Option<&str>),
    ) -> Result<()> {
        let is_expected = |it: &Value| {
            let status = &it["status"];
            status["phase"] == phase && status["reason"].as_str() == reason
        };
        self.rest
            .until(("Pod", namespace, pod), is_expected)
            .await?;

        Ok(())
    }
}
