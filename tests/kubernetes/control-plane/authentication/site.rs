//! A cluster of its own with Liqo's controller manager, which has the rights of the chart only.

use crate::fixture::{Deadline, LIQO, SOON, chart, until};
use crate::manager::Manager;
use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use kubernetes_lab::control_plane::{ControlPlane, Options};
use kubernetes_lab::manifest;
use kubernetes_lab::pki::Subject;
use kubernetes_lab::suite::artifacts;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};

/// The user of the controller manager.
pub(crate) const MANAGER: &str = "system:serviceaccount:liqo:liqo-controller-manager";

/// A cluster with one peer.
pub(crate) struct Site {
    pub(crate) name: String,
    pub(crate) peer: String,
    /// A client with all rights.
    pub(crate) client: Client,
    // Ends before the control plane.
    manager: Option<Mutex<Manager>>,
    control_plane: ControlPlane,
}

pub(crate) fn tenant_namespace(peer: &str) -> String {
    format!("liqo-tenant-{peer}")
}

impl Site {
    /// Starts the cluster `name`, and creates the tenant namespace of `peer`.
    /// `arguments` are further arguments of the manager.
    pub(crate) async fn start(
        name: &'static str,
        peer: &'static str,
        arguments: &[&str],
    ) -> Result<Self> {
        let lifetime = Options::new(artifacts()?).signing_duration;
        Self::start_signing(name, peer, arguments, lifetime).await
    }

    /// Starts the clusters `rome` and `milan`, which may peer.
    pub(crate) async fn pair() -> Result<(Self, Self)> {
        tokio::try_join!(
            Self::start("rome", "milan", &[]),
            Self::start("milan", "rome", &[]),
        )
    }

    /// Starts a cluster whose certificates have this lifetime.
    pub(crate) async fn start_signing(
        name: &'static str,
        peer: &'static str,
        arguments: &[&str],
        lifetime: Duration,
    ) -> Result<Self> {
        let mut options = Options::new(artifacts()?);
        options.audit = false;
        options.signing_duration = lifetime;
        Self::start_with(name, peer, arguments, options).await
    }

    /// Starts a cluster with the options of its control plane.
    pub(crate) async fn start_with(
        name: &'static str,
        peer: &'static str,
        arguments: &[&str],
        options: Options,
    ) -> Result<Self> {
        let site = Self::start_unmanaged(name, peer, options).await?;

        site.with_manager(arguments)
    }

    /// Starts a cluster whose API server calls the admission webhooks of its controller manager, at an address of the Service CIDR
    /// that no other cluster uses.
    pub(crate) async fn start_with_webhooks(
        name: &'static str,
        peer: &'static str,
        address: Ipv4Addr,
    ) -> Result<Self> {
        let mut options = Options::new(artifacts()?);
        options.audit = false;
        Self::start_with_webhooks_and(name, peer, address, options).await
    }

    /// The same, with the options of its control plane.
    pub(crate) async fn start_with_webhooks_and(
        name: &'static str,
        peer: &'static str,
        address: Ipv4Addr,
        options: Options,
    ) -> Result<Self> {
        let site = Self::start_unmanaged(name, peer, options).await?;
        let control_plane = &site.control_plane;
        control_plane
            .install_webhooks(&chart()?, LIQO, address)
            .await?;
        let address = format!("--webhook-address={address}:9443");

        site.with_manager(&["--webhook", &address])
    }

    /// Starts the controller manager.
    fn with_manager(self, arguments: &[&str]) -> Result<Self> {
        let subject = Subject {
            user: MANAGER,
            group: None,
        };
        let address = format!("--api-server-address-override={}", self.server());
        let mut all = ["--authentication-enabled", "--local-api-servers"]
            .map(str::to_owned)
            .to_vec();
        all.push(address);
        all.extend(arguments.iter().map(|&argument| argument.to_owned()));
        let manager = Manager::start_on(&self.control_plane, subject, LIQO, &all)?;

        Ok(Self {
            manager: Some(Mutex::new(manager)),
            ..self
        })
    }

    /// Starts a cluster without a controller manager of Liqo.
    pub(crate) async fn start_unmanaged(
        name: &'static str,
        peer: &'static str,
        options: Options,
    ) -> Result<Self> {
        let control_plane = ControlPlane::start(options).await?;
        let chart = chart()?;
        control_plane.install_crds(&chart).await?;
        control_plane.install_rights(&chart, LIQO).await?;
        let client = control_plane.client().await?;
        let tenant = tenant_namespace(peer);
        let labels = json!({"liqo.io/remote-cluster-id": peer, "liqo.io/tenant-namespace": "true"});
        let objects = [
            json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": tenant, "labels": labels},
            }),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "liqo-clusterid-configmap", "namespace": LIQO,
                    "labels": {"app.kubernetes.io/name": "clusterid-configmap"}},
                "data": {"CLUSTER_ID": name},
            }),
        ];
        manifest::apply(&client, &objects, None).await?;

        Ok(Self {
            name: name.to_owned(),
            peer: peer.to_owned(),
            client,
            manager: None,
            control_plane,
        })
    }

    /// Kills the manager, and starts it again.
    pub(crate) async fn crash_manager(&self) -> Result<()> {
        self.manager().await?.crash().await
    }

    /// Returns the controller manager.
    pub(crate) async fn manager(&self) -> Result<MutexGuard<'_, Manager>> {
        let manager = self
            .manager
            .as_ref()
            .context("the cluster has no manager")?;
        Ok(manager.lock().await)
    }

    /// Returns the control plane.
    pub(crate) fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// Returns the URL of the API server.
    pub(crate) fn server(&self) -> &str {
        self.control_plane.server()
    }

    pub(crate) fn tenant_namespace(&self) -> String {
        tenant_namespace(&self.peer)
    }

    pub(crate) async fn apply(&self, object: &Value) -> Result<()> {
        manifest::apply(&self.client, std::slice::from_ref(object), None).await
    }

    /// Creates a Secret of the peer.
    pub(crate) async fn create_secret(
        &self,
        name: &str,
        labels: &Value,
        data: &Value,
    ) -> Result<()> {
        let mut labels = labels.clone();
        labels["liqo.io/remote-cluster-id"] = json!(self.peer);
        let secret = json!({"metadata": {"name": name, "labels": labels}, "data": data});
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.tenant_namespace());
        secrets
            .create(&PostParams::default(), &serde_json::from_value(secret)?)
            .await?;
        Ok(())
    }

    /// Returns a value of a Secret once it exists.
    pub(crate) async fn secret(&self, namespace: &str, name: &str, key: &str) -> Result<Vec<u8>> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let what = format!("{key} of Secret {name}");
        until(Deadline::after(SOON), &what, async || {
            let secret = secrets.get(name).await?;
            let value = secret.data.and_then(|mut data| data.remove(key));
            let ByteString(value) = value.context("no value")?;
            Ok(value)
        })
        .await
    }
}

/// Returns a client with a kubeconfig.
pub(crate) async fn client(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).context("the kubeconfig is invalid")?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Client::try_from(config).context("failed to create a client")
}
