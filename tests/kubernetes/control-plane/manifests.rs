//! Tests of peerings that users declare in folders of plain manifests, without `liqoctl`.

use crate::authentication::site::{self, Site};
use crate::authentication::user;
use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use crate::traces::Traces;
use anyhow::{Context as _, Result, ensure};
use control_api::{Quota, ResourceSlice, Tenant, VirtualNode};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use kube::config::Kubeconfig;
use kubernetes_lab::pki::Subject;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tokio::process::Command;

pub(crate) fn add(suite: &mut Suite) {
    serial!(suite, plain_manifests_peer_clusters_in_any_order);
}

/// Tenant namespaces may have any name.
const CONSUMERS: &str = "the-cluster-of-italy";
const PROVIDERS: &str = "resources-of-lombardy";

/// Annotation of the Secret with the kubeconfig of a provider.
const NAMESPACE: &str = "liqo.io/remote-tenant-namespace";

/// Credentials that the provider's user gives the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Credentials {
    /// A certificate of a user with this name.
    Certificate(&'static str),
    /// A token of a ServiceAccount.
    Token,
}

/// Orders of the manifests of one peering.
struct Order {
    credentials: Credentials,
    /// Indices into the manifests of the provider: namespace, Tenant, RoleBinding.
    provider: [usize; 3],
    /// Indices into the manifests of the consumer: namespace, Secret, ResourceSlice.
    consumer: [usize; 3],
    /// Whether the consumer's manifests are applied first.
    is_consumer_first: bool,
    /// Whether the manifests of the provider are deleted first.
    ends_at_provider: bool,
}

const ORDERS: [Order; 4] = [
    Order {
        credentials: Credentials::Certificate("rome"),
        provider: [0, 1, 2],
        consumer: [0, 1, 2],
        is_consumer_first: false,
        ends_at_provider: false,
    },
    // The namespaces come last, so that the first attempts fail.
    Order {
        credentials: Credentials::Token,
        provider: [2, 1, 0],
        consumer: [2, 1, 0],
        is_consumer_first: true,
        ends_at_provider: true,
    },
    Order {
        credentials: Credentials::Certificate("a user with spaces"),
        provider: [1, 0, 2],
        consumer: [2, 0, 1],
        is_consumer_first: true,
        ends_at_provider: false,
    },
    Order {
        credentials: Credentials::Token,
        provider: [0, 2, 1],
        consumer: [1, 0, 2],
        is_consumer_first: false,
        ends_at_provider: true,
    },
];

async fn plain_manifests_peer_clusters_in_any_order(_: &'static Fixture) -> Result<()> {
    let (rome, milan) = tokio::try_join!(
        Site::start("rome", "milan", &[]),
        Site::start("milan", "rome", &[]),
    )?;
    // Those that liqoctl would create.
    for site in [&rome, &milan] {
        let namespace = site.tenant_namespace();
        kubectl(site, &["delete", "namespace", &namespace]).await?;
    }
    create_account(&milan).await?;
    let traces = [Traces::before(&rome).await?, Traces::before(&milan).await?];

    for (round, order) in ORDERS.iter().enumerate() {
        let kubeconfig = kubeconfig(&milan, order.credentials).await?;
        let of_milan = provider(order.credentials);
        let of_rome = consumer(&kubeconfig);
        let there = write(&milan, round, order.provider.map(|it| &of_milan[it]))?;
        let here = write(&rome, round, order.consumer.map(|it| &of_rome[it]))?;
        let mut folders = [(&milan, &there), (&rome, &here)];
        if order.is_consumer_first {
            folders.reverse();
        }
        for (site, folder) in folders {
            apply(site, folder).await?;
        }
        until_peered(&rome, &milan)
            .await
            .with_context(|| format!("order {round}"))?;

        let mut folders = [(&rome, &here), (&milan, &there)];
        if order.ends_at_provider {
            folders.reverse();
        }
        for (site, folder) in folders {
            let folder = folder.to_string_lossy();
            kubectl(site, &["delete", "--timeout=100s", "-f", &folder])
                .await
                .with_context(|| format!("order {round}"))?;
        }
        traces[0].until_restored(&rome).await?;
        traces[1].until_restored(&milan).await?;
    }
    Ok(())
}

fn namespace(name: &str, peer: &str) -> Value {
    let labels = json!({"liqo.io/remote-cluster-id": peer, "liqo.io/tenant-namespace": "true"});
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
    })
}

/// Returns the manifests of the provider `milan`.
fn provider(credentials: Credentials) -> [Value; 3] {
    let subject = match credentials {
        Credentials::Certificate(user) => {
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user})
        }
        Credentials::Token => {
            json!({"kind": "ServiceAccount", "name": "rome", "namespace": "default"})
        }
    };
    let tenant = json!({
        "apiVersion": "authentication.liqo.io/v1beta1", "kind": "Tenant",
        "metadata": {"name": "rome", "namespace": CONSUMERS},
        "spec": {"clusterID": "rome", "authzPolicy": "TolerateNoHandshake"},
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "rome", "namespace": CONSUMERS},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "liqo-remote-controlplane",
        },
        "subjects": [subject],
    });

    [namespace(CONSUMERS, "rome"), tenant, binding]
}

/// Returns the manifests of the consumer `rome`.
fn consumer(kubeconfig: &str) -> [Value; 3] {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": "milan", "namespace": PROVIDERS,
            "labels": {"liqo.io/identity-type": "ControlPlane", "liqo.io/remote-cluster-id": "milan"},
            "annotations": {NAMESPACE: CONSUMERS},
        },
        "data": {"kubeconfig": ByteString(kubeconfig.as_bytes().to_vec())},
    });
    let slice = json!({
        "apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSlice",
        "metadata": {
            "name": "milan", "namespace": PROVIDERS,
            "labels": {
                "liqo.io/remote-cluster-id": "milan",
                "liqo.io/remoteID": "milan",
                "liqo.io/replication": "true",
            },
            "annotations": {"liqo.io/create-virtual-node": "true"},
        },
        "spec": {"class": "default", "providerClusterID": "milan", "resources": {"cpu": "2"}},
    });

    [namespace(PROVIDERS, "milan"), secret, slice]
}

async fn create_account(milan: &Site) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(milan.client.clone(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": "rome"}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    Ok(())
}

/// Returns a kubeconfig for `milan`.
async fn kubeconfig(milan: &Site, credentials: Credentials) -> Result<String> {
    let token = match credentials {
        Credentials::Certificate(user) => {
            let subject = Subject { user, group: None };
            let path = milan
                .control_plane()
                .kubeconfig_as(subject, milan.server())?;
            return fs::read_to_string(path).context("no kubeconfig");
        }
        Credentials::Token => {
            let accounts: Api<ServiceAccount> = Api::namespaced(milan.client.clone(), "default");
            let request = TokenRequest::default();
            let response = accounts
                .create_token_request("rome", &PostParams::default(), &request)
                .await?;
            response.status.context("no token")?.token
        }
    };
    let mut kubeconfig = serde_json::to_value(Kubeconfig::read_from(milan.kubeconfig())?)?;
    for entry in kubeconfig["users"].as_array_mut().context("no users")? {
        entry["user"] = json!({"token": token});
    }

    Ok(kubeconfig.to_string())
}

/// Writes manifests as files whose alphabetical order, in which kubectl applies them, is that of `manifests`.
fn write(site: &Site, round: usize, manifests: [&Value; 3]) -> Result<PathBuf> {
    let folder = site
        .control_plane()
        .folder()
        .join(format!("manifests-{round}"));
    fs::create_dir(&folder)?;
    for (index, manifest) in manifests.iter().enumerate() {
        fs::write(folder.join(format!("{index}.json")), manifest.to_string())?;
    }
    Ok(folder)
}

/// Applies a folder until kubectl succeeds, as GitOps controllers do: objects cannot precede their namespace.
async fn apply(site: &Site, folder: &Path) -> Result<()> {
    let folder = folder.to_string_lossy();
    until(Deadline::after(SOON), "kubectl apply", async || {
        kubectl(site, &["apply", "-f", &folder]).await
    })
    .await
}

pub(crate) async fn kubectl(site: &Site, words: &[&str]) -> Result<()> {
    let control_plane = site.control_plane();
    let output = Command::new(control_plane.artifacts().program("kubectl"))
        .env_clear()
        .env("HOME", control_plane.folder())
        .env("KUBECONFIG", site.kubeconfig())
        .args(words)
        .kill_on_drop(true)
        .output()
        .await?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "kubectl {words:?}: {text}");
    Ok(())
}

async fn until_peered(rome: &Site, milan: &Site) -> Result<()> {
    let nodes: Api<VirtualNode> = Api::namespaced(rome.client.clone(), PROVIDERS);
    let slices: Api<ResourceSlice> = Api::namespaced(rome.client.clone(), PROVIDERS);
    let tenants: Api<Tenant> = Api::namespaced(milan.client.clone(), CONSUMERS);
    let quotas: Api<Quota> = Api::namespaced(milan.client.clone(), CONSUMERS);
    let node = until(Deadline::after(SOON), "the VirtualNode", async || {
        let node = nodes.get_opt("milan").await?;
        let slice = slices.get_opt("milan").await?;
        let tenant = tenants.get_opt("rome").await?;
        node.with_context(|| format!("{} {}", json!(slice), json!(tenant)))
    })
    .await?;
    let tenant = json!(tenants.get("rome").await?);
    ensure!(
        tenant["status"] == json!({"tenantNamespace": CONSUMERS}),
        "{tenant}"
    );
    until(Deadline::after(SOON), "the Quota", async || {
        quotas.get("milan-a8a4c692b93b").await?;
        Ok(())
    })
    .await?;

    // The certificate that the provider issues for the slice is usable.
    let secrets: Api<Secret> = Api::namespaced(rome.client.clone(), PROVIDERS);
    let name = node.spec.kubeconfig_secret_ref.context("no Secret")?.name;
    let secret = secrets.get(&name).await?;
    let text = secret
        .data
        .and_then(|mut data| data.remove("kubeconfig"))
        .context("no kubeconfig")?;
    let client = site::client(&String::from_utf8(text.0)?).await?;
    let (name, _) = user(&client).await?;
    ensure!(name == "milan-a8a4c692b93b", "{name}");
    Ok(())
}
