//! Connects the plan of exports and imports to the runtime.

use super::item::WorkItem;
use super::objects::Local;
use super::observe::{all_items, items_of, items_within};
use super::peers::Peer;
use super::plan;
use super::registrations::registrations;
use super::settings::Settings;
use super::watches::{all, within};
use crate::authentication::warn;
use crate::shadow_endpoint_slice::Metrics;
use control_api::{ExportedService, ForeignCluster, ServiceExport, ServiceImport};
use control_runtime::{
    Cache, Change, Cluster, Controller, Env, Key, Plan, Queue, Ref, Registration, Resource,
    WatchChange, WatchId,
};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Plans the exports of this cluster's Services, and the imports of all.
pub(crate) struct MultiClusterController {
    settings: Settings,
    metrics: Metrics,
    /// The namespaces whose Services and EndpointSlices are watched.
    followed: BTreeSet<String>,
    /// The watch of each provider's exports.
    providers: BTreeMap<String, WatchId>,
    /// Number of addresses that the last plan of a Service left out.
    dropped: BTreeMap<Key, usize>,
}

impl MultiClusterController {
    /// Creates the controller.
    pub(crate) fn new(settings: Settings, metrics: Metrics) -> Self {
        Self {
            settings,
            metrics,
            followed: BTreeSet::new(),
            providers: BTreeMap::new(),
            dropped: BTreeMap::new(),
        }
    }

    /// Plans the watches of a namespace: it has ServiceExports.
    fn plan_namespace(&mut self, namespace: &str, cache: &Cache) -> Plan<WorkItem> {
        let local = Local::new(cache, &self.settings);
        let mut plan = Plan::default();
        let is_needed = local.exports.within(namespace).next().is_some();
        let watches = [
            within::<Service>(namespace),
            within::<EndpointSlice>(namespace),
        ];
        if is_needed && self.followed.insert(namespace.to_owned()) {
            plan.watches.extend(watches.map(WatchChange::Add));
        } else if !is_needed && self.followed.remove(namespace) {
            plan.watches.extend(watches.map(WatchChange::Remove));
        }

        plan
    }

    /// Plans the watch of a provider's exports.
    fn plan_peer(&mut self, id: &str, cache: &Cache) -> Plan<WorkItem> {
        let local = Local::new(cache, &self.settings);
        let mut plan = Plan::default();
        let foreign = local.foreign_clusters.get(&Key::cluster(id));
        let peer = foreign.and_then(Peer::of);
        let needed = peer.and_then(|peer| peer.watch());
        let present = self.providers.get(id).cloned();
        if needed == present {
            return plan;
        }
        plan.watches.extend(present.map(WatchChange::Remove));
        self.providers.remove(id);
        if let Some(watch) = needed {
            self.providers.insert(id.to_owned(), watch.clone());
            plan.watches.push(WatchChange::Add(watch));
        }

        plan
    }

    fn plan_service(&mut self, key: &Key, cache: &Cache, env: &Env<'_>) -> Plan<WorkItem> {
        let local = Local::new(cache, &self.settings);
        let (plan, dropped) = plan::plan(&local, key, env.now);
        let count = dropped.addresses;
        let last = if count == 0 {
            self.dropped.remove(key)
        } else {
            self.dropped.insert(key.clone(), count)
        };
        self.metrics
            .drop_addresses(count.saturating_sub(last.unwrap_or_default()));

        plan
    }

    /// Returns the provider whose exports a watch reports.
    fn provider_of(&self, id: &WatchId) -> Option<&str> {
        let mut providers = self.providers.iter();
        let provider = providers.find(|(_, watch)| *watch == id);

        provider.map(|(provider, _)| provider.as_str())
    }
}

impl Controller for MultiClusterController {
    type Item = WorkItem;
    const NAME: &'static str = "multi-cluster";
    const FIELD_MANAGER: &'static str = "liqo-controller-manager";

    fn resources(&self) -> Vec<Registration> {
        registrations(&self.settings.endpoints.namespace)
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<WorkItem> {
        let local = Local::new(cache, &self.settings);
        Vec::from_iter(items_of(&local, change))
    }

    /// The watches of a former leader have ended.
    fn started(&mut self, cache: &Cache) -> Vec<WorkItem> {
        self.followed.clear();
        self.providers.clear();
        let local = Local::new(cache, &self.settings);
        let peers = local.peers().map(|peer| WorkItem::Peer(peer.id.to_owned()));
        let exports = local.exports.iter();
        let namespaces = exports.map(|(key, _)| WorkItem::Namespace(key.namespace.clone()));
        let mut items = BTreeSet::from([WorkItem::Kinds]);
        items.extend(peers.chain(namespaces));

        Vec::from_iter(items)
    }

    fn listed(&mut self, id: &WatchId, cache: &Cache) -> Vec<WorkItem> {
        let local = Local::new(cache, &self.settings);
        let is_of_kind = [all::<ServiceExport>(), all::<ServiceImport>()].contains(id);
        let items = if is_of_kind || self.provider_of(id).is_some() {
            all_items(&local)
        } else if id.cluster == Cluster::Local {
            let namespace = id.namespace.as_deref().unwrap_or_default();
            let is_followed = self.followed.contains(namespace);
            let items = is_followed.then(|| items_within(&local, namespace));
            items.unwrap_or_default()
        } else {
            BTreeSet::new()
        };

        Vec::from_iter(items)
    }

    fn refused(&mut self, id: &WatchId, _: &Cache) -> Vec<WorkItem> {
        let provider = self.provider_of(id).map(str::to_owned);
        provider.map(WorkItem::Peer).into_iter().collect()
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        match item {
            WorkItem::Kinds => {
                let mut plan = Plan::default();
                let watches = [all::<ServiceExport>(), all::<ServiceImport>()];
                plan.watches.extend(watches.map(WatchChange::Add));
                plan
            }
            WorkItem::Peer(id) => {
                let mut plan = self.plan_peer(id, cache);
                let watch = self.providers.get(id);
                if let Some(message) = watch.and_then(|watch| cache.refusal(watch)) {
                    unsupported(&mut plan, id, message);
                    let local = Local::new(cache, &self.settings);
                    let items = all_items(&local).into_iter();
                    plan.requeue.extend(items.map(|it| (Duration::ZERO, it)));
                }
                plan
            }
            WorkItem::Namespace(namespace) => self.plan_namespace(namespace, cache),
            WorkItem::Service(key) => self.plan_service(key, cache, env),
        }
    }

    /// Namespaces take turns.
    fn queue(item: &WorkItem) -> Queue {
        match item {
            WorkItem::Kinds => Queue::default(),
            WorkItem::Peer(id) => Queue(format!("peer {id}")),
            WorkItem::Namespace(namespace) => Queue(namespace.clone()),
            WorkItem::Service(key) => Queue(key.namespace.clone()),
        }
    }

    fn item_kind(item: &WorkItem) -> &'static str {
        item.kind()
    }
}

/// Plans the Event of a provider whose exports cannot be read. It is published once until its text changes.
fn unsupported(plan: &mut Plan<WorkItem>, id: &str, message: &str) {
    let message: String = message.chars().take(256).collect();
    let kind = Resource::of::<ExportedService>();
    let note = format!(
        "the Services that cluster {id} exports are not imported, because it does not serve {}: enable multiCluster there ({message})",
        kind.plural
    );
    let object = Ref::of::<ForeignCluster>(&Cluster::Local, &Key::cluster(id));
    warn(plan, object, ("ExportsUnavailable", note));
}
