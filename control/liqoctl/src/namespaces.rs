//! The namespaces that a command names or selects.

use crate::cluster::{Cluster, list_all};
use crate::failure::if_permitted;
use crate::label_selector::LabelSelector;
use crate::parse;
use anyhow::{Result, bail};
use clap::Args;
use futures_util::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};
use std::collections::BTreeSet;

/// Number of namespaces that are changed at the same time. Each one needs a watch.
const PARALLEL: usize = 16;

/// Returns whether a namespace belongs to Kubernetes, so that it contains objects of others and is never deleted.
pub(crate) fn is_of_kubernetes(namespace: &str) -> bool {
    namespace == "default" || namespace.starts_with("kube-")
}

/// Flags that choose namespaces.
#[derive(Args, Debug, Default)]
pub(crate) struct Flags {
    /// The names of the namespaces.
    #[arg(value_name = "NAME", required_unless_present = "ns_selector", value_parser = parse::namespace)]
    names: Vec<String>,

    /// Also the namespaces with these labels, for example team=shop,stage!=test.
    #[arg(long, value_name = "SELECTOR", value_parser = LabelSelector::parse)]
    ns_selector: Option<LabelSelector>,
}

/// A namespace that a command names or selects.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) name: String,
    /// None if the user may not read it.
    pub(crate) object: Option<Namespace>,
    /// Whether the user has named it, and not only selected it by its labels.
    pub(crate) is_named: bool,
}

impl Flags {
    /// Returns the named namespaces without a request, or none if labels select some.
    pub(crate) fn offline(&self) -> Option<Vec<Chosen>> {
        let named = |name: &str| Chosen {
            name: name.to_owned(),
            object: None,
            is_named: true,
        };
        self.ns_selector
            .is_none()
            .then(|| self.names().into_iter().map(named).collect())
    }

    /// Returns the names that the user wrote, each once.
    fn names(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let names = self.names.iter().map(String::as_str);
        names.filter(|name| seen.insert(*name)).collect()
    }

    /// Reads the namespaces, named ones first.
    ///
    /// # Errors
    ///
    /// Returns an error if a named one does not exist, if none has the labels, or if the API server fails.
    pub(crate) async fn read(&self, cluster: &Cluster) -> Result<Vec<Chosen>> {
        let api = Api::<Namespace>::all(cluster.client.clone());
        let mut chosen: Vec<Chosen> = Vec::new();
        for name in self.names() {
            let read = if_permitted(cluster.get(&api, "namespace", name).await)?;
            if read == Some(None) {
                bail!(
                    "namespace {name} does not exist in {}: check its name, or create it with `kubectl create namespace {name}`",
                    cluster.place()
                );
            }
            chosen.push(Chosen {
                name: name.to_owned(),
                object: read.flatten(),
                is_named: true,
            });
        }
        let Some(selector) = &self.ns_selector else {
            return Ok(chosen);
        };
        let listed = list_all(&api, selector.text()).await;
        let listed = listed.map_err(cluster.failed("list namespaces"))?;
        if listed.is_empty() {
            bail!(
                "no namespace in {} has the labels {}: see `kubectl get namespaces --show-labels`",
                cluster.place(),
                selector.text()
            );
        }
        for namespace in listed {
            let name = namespace.name_any();
            if !chosen.iter().any(|it| it.name == name) {
                chosen.push(Chosen {
                    name,
                    object: Some(namespace),
                    is_named: false,
                });
            }
        }
        Ok(chosen)
    }
}

/// Runs `change` for each namespace. An error does not stop the others.
///
/// # Errors
///
/// Returns the errors of all namespaces.
pub(crate) async fn for_each<T, F>(
    namespaces: impl IntoIterator<Item = T>,
    change: impl Fn(T) -> F,
) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let results = stream::iter(namespaces).map(change).buffered(PARALLEL);
    let errors = results.filter_map(async |result| result.err());
    let errors: Vec<String> = errors.map(|it| format!("{it:#}")).collect().await;
    if !errors.is_empty() {
        bail!("{}", errors.join("\n"));
    }
    Ok(())
}
