//! Connects the planners of replication to the runtime.

use super::access;
use super::item::WorkItem;
use super::kind::Kind;
use super::object::Replication;
use super::peer::{self, Peer, provider_of};
use super::registrations::registrations;
use super::selection::provider;
use crate::authentication::cluster_id;
use control_api::ForeignCluster;
use control_api::tenant_namespace::peer_of;
use control_runtime::{
    Cache, Change, Cluster, Controller, Destinations, Env, Key, Outcome, Plan, Queue, Registration,
    Request,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Plans the replicas of this cluster's objects at its providers.
pub(crate) struct ReplicationController {
    /// Namespace of Liqo itself.
    namespace: String,
    /// Addresses at which providers may have their API servers.
    destinations: Destinations,
    /// The providers with credentials, by cluster ID.
    peers: BTreeMap<String, Peer>,
    /// Providers of which a Secret has credentials, once these have been read. Invalid ones are of no peer.
    examined: BTreeSet<String>,
    report: Report,
}

/// Receives the cluster ID of a provider that refuses the requests of this cluster, or no longer does.
pub(crate) type Report = Box<dyn Fn(&str, bool) + Send>;

impl ReplicationController {
    /// Creates the controller, with Liqo in `namespace`.
    pub(crate) fn new(namespace: String, destinations: Destinations, report: Report) -> Self {
        Self {
            report,
            namespace,
            destinations,
            peers: BTreeMap::new(),
            examined: BTreeSet::new(),
        }
    }

    /// Returns the work items of a provider and of its objects.
    fn items_of_peer(&self, id: &str, cache: &Cache) -> BTreeSet<WorkItem> {
        let mut items = BTreeSet::from([WorkItem::Peer(id.to_owned())]);
        let Some(peer) = self.peers.get(id) else {
            return items;
        };
        for kind in Kind::ALL {
            let local = kind.within(cache, &Cluster::Local, &peer.namespace);
            let remote = kind.within(cache, &Cluster::remote(id), &peer.remote_namespace);
            let names = local.into_iter().chain(remote).map(|(key, _)| &key.name);
            let keys = names.map(|name| Key::new(peer.namespace.clone(), name.clone()));
            items.extend(keys.flat_map(|key| WorkItem::both(kind, &key)));
        }

        items
    }

    fn plan_peer(&mut self, id: &str, cache: &Cache, env: &Env<'_>) -> Plan<WorkItem> {
        let Some(consumer) = cluster_id(cache, &self.namespace) else {
            return Plan::default();
        };
        let mut known = self.peers.remove(id);
        let mut plan = peer::plan(&mut known, (id, consumer), self.destinations, cache, env);
        let namespaces = BTreeSet::from_iter(peer::secrets(id, cache).map(|it| &it.namespace));
        if namespaces.is_empty() {
            self.examined.remove(id);
        } else if self.examined.insert(id.to_owned()) && known.is_none() {
            // Deletions have waited for the credentials.
            let items = namespaces.into_iter().flat_map(|it| items_in(it, cache));
            plan.requeue
                .extend(items.map(|item| (Duration::ZERO, item)));
        }
        if known.is_none() {
            (self.report)(id, false);
        }
        self.peers.extend(known.map(|peer| (id.to_owned(), peer)));

        plan
    }

    /// Returns the state of an object's replication; `None` before the ID of this cluster is known.
    fn replication<'a>(
        &'a self,
        kind: Kind,
        key: &'a Key,
        cache: &'a Cache,
    ) -> Option<Replication<'a>> {
        let labelled = kind.metadata(cache, key).and_then(provider);
        let mut connected = self.peers.iter();
        let of_namespace = connected.find(|(_, peer)| peer.namespace == key.namespace);
        let provider = labelled.or_else(|| of_namespace.map(|(id, _)| id.as_str()));
        let peer = provider.and_then(|id| self.peers.get(id));
        let provider = provider.unwrap_or_default();
        let is_examined =
            peer::secrets(provider, cache).next().is_none() || self.examined.contains(provider);

        Some(Replication {
            cache,
            consumer: cluster_id(cache, &self.namespace)?,
            provider,
            peer: peer.filter(|peer| peer.namespace == key.namespace),
            is_known: is_examined && cache.is_listed::<Secret>(&Cluster::Local, &key.namespace),
            kind,
            key,
        })
    }

    /// Returns the work items of an object, or of a replica, which has the name of the object.
    fn items_of_object(&self, kind: Kind, change: &Change<'_>) -> BTreeSet<WorkItem> {
        let object = change.object;
        let mut items = BTreeSet::new();
        match &object.cluster {
            Cluster::Local => {
                items.extend(WorkItem::both(kind, &object.key));
                // A connection without Secret ends with the last object, and exports have a watch of their own.
                let of_namespace = self
                    .peers
                    .iter()
                    .filter(|(_, peer)| peer.namespace == object.key.namespace);
                if change.entry().is_none() || kind == Kind::ExportedService {
                    items.extend(of_namespace.map(|(id, _)| WorkItem::Peer(id.clone())));
                }
            }
            Cluster::Remote(id) => {
                let peer = self.peers.get(&**id);
                let key =
                    peer.map(|peer| Key::new(peer.namespace.clone(), object.key.name.clone()));
                items.extend(key.iter().flat_map(|key| WorkItem::both(kind, key)));
            }
        }

        items
    }
}

impl Controller for ReplicationController {
    type Item = WorkItem;
    const NAME: &'static str = "replication";
    const FIELD_MANAGER: &'static str = "replication.liqo.io";

    fn resources(&self) -> Vec<Registration> {
        registrations(&self.namespace)
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<WorkItem> {
        let items = if let Some(kind) = Kind::of(&change.object.resource) {
            self.items_of_object(kind, change)
        } else if change.is::<Secret>() {
            let states = [change.before::<Secret>(), change.after::<Secret>()];
            let states = states.into_iter().flatten();
            let providers: BTreeSet<_> =
                states.filter_map(|it| provider_of(&it.metadata)).collect();
            for provider in &providers {
                self.examined.remove(*provider);
            }
            let providers = providers.into_iter();
            providers
                .flat_map(|id| self.items_of_peer(id, cache))
                .collect()
        } else if change.is::<Namespace>() {
            let peer = |it: Option<&'_ Namespace>| {
                it.and_then(|it| peer_of(&it.metadata)).map(str::to_owned)
            };
            let states = BTreeSet::from([peer(change.before()), peer(change.after())]);
            let is_moved = states.len() > 1;
            let peers = states.iter().flatten().filter(|_| is_moved);
            peers.flat_map(|id| self.items_of_peer(id, cache)).collect()
        } else if change.is::<ForeignCluster>() {
            self.items_of_peer(&change.object.key.name, cache)
        } else if change.is::<ConfigMap>() {
            // The cluster ID, without which no provider is connected to.
            let secrets = cache.objects::<Secret>(&Cluster::Local);
            let providers = secrets
                .iter()
                .filter_map(|(_, secret)| provider_of(&secret.metadata));
            let mut ids: BTreeSet<&str> = providers.collect();
            ids.extend(self.peers.keys().map(String::as_str));
            ids.into_iter()
                .flat_map(|id| self.items_of_peer(id, cache))
                .collect()
        } else {
            BTreeSet::new()
        };

        Vec::from_iter(items)
    }

    fn listed(&mut self, id: &control_runtime::WatchId, cache: &Cache) -> Vec<WorkItem> {
        let items = match &id.cluster {
            Cluster::Remote(peer) => self.items_of_peer(peer, cache),
            // Without credentials, objects that are being deleted wait for nothing.
            Cluster::Local => items_in(id.namespace.as_deref().unwrap_or_default(), cache),
        };

        Vec::from_iter(items)
    }

    fn refused(&mut self, id: &control_runtime::WatchId, cache: &Cache) -> Vec<WorkItem> {
        let is_optional = id.resource == Kind::ExportedService.resource();
        match &id.cluster {
            // Exports that are being deleted wait for no replica.
            Cluster::Remote(peer) if is_optional => Vec::from_iter(self.items_of_peer(peer, cache)),
            Cluster::Remote(_) | Cluster::Local => Vec::new(),
        }
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        match item {
            WorkItem::Peer(id) => self.plan_peer(id, cache, env),
            WorkItem::Object(kind, key) => self
                .replication(*kind, key, cache)
                .map(|it| it.plan_object(env))
                .unwrap_or_default(),
            WorkItem::Replica(kind, key) => self
                .replication(*kind, key, cache)
                .map(|it| it.plan_replica(env))
                .unwrap_or_default(),
        }
    }

    fn done(
        &mut self,
        _item: &WorkItem,
        request: &Request,
        outcome: &Outcome,
        cache: &Cache,
    ) -> Vec<WorkItem> {
        let Cluster::Remote(id) = request.cluster() else {
            return Vec::new();
        };
        let Some(peer) = self.peers.get_mut(&**id) else {
            return Vec::new();
        };
        let is_review = request.object().map(|it| &it.resource) == Some(&access::reviews());
        let is_optional =
            request.object().map(|it| &it.resource) == Some(&Kind::ExportedService.resource());
        let has_changed = match is_review {
            true => peer.access.take(outcome),
            // A provider may serve everything but exports.
            false => !is_optional && peer.access.refuse(request, outcome),
        };
        let is_refused = peer.access.refused().is_some();
        let is_concerned = peer.trust(outcome) || has_changed;
        if has_changed {
            (self.report)(id, is_refused);
        }
        if is_concerned {
            return Vec::from_iter(self.items_of_peer(id, cache));
        }
        let is_awaited = is_review && is_refused;

        Vec::from_iter(is_awaited.then(|| WorkItem::Peer(id.to_string())))
    }

    fn queue(item: &WorkItem) -> Queue {
        match item {
            WorkItem::Peer(id) => Queue(id.clone()),
            WorkItem::Object(_, key) => Queue(key.namespace.clone()),
            WorkItem::Replica(_, key) => Queue(format!("replicas of {}", key.namespace)),
        }
    }

    fn item_kind(item: &WorkItem) -> &'static str {
        item.kind()
    }
}

/// Returns the work items of the objects in a namespace of this cluster.
fn items_in(namespace: &str, cache: &Cache) -> BTreeSet<WorkItem> {
    let kinds = Kind::ALL.into_iter();
    let items = kinds.flat_map(|kind| {
        let objects = kind.within(cache, &Cluster::Local, namespace).into_iter();
        objects.flat_map(move |(key, _)| WorkItem::both(kind, key))
    });
    items.collect()
}
