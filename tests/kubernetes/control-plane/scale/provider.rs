//! Simulated providers: one API server, with a tenant namespace for each, and a user that accepts what is replicated.

use crate::authentication::site::{Site, tenant_namespace};
use crate::fixture::{SOON, chart};
use anyhow::{Context as _, Result};
use control_api::ResourceSlice;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Resource};
use kubernetes_lab::control_plane::{AuditEvent, ControlPlane, Options};
use kubernetes_lab::manifest;
use kubernetes_lab::pki::Subject;
use kubernetes_lab::suite::artifacts;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Prefix of the users that are the consumer at its providers.
const USER: &str = "rome-at-";

/// Returns whether a request is of the consumer.
pub(crate) fn is_consumer(event: &AuditEvent) -> bool {
    event.user.username.starts_with(USER)
}

/// The API server of all providers.
pub(crate) struct Providers {
    control_plane: ControlPlane,
    client: Client,
    /// The kubeconfigs of the consumer, one for each provider.
    kubeconfigs: Vec<String>,
}

impl Providers {
    pub(crate) async fn start(number: usize) -> Result<Self> {
        let control_plane = ControlPlane::start(Options::new(artifacts()?)).await?;
        control_plane.install_crds(&chart()?).await?;
        let client = control_plane.client().await?;
        let mut kubeconfigs = Vec::new();
        for index in 0..number {
            let name = at_provider(index);
            let user = format!("{USER}{index}");
            let objects = [
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
                json!({
                    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                    "metadata": {"name": "rome", "namespace": name},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
                }),
            ];
            manifest::apply(&client, &objects, None).await?;
            let subject = Subject {
                user: &user,
                group: None,
            };
            let path = control_plane.kubeconfig_as(subject, control_plane.server())?;
            kubeconfigs.push(std::fs::read_to_string(path)?);
        }

        Ok(Self {
            control_plane,
            client,
            kubeconfigs,
        })
    }

    pub(crate) fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// Gives the consumer the credentials of a provider and a ResourceSlice, and returns the time until the status of
    /// its replica has come back.
    pub(crate) async fn connect(&self, rome: &Site, index: usize) -> Result<Duration> {
        let id = format!("provider-{index}");
        let namespace = tenant_namespace(&id);
        let labels = json!({"liqo.io/remote-cluster-id": id, "liqo.io/tenant-namespace": "true"});
        create::<Namespace>(
            &Api::all(rome.client.clone()),
            json!({"metadata": {"name": namespace, "labels": labels}}),
        )
        .await?;
        let secrets: Api<Secret> = Api::namespaced(rome.client.clone(), &namespace);
        let secret = json!({
            "metadata": {
                "name": "kubeconfig",
                "labels": {"liqo.io/remote-cluster-id": id, "liqo.io/identity-type": "ControlPlane"},
                "annotations": {"liqo.io/remote-tenant-namespace": at_provider(index)},
            },
            "stringData": {"kubeconfig": self.kubeconfigs[index]},
        });
        create(&secrets, secret).await?;
        let slices: Api<ResourceSlice> = Api::namespaced(rome.client.clone(), &namespace);
        let slice = json!({
            "apiVersion": "authentication.liqo.io/v1beta1",
            "kind": "ResourceSlice",
            "metadata": {"name": "slice", "labels": {
                "liqo.io/remote-cluster-id": id,
                "liqo.io/remoteID": id,
                "liqo.io/replication": "true",
            }},
            "spec": {"class": "default", "providerClusterID": id},
        });
        create(&slices, slice).await?;

        let start = Instant::now();
        let replicas: Api<ResourceSlice> =
            Api::namespaced(self.client.clone(), &at_provider(index));
        let exists = |slice: Option<&ResourceSlice>| slice.is_some();
        let what = format!("the replica at {id}");
        timeout(SOON, await_condition(replicas.clone(), "slice", exists))
            .await
            .context(what)??;
        let conditions = json!([{"type": "Resources", "status": "Accepted"}]);
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        replicas
            .patch_status("slice", &PatchParams::default(), &patch)
            .await?;
        let has_status = |slice: Option<&ResourceSlice>| {
            slice.is_some_and(|it| !json!(it)["status"]["conditions"][0].is_null())
        };
        let what = format!("the status of {id}");
        timeout(SOON, await_condition(slices, "slice", has_status))
            .await
            .context(what)??;

        Ok(start.elapsed())
    }
}

/// Returns the tenant namespace of the consumer at a provider.
fn at_provider(index: usize) -> String {
    format!("rome-at-{index}")
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<()>
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    let object = serde_json::from_value(object).context("an object is invalid")?;
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}
