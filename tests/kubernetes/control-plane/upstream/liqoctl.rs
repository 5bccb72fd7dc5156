//! The requests and waits of upstream's `liqoctl` v1.2 without networking, in their order.
//!
//! Upstream polls each second; the polls here are more frequent. As in upstream, the first object that is not as expected
//! ends the command with an error.

use super::rest::{Rest, refusal};
use crate::fixture::{Deadline, LIQO, SOON, until};
use anyhow::{Context as _, Result, bail, ensure};
use control_credentials::{ClusterKey, Subject, request};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use std::time::Duration;

/// Time in which a ForeignCluster follows a change. A user who parts at once after peering takes longer.
const CHANGED: Duration = Duration::from_secs(1);

/// Label of the objects of a peer.
const PEER: &str = "liqo.io/remote-cluster-id";

/// A cluster, as `liqoctl` sees it.
#[derive(Clone)]
pub(super) struct Side {
    pub(super) rest: Rest,
    pub(super) id: String,
}

/// A run of `liqoctl` with the kubeconfigs of consumer and provider.
#[derive(Clone)]
pub(super) struct Liqoctl {
    pub(super) consumer: Side,
    pub(super) provider: Side,
    /// The proxy of the provider, with `--in-band`.
    pub(super) proxy: Option<String>,
}

/// The resources that `peer` requests.
const RESOURCES: [(&str, &str); 3] = [("cpu", "20"), ("memory", "20Gi"), ("pods", "200")];

impl Liqoctl {
    pub(super) fn new(consumer: Side, provider: Side) -> Self {
        Self {
            consumer,
            provider,
            proxy: None,
        }
    }

    /// `liqoctl peer --networking-disabled`. Returns the conditions of the ResourceSlice as it prints them.
    pub(super) async fn peer(&self) -> Result<[String; 2]> {
        self.authenticate().await?;
        self.create_slice().await
    }

    /// `liqoctl authenticate`
    pub(super) async fn authenticate(&self) -> Result<()> {
        let (consumer, provider) = (&self.consumer, &self.provider);
        let local = consumer.ensure_tenant_namespace(&provider.id).await?;
        let remote = provider.ensure_tenant_namespace(&consumer.id).await?;
        let nonce = provider.ensure_nonce(&remote, &consumer.id).await?;
        let signature = consumer
            .ensure_signature(&local, &provider.id, &nonce)
            .await?;
        let tenant = self.tenant(&remote, &signature).await?;
        let status = provider.ensure_tenant(&tenant).await?;
        let identity = json!({
            "apiVersion": "authentication.liqo.io/v1beta1",
            "kind": "Identity",
            "metadata": {"name": format!("controlplane-{}", provider.id), "namespace": local},
        });
        let spec = json!({
            "clusterID": provider.id,
            "type": "ControlPlane",
            "authParams": status["authParams"],
            "namespace": status["tenantNamespace"],
        });
        let rest = &consumer.rest;
        rest.create_or_update(&identity, |it| {
            it["metadata"]["labels"] = json!({PEER: provider.id});
            it["metadata"]
                .as_object_mut()
                .map(|it| it.remove("annotations"));
            it["spec"] = spec.clone();
        })
        .await?;
        let name = format!("controlplane-{}", provider.id);
        rest.until(("Identity", &local, &name), |it| {
            it["status"]["kubeconfigSecretRef"]["name"].is_string()
        })
        .await?;

        Ok(())
    }

    /// Reads the key of the consumer, and returns the Tenant for the provider.
    async fn tenant(&self, namespace: &str, signature: &str) -> Result<Value> {
        let id = &self.consumer.id;
        let keys = self
            .consumer
            .rest
            .get("Secret", LIQO, "authentication-keys");
        let keys = keys.await?;
        let key = ClusterKey::from_pem(&decoded(&keys["data"]["privateKey"])?)?;
        let csr = request::create(&key, &Subject::control_plane(id))?;
        let mut spec = json!({
            "clusterID": id,
            "publicKey": keys["data"]["publicKey"],
            "csr": ByteString(csr.into_bytes()),
            "signature": signature,
        });
        if let Some(proxy) = &self.proxy {
            spec["proxyURL"] = json!(proxy);
        }

        Ok(json!({
            "apiVersion": "authentication.liqo.io/v1beta1",
            "kind": "Tenant",
            "metadata": {"name": id, "namespace": namespace, "labels": {PEER: id}},
            "spec": spec,
        }))
    }

    /// `liqoctl create resourceslice`
    async fn create_slice(&self) -> Result<[String; 2]> {
        let provider = &self.provider.id;
        let namespace = self.consumer.tenant_namespace(provider).await?;
        let slice = json!({
            "apiVersion": "authentication.liqo.io/v1beta1",
            "kind": "ResourceSlice",
            "metadata": {"name": provider, "namespace": namespace},
        });
        let rest = &self.consumer.rest;
        rest.create_or_update(&slice, |it| {
            it["metadata"]["labels"][PEER] = json!(provider);
            it["metadata"]["labels"]["liqo.io/remoteID"] = json!(provider);
            it["metadata"]["labels"]["liqo.io/replication"] = json!("true");
            it["metadata"]["annotations"]["liqo.io/create-virtual-node"] = json!("true");
            // Without the request and the consumer, which the controller adds.
            it["spec"] = json!({
                "class": "default",
                "providerClusterID": provider,
                "resources": serde_json::Map::from_iter(
                    RESOURCES.map(|(name, amount)| (name.to_owned(), json!(amount)))
                ),
            });
        })
        .await?;
        let slice = rest
            .until(("ResourceSlice", &namespace, provider), |it| {
                condition(it, "Authentication").as_deref() == Some("Accepted")
            })
            .await?;
        // Upstream reads the second condition once.
        let resources = condition(&slice, "Resources").context("no verdict about resources")?;

        Ok(["Accepted".to_owned(), resources])
    }

    /// `liqoctl unpeer`, which resets the network also if there is none.
    pub(super) async fn unpeer(&self) -> Result<()> {
        let (consumer, provider) = (&self.consumer, &self.provider);
        let labels = format!("{PEER}={}", provider.id);
        let summary = until(Deadline::after(CHANGED), "the ForeignCluster", async || {
            consumer.rest.only("ForeignCluster", "", &labels).await
        })
        .await?;
        let is_bidirectional = summary["status"]["role"] == "ConsumerAndProvider";
        let local = consumer.tenant_namespace(&provider.id).await?;
        let remote = provider.tenant_namespace(&consumer.id).await?;

        let replicated = format!("liqo.io/replication=true,liqo.io/remoteID={}", provider.id);
        let slices = ("ResourceSlice", local.as_str(), replicated.as_str());
        consumer.delete_and_wait(slices).await?;
        let nodes = ("VirtualNode", local.as_str(), labels.as_str());
        consumer.delete_and_wait(nodes).await?;
        // `unauthenticate`
        let left = consumer.rest.list("ResourceSlice", &local, &replicated);
        ensure!(left.await?.is_empty(), "there are leftover ResourceSlices");
        for identity in consumer.rest.list("Identity", &local, &labels).await? {
            if identity["spec"]["type"] == "ControlPlane" {
                consumer.delete(&identity).await?;
            }
        }
        let of_consumer = format!("{PEER}={}", consumer.id);
        for tenant in provider.rest.list("Tenant", &remote, &of_consumer).await? {
            provider.delete(&tenant).await?;
        }
        if is_bidirectional {
            return Ok(());
        }
        // `network reset`
        for kind in ["GatewayClient", "GatewayServer", "Configuration"] {
            for (side, namespace, labels) in [
                (consumer, &local, &labels),
                (provider, &remote, &of_consumer),
            ] {
                for object in side.rest.list(kind, namespace, labels).await? {
                    side.delete(&object).await?;
                }
            }
        }

        Ok(())
    }
}

impl Side {
    pub(super) fn new(rest: Rest, id: &str) -> Self {
        Self {
            rest,
            id: id.to_owned(),
        }
    }

    /// Returns the tenant namespace of a peer: the only one with its labels, else that of the default name if the user
    /// may not list namespaces.
    async fn tenant_namespace(&self, peer: &str) -> Result<String> {
        let labels = format!("{PEER}={peer},liqo.io/tenant-namespace");
        let found = match self.rest.list("Namespace", "", &labels).await {
            Ok(found) => found,
            Err(error) if refusal(&error) == Some(403) => {
                let name = format!("liqo-tenant-{peer}");
                return self.rest.get("Namespace", "", &name).await.map(|_| name);
            }
            Err(error) => return Err(error),
        };
        ensure!(
            found.len() == 1,
            "{} tenant namespaces of {peer}",
            found.len()
        );
        let name = found[0]["metadata"]["name"].as_str();

        Ok(name.context("no name")?.to_owned())
    }

    pub(super) async fn ensure_tenant_namespace(&self, peer: &str) -> Result<String> {
        if let Ok(found) = self.tenant_namespace(peer).await {
            return Ok(found);
        }
        let name = format!("liqo-tenant-{peer}");
        self.rest
            .create(&json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": name,
                    "creationTimestamp": null,
                    "labels": {
                        PEER: peer,
                        "liqo.io/tenant-namespace": "true",
                        "pod-security.kubernetes.io/audit": "privileged",
                        "pod-security.kubernetes.io/enforce": "privileged",
                        "pod-security.kubernetes.io/warn": "privileged",
                    },
                },
                "spec": {},
                "status": {},
            }))
            .await?;

        Ok(name)
    }

    /// Creates the nonce of a consumer, and waits for it. A peering user may not update Secrets, so its labels must be
    /// exactly these.
    pub(super) async fn ensure_nonce(&self, namespace: &str, consumer: &str) -> Result<String> {
        let labels = json!({"liqo.io/nonce": "true", PEER: consumer});
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "liqo-nonce", "namespace": namespace},
        });
        self.rest
            .create_or_update(&secret, |it| it["metadata"]["labels"] = labels.clone())
            .await?;
        let secret = ("Secret", namespace, "liqo-nonce");
        self.rest
            .until(secret, |it| it["data"]["nonce"].is_string())
            .await?;
        let selector = format!("liqo.io/nonce=true,{PEER}={consumer}");
        let secret = self.rest.only("Secret", namespace, &selector).await?;

        Ok(String::from_utf8(decoded(&secret["data"]["nonce"])?)?)
    }

    /// Has a nonce signed. Returns the signature in base64.
    async fn ensure_signature(
        &self,
        namespace: &str,
        provider: &str,
        nonce: &str,
    ) -> Result<String> {
        let labels = json!({"liqo.io/signed-nonce": "true", PEER: provider});
        let encoded = json!(ByteString(nonce.as_bytes().to_vec()));
        let selector = format!("liqo.io/signed-nonce=true,{PEER}={provider}");
        let present = self.rest.list("Secret", namespace, &selector).await?;
        if present.iter().any(|it| it["data"]["nonce"] != encoded) {
            bail!("nonce secret already exists with a different nonce");
        }
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "liqo-signed-nonce", "namespace": namespace},
        });
        self.rest
            .create_or_update(&secret, |it| {
                it["metadata"]["labels"] = labels.clone();
                it["data"]["nonce"] = encoded.clone();
            })
            .await?;
        let secret = ("Secret", namespace, "liqo-signed-nonce");
        self.rest
            .until(secret, |it| it["data"]["signedNonce"].is_string())
            .await?;
        let secret = self.rest.only("Secret", namespace, &selector).await?;
        let signature = secret["data"]["signedNonce"].as_str();

        Ok(signature.context("no signature")?.to_owned())
    }

    /// Creates or overwrites a Tenant. Returns its status once it has credentials.
    pub(super) async fn ensure_tenant(&self, tenant: &Value) -> Result<Value> {
        let applied = self.rest.create_or_update(tenant, |it| {
            it["metadata"]["labels"] = tenant["metadata"]["labels"].clone();
            it["metadata"]
                .as_object_mut()
                .map(|it| it.remove("annotations"));
            it["spec"] = tenant["spec"].clone();
        });
        applied.await?;
        let metadata = &tenant["metadata"];
        let name = metadata["name"].as_str().context("no name")?;
        let namespace = metadata["namespace"].as_str().context("no namespace")?;
        let tenant = self.rest.until(("Tenant", namespace, name), |it| {
            let status = &it["status"];
            status["authParams"].is_object() && status["tenantNamespace"].is_string()
        });

        Ok(tenant.await?["status"].clone())
    }

    async fn delete(&self, object: &Value) -> Result<()> {
        let kind = object["kind"].as_str().context("no kind")?;
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().context("no namespace")?;
        let name = metadata["name"].as_str().context("no name")?;
        self.rest.delete(kind, namespace, name).await?;

        Ok(())
    }

    /// Deletes the objects of a kind with these labels, and waits until there are none.
    async fn delete_and_wait(&self, (kind, namespace, labels): (&str, &str, &str)) -> Result<()> {
        for object in self.rest.list(kind, namespace, labels).await? {
            self.delete(&object).await?;
        }
        let what = format!("the absence of each {kind}");
        until(Deadline::after(SOON), &what, async || {
            let left = self.rest.list(kind, namespace, labels).await?;
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await
    }
}

/// Returns the status of a condition of a ResourceSlice.
pub(super) fn condition(slice: &Value, type_: &str) -> Option<String> {
    let conditions = slice["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|it| it["type"] == type_)?;

    Some(condition["status"].as_str()?.to_owned())
}

/// Returns the bytes of a value of a Secret.
pub(super) fn decoded(value: &Value) -> Result<Vec<u8>> {
    let ByteString(bytes) = serde_json::from_value(value.clone()).context("no value")?;
    Ok(bytes)
}
