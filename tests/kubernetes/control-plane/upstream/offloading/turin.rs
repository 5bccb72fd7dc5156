//! The provider `milan` with the manager of this project, and the controllers of its consumer `turin`.

use super::golden::Golden;
use super::kubelet::Kubelet;
use crate::authentication::site::Site;
use crate::fixture::{LIQO, chart};
use crate::upstream::consumer::Consumer;
use crate::upstream::counterparts::join;
use crate::upstream::liqoctl;
use crate::upstream::rest::Rest;
use anyhow::{Context as _, Result};
use control_credentials::{ClusterKey, KeyType};
use kubernetes_lab::control_plane::Options;
use kubernetes_lab::suite::artifacts;
use serde_json::{Value, json};

/// The namespace of the consumer's namespace `demo`.
pub(crate) const NAMESPACE: &str = "demo-turin";

/// The address of the webhooks.
const WEBHOOKS: &str = "127.0.0.7";

/// Starts a provider with webhooks. The API server finds them by a Service of its own: there is no pod network.
pub(super) async fn provider() -> Result<Site> {
    let options = Options::new(artifacts()?);
    let address = format!("--webhook-address={WEBHOOKS}:9443");
    let milan = Site::start_with("milan", "turin", &["--webhook", &address], options).await?;
    milan
        .apply(&json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "liqo-webhook", "namespace": LIQO},
            "spec": {"type": "ExternalName", "externalName": WEBHOOKS},
        }))
        .await?;
    let kinds = [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ];
    milan
        .control_plane()
        .install(&chart()?, LIQO, &kinds)
        .await?;
    // Without networking, addresses of consumers need a permission.
    milan
        .apply(&json!({
            "apiVersion": "authentication.liqo.io/v1beta1",
            "kind": "TenantPolicy",
            "metadata": {"name": "turin", "namespace": LIQO},
            "spec": {"endpointCIDRs": ["10.244.0.0/16"]},
        }))
        .await?;

    Ok(milan)
}

/// The consumer, and its clients.
pub(crate) struct Turin {
    consumer: Consumer,
    pub(super) administrator: Rest,
    replicator: Rest,
    /// Its tenant namespace.
    remote: String,
    /// The credentials of its ResourceSlice.
    credentials: Value,
}

impl Turin {
    pub(crate) async fn join(milan: &Site) -> Result<Self> {
        let consumer = Consumer {
            id: "turin",
            provider: "milan",
            key: ClusterKey::generate(KeyType::Ed25519, [5; 32])?,
        };
        let provider = liqoctl(milan, milan).provider;
        let (tenant, replicator) = join(&consumer, &provider).await?;
        let remote = tenant["tenantNamespace"].as_str();
        let remote = remote.context("no namespace")?.to_owned();
        let slice = consumer.local(
            "ResourceSlice",
            "milan",
            &consumer.slice("milan", "20", true)?,
        );
        consumer.replicate(&replicator, &slice, &remote).await?;
        let decided = replicator.until(("ResourceSlice", &remote, "milan"), |it| {
            it["status"]["authParams"]["signedCRT"].is_string()
        });
        let credentials = decided.await?["status"]["authParams"].clone();

        Ok(Self {
            consumer,
            administrator: provider.rest,
            replicator,
            remote,
            credentials,
        })
    }

    /// Replaces the mapped namespaces, and waits until the provider has accepted them, and no others.
    pub(crate) async fn map(&self, desired: &Value) -> Result<()> {
        let spec = json!({"desiredMapping": desired});
        let map = self.consumer.local("NamespaceMap", "milan", &spec);
        self.consumer
            .replicate(&self.replicator, &map, &self.remote)
            .await?;
        let expected = desired.as_object().context("no names")?.iter();
        let expected = expected.map(|(local, remote)| {
            let entry = json!({"phase": "Accepted", "remoteNamespace": remote});
            (local.clone(), entry)
        });
        let expected = Value::Object(expected.collect());
        let map = ("NamespaceMap", self.remote.as_str(), "milan");
        self.replicator
            .until(map, |it| it["status"]["currentMapping"] == expected)
            .await?;

        Ok(())
    }

    pub(crate) async fn kubelet(&self, namespace: &str) -> Result<Kubelet> {
        let client = self.consumer.client(&self.credentials, "virtual-kubelet");

        Kubelet::start(client.await?, Golden::TURIN, namespace).await
    }
}
