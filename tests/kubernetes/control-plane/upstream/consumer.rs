//! The writes of the controllers of an upstream consumer at its provider: the replicas of its objects.

use super::liqoctl::Side;
use super::rest::Rest;
use crate::authentication::site;
use anyhow::{Context as _, Result, ensure};
use control_credentials::{Access, ClusterKey, Subject, kubeconfig, request};
use k8s_openapi::ByteString;
use kube::Client;
use serde_json::{Value, json};

/// A consumer of upstream's, without a cluster: its objects are values.
pub(super) struct Consumer {
    pub(super) id: &'static str,
    pub(super) provider: &'static str,
    pub(super) key: ClusterKey,
}

impl Consumer {
    /// Authenticates, as `liqoctl authenticate` with this consumer. Returns the status of the Tenant.
    pub(super) async fn authenticate(&self, provider: &Side) -> Result<Value> {
        let namespace = provider.ensure_tenant_namespace(self.id).await?;
        let nonce = provider.ensure_nonce(&namespace, self.id).await?;
        let csr = request::create(&self.key, &Subject::control_plane(self.id))?;
        let bytes = |bytes: Vec<u8>| json!(ByteString(bytes));
        let tenant = json!({
            "apiVersion": "authentication.liqo.io/v1beta1",
            "kind": "Tenant",
            "metadata": {
                "name": self.id,
                "namespace": namespace,
                "labels": {"liqo.io/remote-cluster-id": self.id},
            },
            "spec": {
                "clusterID": self.id,
                "publicKey": bytes(self.key.public_key().to_pem().into_bytes()),
                "csr": bytes(csr.into_bytes()),
                "signature": bytes(self.key.sign(nonce.as_bytes())?),
            },
            "status": {},
        });

        provider.ensure_tenant(&tenant).await
    }

    /// Returns a client with the credentials that the provider issued, as a program of upstream's.
    pub(super) async fn client(&self, parameters: &Value, program: &'static str) -> Result<Rest> {
        Ok(Rest::new(self.connect(parameters).await?, program))
    }

    /// Returns a client with the credentials that the provider issued.
    pub(super) async fn connect(&self, parameters: &Value) -> Result<Client> {
        let bytes = |field: &str| -> Result<Vec<u8>> {
            let ByteString(bytes) = serde_json::from_value(parameters[field].clone())?;
            Ok(bytes)
        };
        let (certificate, authority) = (bytes("signedCRT")?, bytes("ca")?);
        let key = self.key.to_pem();
        let access = Access {
            cluster: self.provider,
            user: "controlplane",
            server: parameters["apiServer"].as_str().context("no address")?,
            certificate_authority: Some(&authority),
            proxy_url: None,
            namespace: None,
            client: Some((&certificate, key.as_bytes())),
        };

        site::client(&kubeconfig(&access)?).await
    }

    /// Returns an object of the consumer that is to be replicated.
    pub(super) fn local(&self, kind: &str, name: &str, spec: &Value) -> Value {
        let (api, annotations) = match kind {
            "NamespaceMap" => ("offloading", json!({})),
            "ResourceSlice" => (
                "authentication",
                json!({"liqo.io/create-virtual-node": "true"}),
            ),
            _ => ("authentication", json!({})),
        };
        json!({
            "apiVersion": format!("{api}.liqo.io/v1beta1"),
            "kind": kind,
            "metadata": {
                "name": name,
                "labels": {
                    "liqo.io/remote-cluster-id": self.provider,
                    "liqo.io/remoteID": self.provider,
                    "liqo.io/replication": "true",
                    "liqo.io/ownership": "Shared",
                },
                "annotations": annotations,
            },
            "spec": spec,
        })
    }

    /// Returns the spec of a ResourceSlice. Its controller adds the last two fields after `liqoctl` created the object.
    pub(super) fn slice(&self, name: &str, cpu: &str, is_complete: bool) -> Result<Value> {
        let mut spec = json!({
            "class": "default",
            "providerClusterID": self.provider,
            "resources": {"cpu": cpu, "memory": "20Gi", "pods": "200"},
        });
        if is_complete {
            let csr = request::create(&self.key, &Subject::resource_slice(self.id, name))?;
            spec["consumerClusterID"] = json!(self.id);
            spec["csr"] = json!(ByteString(csr.into_bytes()));
        }

        Ok(spec)
    }

    /// The selector of the objects that the replicator watches at the provider.
    pub(super) fn selector(&self) -> String {
        format!("liqo.io/originID={},liqo.io/replicated=true", self.id)
    }

    /// Makes the replica of an object as the replicator does: metadata at the creation only, spec always. Asserts that the
    /// provider changes nothing of it, because upstream would update it for ever.
    pub(super) async fn replicate(&self, rest: &Rest, local: &Value, remote: &str) -> Result<()> {
        let kind = local["kind"].as_str().context("no kind")?;
        let name = local["metadata"]["name"].as_str().context("no name")?;
        let present = rest.list(kind, remote, &self.selector()).await?;
        let present = present
            .into_iter()
            .find(|it| it["metadata"]["name"] == name);
        let stored = match present {
            None => rest.create(&self.replica(local, remote)).await?,
            Some(present) if present["spec"] == local["spec"] => present,
            Some(mut present) => {
                present["spec"] = local["spec"].clone();
                rest.update(&present).await?
            }
        };
        ensure!(stored["spec"] == local["spec"], "{stored}");
        let metadata = self.replica(local, remote)["metadata"].clone();
        for field in ["labels", "annotations"] {
            for (key, value) in metadata[field].as_object().into_iter().flatten() {
                ensure!(stored["metadata"][field][key] == *value, "{key}: {stored}");
            }
        }

        Ok(())
    }

    fn replica(&self, local: &Value, remote: &str) -> Value {
        let mut labels = local["metadata"]["labels"].clone();
        if let Some(labels) = labels.as_object_mut() {
            labels.remove("liqo.io/ownership");
        }
        labels["liqo.io/replication"] = json!("false");
        labels["liqo.io/replicated"] = json!("true");
        labels["liqo.io/originID"] = json!(self.id);
        labels["liqo.io/remote-cluster-id"] = json!(self.id);
        json!({
            "apiVersion": local["apiVersion"],
            "kind": local["kind"],
            "metadata": {
                "name": local["metadata"]["name"],
                "namespace": remote,
                "labels": labels,
                "annotations": local["metadata"]["annotations"],
            },
            "spec": local["spec"],
        })
    }
}
