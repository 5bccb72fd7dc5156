//! How pods of a virtual kubelet end at a provider with upstream's controllers.

use super::controllers::NAMESPACE;
use super::scene::Scene;
use crate::fixture::{Deadline, SOON, until};
use crate::upstream::until_gone;
use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;

impl Scene<'_> {
    /// Pods that the provider ends, that the user deletes, and whose namespace is not offloaded.
    pub(super) async fn ends(&self) -> Result<()> {
        self.create("demo", "batch").await?;
        self.controllers.run("batch").await?;
        self.until_phase("demo", "batch", ("Running", None)).await?;
        self.controllers.finish("batch").await?;
        let terminated = ("Succeeded", Some("RemotePodTerminated"));
        self.until_phase("demo", "batch", terminated).await?;

        self.create("demo", "extra").await?;
        self.controllers.run("extra").await?;
        self.until_phase("demo", "extra", ("Running", None)).await?;
        let pods: Api<Pod> = Api::namespaced(self.rome.client.clone(), "demo");
        pods.delete("extra", &DeleteParams::default()).await?;
        self.controllers.collect("extra").await?;
        until(Deadline::after(SOON), "the end of a pod", async || {
            let left = pods.get_opt("extra").await?;
            ensure!(left.is_none(), "{left:?}");
            Ok(())
        })
        .await?;

        let alone = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "alone"}});
        self.rome.apply(&alone).await?;
        self.create("alone", "web").await?;
        let waiting = ("Pending", Some("OffloadingBackOff"));
        self.until_phase("alone", "web", waiting).await
    }

    /// The namespace is no longer offloaded, although a pod runs.
    pub(super) async fn withdraws(&self) -> Result<()> {
        self.rest
            .delete("NamespaceOffloading", "demo", "offloading")
            .await?;
        let aborted = ("Failed", Some("OffloadingAborted"));
        self.until_phase("demo", "web", aborted).await?;
        // The reflected objects are removed before the provider deletes the namespace.
        for kind in ["Service", "ConfigMap", "Secret", "ShadowEndpointSlice"] {
            let labels = "offloading.liqo.io/origin=rome";
            until_gone(&self.controllers.rest, kind, NAMESPACE, labels).await?;
        }
        self.controllers.unmap().await?;
        until(
            Deadline::after(SOON),
            "the end of the offloading",
            async || {
                let left = self
                    .rest
                    .get_opt("NamespaceOffloading", "demo", "offloading");
                let left = left.await?;
                ensure!(left.is_none(), "{left:?}");
                Ok(())
            },
        )
        .await
    }
}
