//! A simulated consumer: the requests of upstream's `liqoctl` and of a consumer's controller manager.

use crate::authentication::site::{self, Site, tenant_namespace};
use crate::fixture::SOON;
use anyhow::{Context as _, Result};
use control_api::{Renew, ResourceSlice, Tenant};
use control_credentials::{Access, ClusterKey, KeyType, Subject, kubeconfig, request};
use k8s_openapi::ByteString;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::PostParams;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::time::{Duration, Instant};
use tokio::time::timeout;

const GROUP: &str = "authentication.liqo.io/v1beta1";

/// A consumer with its key.
pub(crate) struct Consumer {
    id: String,
    key: ClusterKey,
}

impl Consumer {
    pub(crate) fn new(index: usize) -> Result<Self> {
        let seed = u8::try_from(index).context("there are at most 256 consumers")?;
        Ok(Self {
            id: format!("consumer-{index}"),
            key: ClusterKey::generate(KeyType::Ed25519, [seed; 32])?,
        })
    }

    /// Peers with `provider`, and returns the time until the provider has accepted the resources of a slice and has
    /// returned the credentials to the Renew.
    pub(crate) async fn peer(&self, provider: &Site) -> Result<Duration> {
        let start = Instant::now();
        let nonce = self.nonce(provider).await?;
        let parameters = self.tenant(provider, &nonce).await?;
        let own = self.client(&parameters).await?;
        self.replicate(&own).await?;

        Ok(start.elapsed())
    }

    /// Creates tenant namespace and nonce, and returns the text of the nonce.
    async fn nonce(&self, provider: &Site) -> Result<Vec<u8>> {
        let labels =
            json!({"liqo.io/remote-cluster-id": self.id, "liqo.io/tenant-namespace": "true"});
        let namespace = json!({"metadata": {"name": tenant_namespace(&self.id), "labels": labels}});
        let namespaces: Api<Namespace> = Api::all(provider.client.clone());
        namespaces
            .create(&PostParams::default(), &serde_json::from_value(namespace)?)
            .await?;
        let labels = json!({"liqo.io/remote-cluster-id": self.id, "liqo.io/nonce": "true"});
        let secret = json!({"metadata": {"name": "liqo-nonce", "labels": labels}});
        let secret: Secret = self
            .create(&provider.client, "liqo-nonce", secret, |it| {
                !it["data"]["nonce"].is_null()
            })
            .await?;
        let nonce = secret.data.and_then(|mut data| data.remove("nonce"));

        Ok(nonce.context("no nonce")?.0)
    }

    /// Creates the Tenant, and returns the credentials in its status.
    async fn tenant(&self, provider: &Site, nonce: &[u8]) -> Result<Value> {
        let csr = request::create(&self.key, &Subject::control_plane(&self.id))?;
        let tenant = json!({
            "apiVersion": GROUP,
            "kind": "Tenant",
            "metadata": {"name": self.id, "labels": {"liqo.io/remote-cluster-id": self.id}},
            "spec": {
                "clusterID": self.id,
                "publicKey": ByteString(self.key.public_key().to_pem().into_bytes()),
                "csr": ByteString(csr.into_bytes()),
                "signature": ByteString(self.key.sign(nonce)?),
            },
        });
        let tenant: Tenant = self
            .create(&provider.client, &self.id, tenant, |it| {
                !it["status"]["authParams"]["signedCRT"].is_null()
            })
            .await?;

        Ok(json!(tenant)["status"]["authParams"].clone())
    }

    /// Returns a client with the credentials of the Tenant.
    async fn client(&self, parameters: &Value) -> Result<Client> {
        let bytes = |field: &str| -> Result<Vec<u8>> {
            Ok(serde_json::from_value::<ByteString>(parameters[field].clone())?.0)
        };
        let (ca, certificate) = (bytes("ca")?, bytes("signedCRT")?);
        let text = kubeconfig(&Access {
            cluster: "milan",
            user: &self.id,
            server: parameters["apiServer"].as_str().context("no URL")?,
            certificate_authority: Some(&ca),
            proxy_url: None,
            namespace: None,
            client: Some((&certificate, self.key.to_pem().as_bytes())),
        })?;

        site::client(&text).await
    }

    /// Creates the replicas of a ResourceSlice and a Renew, and waits for their statuses.
    async fn replicate(&self, own: &Client) -> Result<()> {
        let labels = json!({
            "liqo.io/originID": self.id,
            "liqo.io/remote-cluster-id": self.id,
            "liqo.io/remoteID": "milan",
            "liqo.io/replicated": "true",
            "liqo.io/replication": "false",
        });
        let csr = request::create(&self.key, &Subject::resource_slice(&self.id, "milan"))?;
        let slice = json!({
            "apiVersion": GROUP,
            "kind": "ResourceSlice",
            "metadata": {
                "name": "milan",
                "labels": labels,
                "annotations": {"liqo.io/create-virtual-node": "true"},
            },
            "spec": {
                "class": "default",
                "consumerClusterID": self.id,
                "providerClusterID": "milan",
                "csr": ByteString(csr.into_bytes()),
                "resources": {"cpu": "20"},
            },
        });
        let is_accepted = |slice: &Value| {
            let conditions = slice["status"]["conditions"].as_array();
            let accepted = conditions.into_iter().flatten();
            let accepted = accepted.filter(|it| it["status"] == "Accepted");
            accepted.count() == 2 && !slice["status"]["authParams"]["signedCRT"].is_null()
        };
        let renew = json!({
            "apiVersion": GROUP,
            "kind": "Renew",
            "metadata": {"name": "controlplane-milan", "labels": labels},
            "spec": {"consumerClusterID": self.id, "identityType": "ControlPlane"},
        });
        let is_renewed = |renew: &Value| !renew["status"]["authParams"]["signedCRT"].is_null();
        tokio::try_join!(
            self.create::<ResourceSlice>(own, "milan", slice, is_accepted),
            self.create::<Renew>(own, "controlplane-milan", renew, is_renewed),
        )?;

        Ok(())
    }

    /// Creates an object in the tenant namespace, and returns it once it satisfies a condition.
    async fn create<K>(
        &self,
        client: &Client,
        name: &str,
        object: Value,
        is_done: impl Fn(&Value) -> bool,
    ) -> Result<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Serialize
            + Send
            + 'static,
    {
        let api: Api<K> = Api::namespaced(client.clone(), &tenant_namespace(&self.id));
        api.create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?;
        let condition = |object: Option<&K>| object.is_some_and(|it| is_done(&json!(it)));
        let what = || format!("{} {name} of {}", K::kind(&()), self.id);
        let found = timeout(SOON, await_condition(api, name, condition)).await;

        found.with_context(what)??.with_context(what)
    }
}
