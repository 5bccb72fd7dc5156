//! `liqoctl info pod`: the chain from a pod of an offloaded namespace to its remote pod, and where it is broken.
//!
//! ```text
//! read      the objects of both clusters (IO)
//! facts     these objects
//! chain     the links, and how they are shown
//! local     the links in this cluster: scheduling, virtual node, namespace
//! provider  the links to the ShadowPod; remote: the remote pod and the network
//! events    the newest Event about an object
//! ```

mod chain;
mod events;
mod facts;
mod link;
mod local;
mod provider;
mod read;
mod remote;

use crate::cluster::{Cluster, Installation};
use crate::parse;
use anyhow::{Result, bail};
use chain::Chain;
use serde_json::Value;
use std::time::Duration;

/// Default limit of the requests to the provider.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of the name of a pod: a DNS subdomain.
const NAME_MAX: usize = 253;

/// A pod as users name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    namespace: Option<String>,
    name: String,
}

impl Named {
    /// Parses `NAMESPACE/NAME` or `NAME`.
    ///
    /// # Errors
    ///
    /// Returns an error if a part is no name of Kubernetes.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(parse::namespace(namespace)?), name),
            None => (None, text),
        };
        let is_inner =
            |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || matches!(it, '-' | '.');
        let is_bounded = name.starts_with(|it: char| it.is_ascii_alphanumeric());
        if !is_bounded || name.len() > NAME_MAX || !name.chars().all(is_inner) {
            return Err("write it as NAMESPACE/NAME, or as NAME with --namespace".to_owned());
        }
        Ok(Self {
            namespace,
            name: name.to_owned(),
        })
    }

    /// Returns the namespace: the one of the name, else the one of the flag, else the default of the kubeconfig.
    ///
    /// # Errors
    ///
    /// Returns an error if name and flag contradict each other.
    fn namespace<'a>(&'a self, flag: Option<&str>, default: &'a str) -> Result<&'a str> {
        match (&self.namespace, flag) {
            (Some(namespace), Some(flag)) if namespace != flag => bail!(
                "the pod is in namespace {namespace} by its name and in {flag} by --namespace: use one of them"
            ),
            (Some(namespace), _) => Ok(namespace),
            (None, _) => Ok(default),
        }
    }
}

/// The report of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report(Chain);

/// Reads the objects of the report. `flag` is the value of `--namespace`; `limit` bounds the requests to the provider.
///
/// # Errors
///
/// Returns an error if the pod does not exist, or if the API server of the local cluster fails.
pub(super) async fn collect(
    cluster: &Cluster,
    installation: &Installation,
    (named, flag): (&Named, Option<&str>),
    limit: Duration,
) -> Result<Report> {
    let namespace = named.namespace(flag, &cluster.namespace)?;
    let facts = read::facts(cluster, installation, (namespace, &named.name), limit).await?;
    Ok(Report(Chain::of(&facts)))
}

impl Report {
    /// Returns the report for `-o` and `--get`.
    pub(super) fn value(&self) -> Value {
        self.0.value()
    }

    /// Returns the report as a box of text.
    pub(super) fn boxes(&self) -> String {
        self.0.boxes()
    }

    /// Fails if the chain is not whole, so that scripts know it.
    ///
    /// # Errors
    ///
    /// Returns the first broken link and its reason.
    pub(super) fn check(&self) -> Result<()> {
        match self.0.summary() {
            Some(summary) => bail!(summary),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
