//! The consumer and the provider, with Liqo.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::{Api, Client};
use kubernetes_lab::cluster::{self, Cluster};
use kubernetes_lab::liqo::Release;
use kubernetes_lab::manifest;
use kubernetes_lab::spec::Spec;
use kubernetes_lab::suite;
use kubernetes_lab::wait::{Deadline, SOON, until};
use serde_json::json;

pub(crate) const ROME: &str = "bench-rome";
pub(crate) const MILAN: &str = "bench-milan";

/// Namespaces of the provider's own pods, of offloaded pods, and of the consumer's own pods.
pub(crate) const NATIVE: &str = "native";
pub(crate) const OFFLOADED: &str = "offloaded";
pub(crate) const LOCAL: &str = "local";

/// Room for all batches.
const SLICE: [&str; 3] = ["--cpu=8", "--memory=8Gi", "--pods=20000"];

/// Pods of a simulated node.
const HOLLOW_PODS: u32 = 100;

/// The nodes of the provider.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nodes {
    hollow: u16,
}

impl Nodes {
    /// Simulated nodes for a number of pods, besides real ones.
    pub(crate) fn hollow(pods: u32) -> Self {
        let hollow = pods.div_ceil(HOLLOW_PODS).try_into().unwrap_or(u16::MAX);
        Self { hollow }
    }
}

/// A cluster, with a client of its administrator.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
}

/// Both clusters.
pub(crate) struct Pair {
    pub(crate) release: Release,
    pub(crate) rome: Site,
    pub(crate) milan: Site,
}

impl Pair {
    /// Creates the clusters, and installs Liqo.
    pub(crate) async fn create(nodes: Nodes) -> Result<Self> {
        let release = Release::from_environment()?;
        let mut milan = Spec::new(MILAN);
        milan.hollow = nodes.hollow;
        let clusters = suite::up(vec![Spec::new(ROME), milan])?;
        let mut sites = Vec::new();
        for cluster in clusters {
            release.load_images(&cluster)?;
            release.install(&cluster, &[])?;
            let client = cluster.client().await?;
            sites.push(Site { cluster, client });
        }
        let [rome, milan] = <[Site; 2]>::try_from(sites)
            .ok()
            .context("a cluster is missing")?;

        Ok(Self {
            release,
            rome,
            milan,
        })
    }

    /// Peers the clusters, and waits until the virtual node is ready.
    pub(crate) async fn peer(&self, flags: &[&str]) -> Result<()> {
        let words = ["peer", "--skip-confirm"];
        self.both(&[&words, &SLICE[..], flags].concat())?;
        self.until_node_is_ready(MILAN).await
    }

    /// Creates and offloads the namespace of batches.
    pub(crate) async fn offload(&self) -> Result<()> {
        self.rome.namespace(OFFLOADED).await?;
        let strategy = "--pod-offloading-strategy=Remote";
        self.liqoctl(&["offload", "namespace", OFFLOADED, strategy])
    }

    /// Ends the offloading of this namespace, and deletes it.
    pub(crate) async fn unoffload(&self) -> Result<()> {
        self.liqoctl(&["unoffload", "namespace", OFFLOADED, "--skip-confirm"])?;
        self.rome.delete_namespace(OFFLOADED).await
    }

    /// Ends the peering.
    pub(crate) fn unpeer(&self) -> Result<()> {
        self.both(&["unpeer", "--skip-confirm"]).map(drop)
    }

    /// Runs `liqoctl` at the consumer.
    pub(crate) fn liqoctl(&self, words: &[&str]) -> Result<()> {
        self.release.liqoctl(&self.rome.cluster, words).map(drop)
    }

    fn both(&self, words: &[&str]) -> Result<String> {
        let remote = self.milan.cluster.kubeconfig();
        let remote = format!("--remote-kubeconfig={}", remote.display());
        let words = [words, &[&remote]].concat();
        self.release.liqoctl(&self.rome.cluster, &words)
    }

    async fn until_node_is_ready(&self, name: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.rome.client.clone());
        until(Deadline::after(SOON), "the virtual node", async || {
            let node = nodes.get(name).await?;
            ensure!(is_ready(&node), "it is not ready");
            Ok(())
        })
        .await
    }
}

impl Site {
    /// Creates a namespace.
    pub(crate) async fn namespace(&self, name: &str) -> Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        manifest::apply(&self.client, &[object], None).await
    }

    /// Deletes a namespace, and waits until it is gone.
    pub(crate) async fn delete_namespace(&self, name: &str) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        until(
            Deadline::after(SOON),
            "a namespace to be gone",
            async || {
                if let Some(found) = namespaces.get_opt(name).await? {
                    if found.metadata.deletion_timestamp.is_none() {
                        namespaces.delete(name, &Default::default()).await?;
                    }
                    anyhow::bail!("{name} exists");
                }
                Ok(())
            },
        )
        .await
    }
}

pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Removes the clusters that exist.
pub(crate) fn remove() -> Result<()> {
    let names = cluster::names()?;
    for name in names
        .iter()
        .filter(|it| [ROME, MILAN].contains(&it.as_str()))
    {
        cluster::remove(name)?;
    }

    Ok(())
}
