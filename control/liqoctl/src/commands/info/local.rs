//! The report of an installation.

use super::aggregated::{self, Excess};
use super::boxes::{Item, draw};
use super::render::{self, Health, Networks};
use super::unreflected::{self, Unreflected};
use super::virtual_nodes::{self, Summary};
use super::{exposed, foreign};
use crate::cluster::{Cluster, Installation};
use crate::daemon_sets::{self, Exposed};
use crate::failure::if_permitted;
use crate::manager;
use crate::progress;
use anyhow::Result;
use control_api::Network;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Map, Value, json};

/// The report of `liqoctl info`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(super) cluster_id: String,
    pub(super) version: String,
    pub(super) labels: Vec<(String, String)>,
    pub(super) api_server: String,
    pub(super) health: Health,
    pub(super) networks: Option<Networks>,
    pub(super) peers: Vec<Peer>,
    pub(super) virtual_nodes: Vec<Summary>,
    /// DaemonSets whose pods would be scheduled on virtual nodes.
    pub(super) daemon_sets: Vec<Exposed>,
    /// Objects that were not reflected.
    pub(super) unreflected: Vec<Unreflected>,
    /// ClusterRoles that give consumers rights which they must not have.
    pub(super) excess: Vec<Excess>,
}

/// Parts of the report that are read on request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    /// The CIDRs.
    pub(super) network: bool,
    /// The virtual nodes with their pods, DaemonSets, and objects that were not reflected.
    pub(super) workloads: bool,
}

/// Summary of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) id: String,
    pub(super) role: String,
    pub(super) networking: String,
    pub(super) authentication: String,
    pub(super) offloading: String,
}

/// Reads the objects of the report.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn collect(
    cluster: &Cluster,
    installation: &Installation,
    parts: Parts,
) -> Result<Report> {
    let namespace = &installation.namespace;
    let pods = Api::<Pod>::namespaced(cluster.client.clone(), namespace);
    let (manager, pods, foreign, workloads) = tokio::try_join!(
        manager::find(cluster, namespace),
        cluster.list(&pods, "Pods", ""),
        foreign_clusters(cluster),
        workloads(cluster, parts),
    )?;
    let argument = |flag| {
        manager
            .as_ref()
            .and_then(|manager| manager::argument(manager, flag))
    };
    let api_server = manager::api_server(cluster, manager.as_ref()).await;
    let networks = if parts.network {
        let api = Api::<Network>::namespaced(cluster.client.clone(), namespace);
        let (networks, warnings) = render::networks(&cluster.list(&api, "Networks", "").await?);
        warnings.iter().for_each(progress::warn);
        Some(networks)
    } else {
        None
    };
    Ok(Report {
        cluster_id: installation.cluster_id.clone(),
        version: manager.as_ref().and_then(manager::tag).unwrap_or_default(),
        labels: render::labels(&argument("--cluster-labels").unwrap_or_default()),
        api_server,
        health: render::health(&pods),
        networks,
        peers: foreign.iter().map(peer).collect(),
        ..workloads
    })
}

/// Returns a report with what concerns workloads only.
async fn workloads(cluster: &Cluster, parts: Parts) -> Result<Report> {
    if !parts.workloads {
        return Ok(Report::default());
    }
    let daemon_sets = async { if_permitted(daemon_sets::find(cluster).await) };
    let (virtual_nodes, daemon_sets, unreflected, excess) = tokio::try_join!(
        virtual_nodes::all(cluster),
        daemon_sets,
        unreflected::find(cluster),
        aggregated::find(cluster),
    )?;
    Ok(Report {
        virtual_nodes,
        daemon_sets: daemon_sets.unwrap_or_default(),
        unreflected,
        excess,
        ..Report::default()
    })
}

/// Lists the ForeignClusters in the order of their cluster IDs.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn foreign_clusters(cluster: &Cluster) -> Result<Vec<DynamicObject>> {
    let gvk = GroupVersionKind::gvk("core.liqo.io", "v1beta1", "ForeignCluster");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "foreignclusters");
    let api = Api::<DynamicObject>::all_with(cluster.client.clone(), &resource);
    let mut found = cluster.list(&api, "ForeignClusters", "").await?;
    found.sort_by_key(foreign::id);
    Ok(found)
}

pub(super) fn peer(object: &DynamicObject) -> Peer {
    let status = |module| foreign::module(object, module).status.to_owned();
    Peer {
        id: foreign::id(object),
        role: foreign::role(object),
        networking: status("networking"),
        authentication: status("authentication"),
        offloading: status("offloading"),
    }
}

impl Report {
    /// Returns the report for `-o` and `--get`.
    pub(crate) fn value(&self) -> Value {
        let labels: Map<String, Value> = self
            .labels
            .iter()
            .map(|(key, value)| (key.clone(), value.as_str().into()))
            .collect();
        let peers: Vec<Value> = self.peers.iter().map(Peer::value).collect();
        let mut value = json!({
            "health": self.health.value(),
            "local": {
                "clusterID": self.cluster_id,
                "version": self.version,
                "labels": labels,
                "APIServerAddr": self.api_server,
            },
            "peerings": {"peers": peers},
        });
        if let Some(networks) = &self.networks {
            value["network"] = networks.value();
        }
        if !self.virtual_nodes.is_empty() {
            value["virtualNodes"] = self.virtual_nodes.iter().map(Summary::value).collect();
        }
        if !self.daemon_sets.is_empty() {
            value["daemonSets"] = exposed::value(&self.daemon_sets);
        }
        if !self.unreflected.is_empty() {
            value["notReflected"] = unreflected::value(&self.unreflected);
        }
        if !self.excess.is_empty() {
            value["excessiveRights"] = aggregated::value(&self.excess);
        }
        value
    }

    /// Returns the report as boxes of text.
    ///
    /// # Errors
    ///
    /// Returns an error if a patch cannot be written as YAML.
    pub(crate) fn boxes(&self) -> Result<String> {
        let mut local = vec![
            Item::entry("Cluster ID", &self.cluster_id),
            Item::entry("Version", &self.version),
            Item::entry("K8s API server", &self.api_server),
        ];
        if !self.labels.is_empty() {
            let labels = self.labels.iter();
            let labels = labels.map(|(key, value)| Item::entry(key, value)).collect();
            local.push(Item::section("Cluster labels", labels));
        }
        let peers: Vec<Item> = self.peers.iter().map(Peer::item).collect();
        let mut text = draw("Local installation info", &local);
        text += &draw("Installation health", &self.health.items());
        if let Some(networks) = &self.networks {
            text += &draw("Network", &networks.items());
        }
        text += &draw("Active peerings", &peers);
        if !self.virtual_nodes.is_empty() {
            let nodes: Vec<Item> = self.virtual_nodes.iter().map(Summary::item).collect();
            text += &draw("Virtual nodes", &nodes);
        }
        if !self.daemon_sets.is_empty() {
            let items = exposed::items(&self.daemon_sets)?;
            text += &draw("DaemonSets without node affinity", &items);
        }
        if !self.unreflected.is_empty() {
            let items = unreflected::items(&self.unreflected);
            text += &draw("Objects that were not reflected in the last hour", &items);
        }
        if !self.excess.is_empty() {
            let items = aggregated::items(&self.excess);
            text += &draw("Excessive rights of consumers", &items);
        }
        Ok(text)
    }
}

impl Peer {
    fn value(&self) -> Value {
        json!({
            "clusterID": self.id,
            "role": self.role,
            "networkingStatus": self.networking,
            "authenticationStatus": self.authentication,
            "offloadingStatus": self.offloading,
        })
    }

    fn item(&self) -> Item {
        Item::section(
            &self.id,
            vec![
                Item::entry("Role", &self.role),
                Item::entry("Networking status", &self.networking),
                Item::entry("Authentication status", &self.authentication),
                Item::entry("Offloading status", &self.offloading),
            ],
        )
    }
}

#[cfg(test)]
mod tests;
