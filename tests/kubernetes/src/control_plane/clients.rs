//! Clients of a control plane.

use super::ControlPlane;
use crate::pki::Subject;
use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::PostParams;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

impl ControlPlane {
    /// Returns a new client with all rights. The client belongs to the runtime of the caller.
    ///
    /// # Errors
    ///
    /// Returns an error if the kubeconfig is unusable.
    pub async fn client(&self) -> Result<Client> {
        self.connect("admin").await
    }

    /// Returns a new client with a certificate of `subject`.
    ///
    /// # Errors
    ///
    /// Returns an error if the certificate cannot be written.
    pub async fn client_as(&self, subject: Subject<'_>) -> Result<Client> {
        let name = format!("client-{}", self.clients.fetch_add(1, Ordering::Relaxed));
        self.pki.client("ca", &name, subject)?;
        self.connect(&name).await
    }

    /// Returns the path of a new kubeconfig with a certificate of `subject`. `server` is the URL of
    /// the API server, or of a relay to it.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written.
    pub fn kubeconfig_as(&self, subject: Subject<'_>, server: &str) -> Result<PathBuf> {
        let name = format!("client-{}", self.clients.fetch_add(1, Ordering::Relaxed));
        self.pki.client("ca", &name, subject)?;
        let text = self.pki.kubeconfig(super::NAME, server, &name)?;
        let path = self.pki.folder().join(format!("{name}.conf"));
        fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;

        Ok(path)
    }

    /// Returns a new client with a token of a service account, like the token of a pod.
    ///
    /// # Errors
    ///
    /// Returns an error if the service account does not exist.
    pub async fn client_of(&self, namespace: &str, service_account: &str) -> Result<Client> {
        let token = self.token(namespace, service_account, None).await?;
        let mut config = self.config("admin").await?;
        config.auth_info = AuthInfo {
            token: Some(token.into()),
            ..AuthInfo::default()
        };

        Client::try_from(config).context("failed to create a client")
    }

    /// Returns the path of a new kubeconfig with a token of the service account of a pod, which is
    /// bound to the pod, like the token that a kubelet mounts.
    ///
    /// # Errors
    ///
    /// Returns an error if the pod does not exist, or if the file cannot be written.
    pub async fn kubeconfig_of_pod(&self, pod: &Pod) -> Result<PathBuf> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let spec = pod.spec.as_ref().context("the pod has no spec")?;
        let account = spec.service_account_name.as_deref().unwrap_or_default();
        let bound = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        };
        let token = self.token(namespace, account, Some(bound)).await?;
        let text = self.pki.kubeconfig(super::NAME, &self.server, "admin")?;
        let mut kubeconfig: Value =
            serde_saphyr::from_str(&text).context("the kubeconfig is invalid")?;
        kubeconfig["users"][0]["user"] = json!({"token": token});
        let name = format!(
            "client-{}.conf",
            self.clients.fetch_add(1, Ordering::Relaxed)
        );
        let path = self.pki.folder().join(name);
        fs::write(&path, kubeconfig.to_string())
            .with_context(|| format!("failed to write {}", path.display()))?;

        Ok(path)
    }

    async fn token(
        &self,
        namespace: &str,
        service_account: &str,
        bound: Option<BoundObjectReference>,
    ) -> Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                bound_object_ref: bound,
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let response = accounts
            .create_token_request(service_account, &PostParams::default(), &request)
            .await
            .with_context(|| {
                format!("no token of service account {namespace}/{service_account}")
            })?;
        let token = response.status.and_then(|status| status.token);

        token.context("the response has no token")
    }

    /// Returns a client with the certificate `name`.
    async fn connect(&self, name: &str) -> Result<Client> {
        Client::try_from(self.config(name).await?).context("failed to create a client")
    }

    async fn config(&self, name: &str) -> Result<Config> {
        let text = self.pki.kubeconfig(super::NAME, &self.server, name)?;
        let kubeconfig = Kubeconfig::from_yaml(&text).context("the kubeconfig is invalid")?;

        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .context("the kubeconfig is invalid")
    }
}
