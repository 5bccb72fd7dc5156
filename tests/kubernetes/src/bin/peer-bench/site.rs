//! A cluster with Liqo's controller manager, and `liqoctl` with the rights of its administrator.

use crate::Cli;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{Api, Client};
use kubernetes_lab::control_plane::{ControlPlane, Options};
use kubernetes_lab::manifest;
use kubernetes_lab::pki::Subject;
use kubernetes_lab::place::Artifacts;
use kubernetes_lab::wait::{Deadline, SOON, until};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

/// The namespace of Liqo.
const LIQO: &str = "liqo";

/// The user of the controller manager.
const MANAGER: Subject<'static> = Subject {
    user: "system:serviceaccount:liqo:liqo-controller-manager",
    group: None,
};

/// A cluster with one peer.
pub(crate) struct Site {
    pub(crate) name: &'static str,
    pub(crate) peer: &'static str,
    /// A client with all rights.
    pub(crate) client: Client,
    // Ends before the control plane.
    _manager: Child,
    pub(crate) control_plane: ControlPlane,
    liqoctl: PathBuf,
}

impl Site {
    /// Starts the cluster `name`, and waits until its controller manager leads and has created its key.
    pub(crate) async fn start(cli: &Cli, name: &'static str, peer: &'static str) -> Result<Self> {
        let options = Options::new(Artifacts::new(&cli.artifacts));
        let control_plane = ControlPlane::start(options).await?;
        control_plane.install_crds(&cli.chart).await?;
        control_plane.install_rights(&cli.chart, LIQO).await?;
        let client = control_plane.client().await?;
        let identity = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "liqo-clusterid-configmap", "namespace": LIQO,
                "labels": {"app.kubernetes.io/name": "clusterid-configmap"}},
            "data": {"CLUSTER_ID": name},
        });
        manifest::apply(&client, &[identity], None).await?;
        let kubeconfig = control_plane.kubeconfig_as(MANAGER, control_plane.server())?;
        let manager = Command::new(&cli.manager)
            .args(["--authentication-enabled", "--local-api-servers"])
            .arg(format!("--namespace={LIQO}"))
            .arg(format!("--pod-name={name}"))
            .arg("--http=127.0.0.1:0")
            .arg(format!(
                "--api-server-address-override={}",
                control_plane.server()
            ))
            .env("KUBECONFIG", kubeconfig)
            .env("RUST_LOG", "error")
            .kill_on_drop(true)
            .spawn()
            .context("failed to start a controller manager")?;
        let site = Self {
            name,
            peer,
            client,
            _manager: manager,
            control_plane,
            liqoctl: cli.liqoctl.clone(),
        };
        site.until_ready().await?;

        Ok(site)
    }

    async fn until_ready(&self) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LIQO);
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), LIQO);
        until(
            Deadline::after(SOON),
            "the controller manager",
            async || {
                let held = leases.list(&Default::default()).await?;
                ensure!(!held.items.is_empty(), "no Lease");
                secrets.get("authentication-keys").await?;
                Ok(())
            },
        )
        .await
    }

    pub(crate) fn tenant_namespace(&self) -> String {
        format!("liqo-tenant-{}", self.peer)
    }

    /// Runs `liqoctl` with the kubeconfigs of this cluster and, if there is one, of the other one. Returns the time
    /// from its start to its exit.
    ///
    /// # Errors
    ///
    /// Returns an error with its output if it fails.
    pub(crate) async fn liqoctl(&self, remote: Option<&Self>, words: &[&str]) -> Result<Duration> {
        let flag = remote.map(|remote| {
            let kubeconfig = remote.control_plane.kubeconfig();
            format!("--remote-kubeconfig={}", kubeconfig.display())
        });
        let mut command = Command::new(&self.liqoctl);
        command
            .env_clear()
            .env("KUBECONFIG", self.control_plane.kubeconfig())
            .args(words)
            .args(flag)
            .arg("--timeout=60s");
        let start = Instant::now();
        let output = command.output().await.context("failed to start liqoctl")?;
        let taken = start.elapsed();
        ensure!(
            output.status.success(),
            "`liqoctl {}` failed:\n{}{}",
            words.join(" "),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );

        Ok(taken)
    }

    /// Waits until the tenant namespace does not exist.
    pub(crate) async fn until_clean(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let name = self.tenant_namespace();
        until(
            Deadline::after(SOON),
            "the deletion of the namespace",
            async || {
                let left = namespaces.get_opt(&name).await?;
                ensure!(left.is_none(), "{name} exists in {}", self.name);
                Ok(())
            },
        )
        .await
    }
}
