//! Installs parts of Liqo's chart that need no nodes.

use super::ControlPlane;
use crate::wait::{self, Deadline};
use crate::{host, manifest};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde_json::{Value, json};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kinds of objects that grant or restrict rights.
const RIGHTS: [&str; 7] = [
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

/// The name of the webhook configurations and of their Service.
const WEBHOOKS: &str = "liqo-webhook";

/// The values that the chart requires, and those that add rights.
const VALUES: [&str; 4] = [
    "multiCluster.enabled=true",
    "discovery.config.clusterID=control-plane",
    "ipam.podCIDR=10.244.0.0/16",
    "ipam.serviceCIDR=10.96.0.0/16",
];

impl ControlPlane {
    /// Installs the CRDs of the Helm chart in the folder `chart`, and waits until the API server
    /// serves them.
    ///
    /// # Errors
    ///
    /// Returns an error that names the CRD that the API server refused.
    pub async fn install_crds(&self, chart: &Path) -> Result<()> {
        let folder = chart.join("crds");
        let context = || format!("failed to read {}", folder.display());
        let mut files: Vec<PathBuf> = fs::read_dir(&folder)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
            .with_context(context)?;
        files.sort();
        let mut crds = Vec::new();
        for file in files {
            crds.extend(manifest::parse(
                &fs::read_to_string(file).with_context(context)?,
            )?);
        }
        let client = self.client().await?;
        manifest::apply(&client, &crds, None).await?;

        let api: Api<CustomResourceDefinition> = Api::all(client);
        for crd in &crds {
            let name = crd["metadata"]["name"]
                .as_str()
                .context("a CRD has no name")?;
            let what = format!("the CRD {name} to be established");
            wait::until(Deadline::after(wait::SOON), &what, async || {
                let conditions = api
                    .get(name)
                    .await?
                    .status
                    .and_then(|status| status.conditions)
                    .unwrap_or_default();
                let established = conditions
                    .iter()
                    .any(|it| it.type_ == "Established" && it.status == "True");
                ensure!(established, "{conditions:?}");
                Ok(())
            })
            .await?;
        }

        Ok(())
    }

    /// Installs the service accounts, the RBAC rules and the admission policies of the Helm chart
    /// in the folder `chart`, in the namespace `namespace`. Liqo's programs are not installed.
    ///
    /// # Errors
    ///
    /// Returns the error of helm, or an error that names the object that the API server refused.
    pub async fn install_rights(&self, chart: &Path, namespace: &str) -> Result<()> {
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
        });
        manifest::apply(&self.client().await?, &[object], None).await?;

        self.install(chart, namespace, &RIGHTS).await
    }

    /// Installs the objects of these kinds of the Helm chart in the folder `chart`, in the namespace
    /// `namespace`, which exists.
    ///
    /// # Errors
    ///
    /// Returns the error of helm, or an error that names the object that the API server refused.
    pub async fn install(&self, chart: &Path, namespace: &str, kinds: &[&str]) -> Result<()> {
        let mut objects = self.render(chart, namespace)?;
        objects.retain(|object| kinds.iter().any(|kind| object["kind"] == *kind));

        manifest::apply(&self.client().await?, &objects, Some(namespace)).await
    }

    /// Installs the admission webhooks of the Helm chart, and their Service with the address `cluster_ip`. There is no kube-proxy,
    /// so a process that listens at this address of the network namespace serves the webhooks.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`install_rights`](Self::install_rights), and that of `ip`.
    pub async fn install_webhooks(
        &self,
        chart: &Path,
        namespace: &str,
        cluster_ip: Ipv4Addr,
    ) -> Result<()> {
        host::ip(None, &[format!("address replace {cluster_ip}/32 dev lo")])?;
        let mut objects = self.render(chart, namespace)?;
        objects.retain(|object| object["metadata"]["name"] == WEBHOOKS);
        ensure!(objects.len() == 3, "not three objects: {objects:?}");
        for service in objects.iter_mut().filter(|it| it["kind"] == "Service") {
            service["spec"]["clusterIP"] = json!(cluster_ip);
        }

        manifest::apply(&self.client().await?, &objects, Some(namespace)).await
    }

    /// Returns the objects of the chart.
    fn render(&self, chart: &Path, namespace: &str) -> Result<Vec<Value>> {
        let mut helm = Command::new(self.artifacts().program("helm"));
        helm.args(["template", "liqo"])
            .arg(chart)
            .args(["--namespace", namespace])
            .args(VALUES.iter().flat_map(|value| ["--set", value]));

        manifest::parse(&host::checked(&mut helm, "")?)
    }
}
