//! The peers: how exports cross between the clusters, and those of peers.

use super::merge::Export;
use super::objects::{Local, service_of};
use super::properties::Properties;
use super::watches::exported;
use crate::authentication::label;
use crate::shadow_endpoint_slice::Health;
use control_api::core::foreign_cluster::PeerRole;
use control_api::{ExportedService, ForeignCluster, labels};
use control_runtime::{Cluster, Key, WatchId};

/// Largest number of Services of a peer that are imported. Each has at most 1,000 endpoints.
pub(super) const SERVICES_MAX: usize = if cfg!(test) { 8 } else { 500 };

/// A peer of this cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Peer<'a> {
    /// Cluster ID.
    pub(super) id: &'a str,
    /// The tenant namespace in this cluster.
    pub(super) namespace: &'a str,
    /// The tenant namespace in the cluster of a provider.
    remote_namespace: Option<&'a str>,
    role: PeerRole,
    /// The state of the connection.
    pub(super) health: Option<Health>,
}

impl<'a> Peer<'a> {
    /// Reads the summary of a peer; `None` if there is no tenant namespace, or if the peering has ended.
    pub(super) fn of(foreign: &'a ForeignCluster) -> Option<Self> {
        let status = foreign.status.as_ref()?;
        let namespaces = status.tenant_namespace.as_ref()?;
        if foreign.metadata.deletion_timestamp.is_some() || status.role == PeerRole::Unknown {
            return None;
        }

        Some(Self {
            id: &foreign.spec.cluster_id,
            namespace: namespaces.local.as_deref()?,
            remote_namespace: namespaces.remote.as_deref(),
            role: status.role,
            health: Health::of(foreign),
        })
    }

    /// Returns whether this cluster is a consumer of the peer, and replicates its exports there.
    pub(super) fn is_provider(&self) -> bool {
        let roles = [PeerRole::Provider, PeerRole::ConsumerAndProvider];
        roles.contains(&self.role)
    }

    /// Returns whether the peer is a consumer of this cluster, and replicates its exports here.
    fn is_consumer(&self) -> bool {
        let roles = [PeerRole::Consumer, PeerRole::ConsumerAndProvider];
        roles.contains(&self.role)
    }

    /// Returns the watch of the exports of a provider that does not replicate them here.
    pub(super) fn watch(&self) -> Option<WatchId> {
        let namespace = self.remote_namespace?;
        let is_needed = self.role == PeerRole::Provider;

        is_needed.then(|| exported(self.id, namespace))
    }
}

impl<'a> Local<'a> {
    /// Returns all peers.
    pub(super) fn peers(&self) -> impl Iterator<Item = Peer<'a>> + use<'a> {
        let clusters = self.foreign_clusters.iter();
        clusters.filter_map(|(_, foreign)| Peer::of(foreign))
    }

    /// Returns whether the exports of a peer are known. Those of a provider are not while its API server does not respond after a start.
    pub(super) fn is_known(&self, peer: &Peer<'_>) -> bool {
        let Some(watch) = peer.watch() else {
            return true;
        };

        self.cache.is_synced(&watch) || self.cache.refusal(&watch).is_some()
    }

    /// Returns the export of a Service by a peer, if it counts here.
    pub(super) fn export_of(&self, peer: &Peer<'a>, key: &Key) -> Option<&'a ExportedService> {
        let name = ExportedService::name_of(&key.namespace, &key.name, peer.id);
        let (namespace, cluster) = if peer.is_consumer() {
            (peer.namespace, Cluster::Local)
        } else {
            (peer.remote_namespace?, Cluster::remote(peer.id))
        };
        if peer.is_consumer() && self.peer_of(namespace) != Some(peer.id) {
            return None;
        }
        // A provider's own objects are no replicas. Its namespace also has those of this cluster.
        let is_of_peer = |it: &ExportedService| {
            let is_replica = label(&it.metadata, labels::REPLICATED) == Some("true");
            label(&it.metadata, labels::ORIGIN_ID) == Some(peer.id)
                && is_replica == peer.is_consumer()
        };
        let objects = self.cache.objects::<ExportedService>(&cluster);
        let exported = objects.get(&Key::new(namespace, name))?;
        let counting = objects.within(namespace).filter(|(_, it)| is_of_peer(it));
        let mut counting = counting.take(SERVICES_MAX);
        let is_valid = service_of(exported).as_ref() == Some(key)
            && is_of_peer(exported)
            && exported.metadata.deletion_timestamp.is_none();

        Some(exported).filter(|it| is_valid && counting.any(|(_, other)| std::ptr::eq(*it, other)))
    }

    /// Returns the exports of a Service by peers, each with its peer.
    pub(super) fn exports_of_peers(
        &self,
        key: &Key,
    ) -> Vec<(Peer<'a>, &'a ExportedService, Export)> {
        if !self.admits(&key.namespace) {
            return Vec::new();
        }
        let exports = self.peers().filter_map(|peer| {
            let exported = self.export_of(&peer, key)?;
            let export = Export {
                cluster: peer.id.to_owned(),
                exported_at: exported.spec.exported_at.as_ref().map(|it| it.0),
                properties: Properties::of(&exported.spec)?,
            };
            Some((peer, exported, export))
        });

        exports.collect()
    }
}
