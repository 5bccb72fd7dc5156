//! Clusters: made, found again, removed.

mod member;
mod ready;
mod registry;
mod up;

pub use registry::names;
pub use up::{Options, settle, up};

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

/// Made in a cluster's folder when it has come up.
const COMPLETE: &str = "complete";

/// A cluster of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// What it is to be.
    pub spec: Spec,
    /// Its number on the underlay, from 1 to 250.
    pub number: u8,
    /// Where its programs are.
    pub artifacts: PathBuf,
}

impl Cluster {
    /// The cluster called `name`.
    ///
    /// # Errors
    ///
    /// Returns an error that lists the clusters there are.
    pub fn find(name: &str) -> Result<Self> {
        registry::find(name)
    }

    /// All clusters, by name; those without a record, which `down` removes, are left out.
    ///
    /// # Errors
    ///
    /// Returns an error if one's record is damaged.
    pub fn all() -> Result<Vec<Self>> {
        names()?
            .iter()
            .filter_map(|name| registry::read(name).transpose())
            .collect()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Its folder.
    pub fn folder(&self) -> PathBuf {
        place::clusters().join(self.name())
    }

    /// The kubeconfig of its administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder().join("kubeconfig")
    }

    /// Whether it has come up once.
    pub fn is_complete(&self) -> bool {
        self.folder().join(COMPLETE).exists()
    }

    /// Its programs.
    pub fn artifacts(&self) -> Artifacts {
        Artifacts::new(&self.artifacts)
    }

    /// Its nodes, the control plane first.
    ///
    /// # Errors
    ///
    /// Returns an error if the underlay is gone.
    pub fn node_specs(&self) -> Result<Vec<NodeSpec>> {
        let underlay = Underlay::existing()?.context("the underlay is gone: run `up` again")?;
        Ok(NodeSpec::all(&self.spec, self.number, underlay.net()))
    }

    /// Its nodes on this machine, the control plane first.
    pub fn nodes(&self) -> Vec<Node> {
        (0..self.spec.nodes)
            .map(|index| Node::of(self.name(), &self.spec.node_name(index)))
            .collect()
    }

    /// Its `index`th node, 0 being the control plane.
    pub fn node(&self, index: u8) -> Node {
        Node::of(self.name(), &self.spec.node_name(index))
    }

    /// A client that may do everything.
    ///
    /// # Errors
    ///
    /// Returns an error if its kubeconfig cannot be read.
    pub async fn client(&self) -> Result<Client> {
        let path = self.kubeconfig();
        let config = Kubeconfig::read_from(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
            .await
            .context("the kubeconfig is no use")?;

        Client::try_from(config).context("failed to make a client")
    }

    /// A call of its `kubectl`, as its administrator.
    pub fn kubectl(&self) -> Command {
        self.program("kubectl")
    }

    /// A call of `helm`, as its administrator.
    pub fn helm(&self) -> Command {
        self.program("helm")
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.artifacts().program(name));
        command.env("KUBECONFIG", self.kubeconfig());
        command
    }

    /// Removes it.
    ///
    /// # Errors
    ///
    /// As [`remove`].
    pub fn down(&self) -> Result<()> {
        remove(self.name())
    }

    /// The components of its nodes, by node.
    ///
    /// # Errors
    ///
    /// Returns an error if a node does not answer.
    pub fn components(&self) -> Result<Vec<(String, Vec<control::State>)>> {
        self.nodes()
            .iter()
            .map(|node| {
                let states = control::ask(node.name(), &control::Request::Status)?;
                Ok((node.name().to_owned(), states))
            })
            .collect()
    }
}

/// Removes the cluster called `name`, also one of which little is left.
///
/// # Errors
///
/// Returns all that could not be removed; the rest is removed all the same.
pub fn remove(name: &str) -> Result<()> {
    let mut failures = Vec::new();
    let cluster = registry::read(name).unwrap_or_else(|error| {
        failures.push(format!("{error:#}"));
        None
    });
    // Also nodes that it should not have, and those that have only a namespace yet.
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

/// Removes what belongs to no cluster: underlay, settings, folders. Does nothing while
/// there is a cluster.
///
/// # Errors
///
/// Returns an error that names what could not be removed.
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
    for entry in fs::read_dir(&state).context("failed to read the laboratory's folder")? {
        let path = entry
            .context("failed to read the laboratory's folder")?
            .path();
        let removed = match path.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        removed.with_context(|| format!("failed to remove {}", path.display()))?;
    }
    match fs::remove_dir(&state) {
        // A disk of its own may be mounted there.
        Err(error) if error.kind() != std::io::ErrorKind::ResourceBusy => {
            Err(error).with_context(|| format!("failed to remove {}", state.display()))
        }
        _ => Ok(()),
    }
}
