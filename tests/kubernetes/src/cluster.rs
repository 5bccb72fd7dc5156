//! Creates, finds and removes clusters.

mod member;
mod ready;
mod registry;
mod up;

pub use registry::names;
pub use up::{Options, up, wait_for_starts};

use crate::node::{Node, control};
use crate::place::{self, Artifacts};
use crate::spec::{NodeSpec, Spec};
use crate::underlay::{self, Underlay};
use crate::{cgroup, kernel_settings};
use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The name of the file in a cluster's folder that exists once the cluster has been up.
const COMPLETE: &str = "complete";

/// A cluster on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// The desired state of the cluster.
    pub spec: Spec,
    /// The number of the cluster on the underlay, from 1 to 250. The number is part of the nodes'
    /// addresses.
    pub number: u8,
    /// The folder of the cluster's programs.
    pub artifacts: PathBuf,
}

impl Cluster {
    /// Finds the cluster `name`.
    ///
    /// # Errors
    ///
    /// Returns an error that lists the existing clusters.
    pub fn find(name: &str) -> Result<Self> {
        registry::find(name)
    }

    /// Returns all clusters, sorted by name. Omits clusters without a record, which only `down` can
    /// remove.
    ///
    /// # Errors
    ///
    /// Returns an error if a record is damaged.
    pub fn all() -> Result<Vec<Self>> {
        names()?
            .iter()
            .filter_map(|name| registry::read(name).transpose())
            .collect()
    }

    /// Returns the cluster's name, which is `spec.name`.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Returns the folder of the cluster's state.
    pub fn folder(&self) -> PathBuf {
        place::clusters().join(self.name())
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder().join("kubeconfig")
    }

    /// Returns whether the cluster has been up before.
    pub fn is_complete(&self) -> bool {
        self.folder().join(COMPLETE).exists()
    }

    /// Returns the programs of the cluster's version of Kubernetes.
    pub fn artifacts(&self) -> Artifacts {
        Artifacts::new(&self.artifacts)
    }

    /// Returns the specs of the nodes. The control plane is the first.
    ///
    /// # Errors
    ///
    /// Returns an error if the underlay does not exist.
    pub fn node_specs(&self) -> Result<Vec<NodeSpec>> {
        let underlay = Underlay::existing()?.context("the underlay is gone: run `up` again")?;
        Ok(NodeSpec::all(&self.spec, self.number, underlay.net()))
    }

    /// Returns handles of the nodes. The control plane is the first.
    pub fn nodes(&self) -> Vec<Node> {
        (0..self.spec.nodes)
            .map(|index| Node::of(self.name(), &self.spec.node_name(index)))
            .collect()
    }

    /// Returns the handle of a node. Index 0 is the control plane.
    pub fn node(&self, index: u8) -> Node {
        Node::of(self.name(), &self.spec.node_name(index))
    }

    /// Returns a client with the administrator's rights.
    ///
    /// # Errors
    ///
    /// Returns an error if the kubeconfig cannot be read.
    pub async fn client(&self) -> Result<Client> {
        let path = self.kubeconfig();
        let config = Kubeconfig::read_from(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
            .await
            .context("the kubeconfig is invalid")?;

        Client::try_from(config).context("failed to create a client")
    }

    /// Returns a `kubectl` command with the administrator's kubeconfig.
    pub fn kubectl(&self) -> Command {
        self.program("kubectl")
    }

    /// Returns a `helm` command with the administrator's kubeconfig.
    pub fn helm(&self) -> Command {
        self.program("helm")
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.artifacts().program(name));
        command.env("KUBECONFIG", self.kubeconfig());
        // The cache of discovery is per address of an API server. A later cluster may have the same
        // address and other resources.
        command.env("KUBECACHEDIR", self.folder().join("kubectl-cache"));
        command
    }

    /// Removes the cluster.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`remove`].
    pub fn down(&self) -> Result<()> {
        remove(self.name())
    }

    /// Returns the states of the components of each node, by the node's name.
    ///
    /// # Errors
    ///
    /// Returns an error if process 1 of a node does not reply.
    pub fn components(&self) -> Result<Vec<(String, Vec<control::State>)>> {
        self.nodes()
            .iter()
            .map(|node| {
                let states = control::send(node.name(), &control::Request::Status)?;
                Ok((node.name().to_owned(), states))
            })
            .collect()
    }
}

/// Removes the cluster `name`, even if only parts of it exist.
///
/// # Errors
///
/// Returns the errors of all parts that could not be removed. Other parts are removed nevertheless.
pub fn remove(name: &str) -> Result<()> {
    let mut failures = Vec::new();
    let cluster = registry::read(name).unwrap_or_else(|error| {
        failures.push(format!("{error:#}"));
        None
    });
    // Nodes that are not in the spec, or that have only a network namespace, are also removed.
    let mut nodes = Node::all(name)?;
    let begun = underlay::node_namespaces(name)?;
    nodes.extend(begun.iter().map(|node| Node::of(name, node)));
    for node in nodes {
        if let Err(error) = node.remove() {
            failures.push(format!("{error:#}"));
        }
    }
    if let (Some(cluster), Some(underlay)) = (cluster, Underlay::existing()?) {
        crate::fault::clear(underlay, cluster.number);
        underlay.detach_cluster(cluster.number);
    }
    anyhow::ensure!(failures.is_empty(), "{}", failures.join("; "));

    let folder = place::clusters().join(name);
    fs::remove_dir_all(&folder).with_context(|| format!("failed to remove {}", folder.display()))
}

/// Removes the underlay and the folders that clusters share, and restores the kernel settings. Does
/// nothing while a cluster exists.
///
/// # Errors
///
/// Returns an error that names the part that could not be removed.
pub fn clear_machine() -> Result<()> {
    let _lock = registry::lock()?;
    if !names()?.is_empty() {
        return Ok(());
    }
    if let Some(underlay) = Underlay::existing()? {
        underlay.remove()?;
    }
    kernel_settings::restore()?;
    cgroup::Layout::detect()?.remove("");
    let state = place::state();
    for entry in fs::read_dir(&state).context("failed to read the folder of the laboratory")? {
        let path = entry
            .context("failed to read the folder of the laboratory")?
            .path();
        let removed = match path.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        removed.with_context(|| format!("failed to remove {}", path.display()))?;
    }
    match fs::remove_dir(&state) {
        // If the folder is a mount point, it cannot be removed.
        Err(error) if error.kind() != std::io::ErrorKind::ResourceBusy => {
            Err(error).with_context(|| format!("failed to remove {}", state.display()))
        }
        _ => Ok(()),
    }
}
