//! The writes of the controllers of an upstream provider, in a cluster that has no controller manager of ours.

use super::rest::Rest;
use crate::authentication::site::Site;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

/// A provider of upstream's with one consumer.
pub(super) struct Provider<'a> {
    pub(super) site: &'a Site,
    pub(super) rest: Rest,
}

const LABELS: [(&str, &str); 2] = [
    ("app.kubernetes.io/managed-by", "liqo"),
    ("liqo.io/managed", "true"),
];

impl<'a> Provider<'a> {
    pub(super) fn new(site: &'a Site) -> Self {
        let rest = Rest::new(site.client.clone(), "liqo-controller-manager");
        Self { site, rest }
    }

    /// Fills the nonce of the consumer, once it exists.
    pub(super) async fn fill_nonce(&self) -> Result<()> {
        let namespace = self.site.tenant_namespace();
        let secret = ("Secret", namespace.as_str(), "liqo-nonce");
        let mut secret = self.rest.until(secret, |_| true).await?;
        let text = control_credentials::nonce([[3; 32], [4; 32]]);
        secret["data"] = json!({"nonce": ByteString(text.into_bytes())});
        self.rest.update(&secret).await?;

        Ok(())
    }

    /// Accepts the Tenant of the consumer: its certificate, its rights and its status.
    pub(super) async fn accept_tenant(&self) -> Result<()> {
        let (namespace, consumer) = (self.site.tenant_namespace(), self.site.peer.as_str());
        let tenant = ("Tenant", namespace.as_str(), consumer);
        let mut tenant = self.rest.until(tenant, |_| true).await?;
        let certificate = self
            .sign(&tenant["spec"]["csr"], "liqo-remote-certificate")
            .await?;
        let mut labels = serde_json::Map::from_iter(
            LABELS.map(|(label, value)| (label.to_owned(), json!(value))),
        );
        labels.insert("liqo.io/remote-cluster-id".to_owned(), json!(consumer));
        let group = "rbac.authorization.k8s.io";
        self.rest
            .create(&json!({
                "apiVersion": format!("{group}/v1"),
                "kind": "RoleBinding",
                "metadata": {
                    "name": "liqo-binding-liqo-remote-controlplane",
                    "namespace": namespace,
                    "labels": labels,
                },
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "liqo-remote-controlplane"},
                "subjects": [{"apiGroup": group, "kind": "User", "name": consumer}],
            }))
            .await?;
        tenant["status"] = json!({
            "authParams": self.parameters(&certificate).await?,
            "tenantNamespace": namespace,
        });
        self.rest.update_part("status", &tenant).await?;

        Ok(())
    }

    /// Copies the credentials of the Tenant into the Renew of the consumer.
    pub(super) async fn renew(&self) -> Result<()> {
        let (namespace, consumer) = (self.site.tenant_namespace(), self.site.peer.as_str());
        let tenant = self.rest.get("Tenant", &namespace, consumer).await?;
        let name = format!("controlplane-{}", self.site.name);
        let renew = ("Renew", namespace.as_str(), name.as_str());
        let mut renew = self.rest.until(renew, |_| true).await?;
        self.is_replica(&renew)?;
        renew["status"] = json!({"authParams": tenant["status"]["authParams"]});
        self.rest.update_part("status", &renew).await?;

        Ok(())
    }

    /// Accepts the ResourceSlice of the consumer.
    pub(super) async fn accept_slice(&self, status: &Value) -> Result<()> {
        let namespace = self.site.tenant_namespace();
        let slice = ("ResourceSlice", namespace.as_str(), self.site.name.as_str());
        let mut slice = self
            .rest
            .until(slice, |it| !it["spec"]["csr"].is_null())
            .await?;
        self.is_replica(&slice)?;
        let secret = format!("liqo-remote-certificate-{}", self.site.name);
        let certificate = self.sign(&slice["spec"]["csr"], &secret).await?;
        slice["status"] = status.clone();
        slice["status"]["authParams"] = self.parameters(&certificate).await?;
        self.rest.update_part("status", &slice).await?;

        Ok(())
    }

    /// Asserts that a replica has the metadata that upstream's controllers look for.
    pub(super) fn is_replica(&self, object: &Value) -> Result<()> {
        let labels = json!({
            "liqo.io/originID": self.site.peer,
            "liqo.io/remote-cluster-id": self.site.peer,
            "liqo.io/remoteID": self.site.name,
            "liqo.io/replicated": "true",
            "liqo.io/replication": "false",
        });
        ensure!(object["metadata"]["labels"] == labels, "{object}");
        for field in ["finalizers", "ownerReferences"] {
            ensure!(object["metadata"][field].is_null(), "{object}");
        }

        Ok(())
    }

    /// Returns the address and the credentials of a certificate.
    async fn parameters(&self, certificate: &Value) -> Result<Value> {
        let authority = self
            .rest
            .get("ConfigMap", "liqo", "kube-root-ca.crt")
            .await?;
        let authority = authority["data"]["ca.crt"].as_str().context("no CA")?;
        let authority = ByteString(authority.as_bytes().to_vec());

        Ok(json!({
            "ca": authority,
            "signedCRT": certificate,
            "apiServer": self.site.server(),
        }))
    }

    /// Has a request signed by Kubernetes, and stores the certificate.
    async fn sign(&self, csr: &Value, secret: &str) -> Result<Value> {
        let kind = "CertificateSigningRequest";
        let mut created = self
            .rest
            .create(&json!({
                "apiVersion": "certificates.k8s.io/v1",
                "kind": kind,
                "metadata": {
                    "generateName": "liqo-identity-",
                    "labels": {"liqo.io/remote-tenant-csr": "true"},
                },
                "spec": {
                    "request": csr,
                    "signerName": "kubernetes.io/kube-apiserver-client",
                    "usages": ["digital signature", "key encipherment", "client auth"],
                    "groups": ["system:authenticated"],
                },
            }))
            .await?;
        created["status"]["conditions"] = json!([{
            "type": "Approved",
            "status": "True",
            "reason": "IdentityManagerApproval",
            "message": "This CSR was approved by Liqo Identity Manager",
        }]);
        self.rest.update_part("approval", &created).await?;
        let name = created["metadata"]["name"].as_str().context("no name")?;
        let signed = self
            .rest
            .until((kind, "", name), |it| {
                it["status"]["certificate"].is_string()
            })
            .await?;
        let certificate = signed["status"]["certificate"].clone();
        let labels = json!({
            "liqo.io/managed": "true",
            "liqo.io/remote-cluster-id": self.site.peer,
        });
        self.rest
            .create(&json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": secret,
                    "namespace": self.site.tenant_namespace(),
                    "labels": labels,
                },
                "data": {"csr": csr, "certificate": certificate},
            }))
            .await?;

        Ok(certificate)
    }
}
