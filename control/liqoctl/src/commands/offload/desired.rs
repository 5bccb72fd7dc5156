//! The NamespaceOffloading that the flags describe. PURE.

use super::OFFLOADING;
use crate::label_selector::LabelSelector;
use crate::manifest;
use crate::namespaces::Chosen;
use crate::parse::NAME_MAX;
use anyhow::{Result, bail};
use clap::ValueEnum;
use control_api::NamespaceOffloading;
use control_api::offloading::namespace_offloading::{
    NamespaceMappingStrategy, PodOffloadingStrategy,
};
use serde_json::{Value, json};

/// How remote namespaces are named.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[value(rename_all = "PascalCase")]
#[expect(clippy::enum_variant_names, reason = "upstream's values")]
pub(super) enum MappingStrategy {
    /// As the local namespace, followed by the local cluster ID.
    DefaultName,
    /// As the local namespace.
    EnforceSameName,
    /// As --remote-namespace-name.
    SelectedName,
}

/// Where the pods of an offloaded namespace run.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[value(rename_all = "PascalCase")]
pub(super) enum PodStrategy {
    /// On nodes of the local cluster only. Its Services are reflected to the selected clusters.
    Local,
    /// In the selected clusters only.
    Remote,
    /// In the local cluster and the selected clusters.
    LocalAndRemote,
}

/// The content of the object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Desired<'a> {
    pub(super) mapping: MappingStrategy,
    pub(super) pods: PodStrategy,
    /// Set with [`MappingStrategy::SelectedName`] only.
    pub(super) remote_name: Option<&'a str>,
    pub(super) selectors: &'a [LabelSelector],
}

impl Desired<'_> {
    /// Returns the object for a namespace.
    pub(super) fn manifest(&self, namespace: &str) -> Value {
        let terms: Vec<Value> = self.selectors.iter().map(LabelSelector::term).collect();
        let mut spec = json!({
            "clusterSelector": {"nodeSelectorTerms": terms},
            "namespaceMappingStrategy": self.mapping(),
            "podOffloadingStrategy": self.pods(),
        });
        if let Some(name) = self.remote_name {
            spec["remoteNamespaceName"] = name.into();
        }
        json!({
            "apiVersion": manifest::OFFLOADING,
            "kind": "NamespaceOffloading",
            "metadata": {"name": OFFLOADING, "namespace": namespace},
            "spec": spec,
        })
    }

    /// Checks the names of the remote namespaces. The local cluster ID is a part of some of them.
    ///
    /// # Errors
    ///
    /// Returns an error if a name is too long, or if several namespaces get the same name.
    pub(super) fn check_names(&self, chosen: &[Chosen], id: Option<&str>) -> Result<()> {
        if let (Some(name), [_, _, ..]) = (self.remote_name, chosen) {
            bail!(
                "--remote-namespace-name {name} is for one namespace, and {} are chosen: run the command for each with another name",
                chosen.len()
            );
        }
        let Some(id) = id.filter(|_| self.mapping == MappingStrategy::DefaultName) else {
            return Ok(());
        };
        let too_long = |it: &&Chosen| it.name.len() + 1 + id.len() > NAME_MAX;
        if let Some(Chosen { name, .. }) = chosen.iter().find(too_long) {
            bail!(
                "the remote namespace {name}-{id} would exceed {NAME_MAX} characters: choose a name with --namespace-mapping-strategy SelectedName --remote-namespace-name NAME"
            );
        }
        Ok(())
    }

    /// Checks that the fields are equal which cannot be changed.
    ///
    /// # Errors
    ///
    /// Returns an error with the field and the remedy.
    pub(super) fn check_immutable(
        &self,
        namespace: &str,
        existing: &NamespaceOffloading,
    ) -> Result<()> {
        // An object that is being deleted is replaced by a new one.
        if existing.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let remedy = |flag: &str, value: &str| {
            format!(
                "set {flag} {value} to keep it, or run `liqoctl unoffload namespace {namespace}` first, which deletes the objects of the namespace in other clusters"
            )
        };
        let mapping = mapping(existing.spec.namespace_mapping_strategy.unwrap_or_default());
        if mapping != self.mapping {
            bail!(
                "spec.namespaceMappingStrategy of NamespaceOffloading {namespace}/{OFFLOADING} is {mapping:?} and cannot be changed to {:?}: {}",
                self.mapping,
                remedy("--namespace-mapping-strategy", &format!("{mapping:?}")),
            );
        }
        let current = existing.spec.remote_namespace_name.as_deref();
        if let (Some(desired), Some(current)) = (self.remote_name, current)
            && desired != current
        {
            bail!(
                "spec.remoteNamespaceName of NamespaceOffloading {namespace}/{OFFLOADING} is {current} and cannot be changed to {desired}: {}",
                remedy("--remote-namespace-name", current),
            );
        }
        Ok(())
    }

    fn mapping(&self) -> NamespaceMappingStrategy {
        match self.mapping {
            MappingStrategy::DefaultName => NamespaceMappingStrategy::DefaultName,
            MappingStrategy::EnforceSameName => NamespaceMappingStrategy::EnforceSameName,
            MappingStrategy::SelectedName => NamespaceMappingStrategy::SelectedName,
        }
    }

    fn pods(&self) -> PodOffloadingStrategy {
        match self.pods {
            PodStrategy::Local => PodOffloadingStrategy::Local,
            PodStrategy::Remote => PodOffloadingStrategy::Remote,
            PodStrategy::LocalAndRemote => PodOffloadingStrategy::LocalAndRemote,
        }
    }
}

fn mapping(strategy: NamespaceMappingStrategy) -> MappingStrategy {
    match strategy {
        NamespaceMappingStrategy::DefaultName => MappingStrategy::DefaultName,
        NamespaceMappingStrategy::EnforceSameName => MappingStrategy::EnforceSameName,
        NamespaceMappingStrategy::SelectedName => MappingStrategy::SelectedName,
    }
}
