//! Plans the writes of one work item from the objects in the cache, without IO.
//!
//! ```text
//! watch -> State::observe -> work items -> Planner::plan -> writes -> API server -> State::observe
//! ```
//!
//! A plan compares the desired state with the objects, so that a second plan after its writes is empty. The
//! objects that writes return are observed like any other change.

use crate::network::item::WorkItem;
use crate::network::kind::{Key, Kind};
use crate::network::local::{Cluster, Derived, Local};
use crate::network::settings::Settings;
use crate::network::write::Write;
use control_fabric::addresses::{Allocation, Conflicts};
pub(crate) use control_runtime::Env;
use control_runtime::{Cache, Change};
use ipam::NetworkError;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) mod configuration;
pub(crate) mod connection;
pub(crate) mod deployment;
pub(crate) mod gateway;
pub(crate) mod ip;
pub(crate) mod ip_service;
mod metadata;
pub(crate) mod network;
pub(crate) mod node;
mod own_ip;
pub(crate) mod peer;
pub(crate) mod secret;
pub(crate) mod service;
pub(crate) mod service_ip;
pub(crate) mod tenant;
mod tunnel;
mod underlay;

#[cfg(test)]
pub(crate) mod tests;

/// Number of stored warnings above which those of deleted objects are dropped. Otherwise a user who may
/// create objects in one namespace could exhaust the memory of this process with ever new objects.
const LAST_EVENTS_MAX: usize = 1024;

/// State of the network controller besides the objects in the cache.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) allocation: Allocation<Key, (Kind, Key)>,
    pub(crate) derived: Derived,
    /// The last warning about each object.
    last_events: BTreeMap<(Kind, Key), String>,
    /// The tunnel of each peer when it was last planned, by cluster ID.
    tunnels: BTreeMap<String, tunnel::Tunnel>,
}

/// Plans one work item.
pub(crate) struct Planner<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) local: Local<'a>,
    pub(crate) allocation: &'a mut Allocation<Key, (Kind, Key)>,
    last_events: &'a mut BTreeMap<(Kind, Key), String>,
    tunnels: &'a mut BTreeMap<String, tunnel::Tunnel>,
}

/// Requests and Events of a work item.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// Writes of one kind are sent in this order, those of different kinds concurrently. A failure does
    /// not prevent the other writes.
    pub(crate) writes: Vec<Write>,
    /// Events to publish.
    pub(crate) notices: Vec<Notice>,
    /// Secrets to look up before planning again.
    pub(crate) lookups: Vec<Key>,
    /// Items to plan because of this plan.
    pub(crate) again: Vec<WorkItem>,
    /// Whether to plan again with backoff, since no watch reports when the item can proceed.
    pub(crate) retry: bool,
}

/// An Event about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
    pub(crate) is_warning: bool,
    /// Whether it reports an action and not a state. An action is published each time.
    pub(crate) is_change: bool,
    pub(crate) reason: &'static str,
    pub(crate) note: String,
}

impl State {
    /// Creates the state without any object.
    ///
    /// # Errors
    ///
    /// Returns [`NetworkError::PoolsOverlap`] if the pools overlap.
    pub(crate) fn new(settings: Settings) -> Result<Self, NetworkError> {
        Ok(Self {
            allocation: Allocation::new(&settings.pools, Conflicts::Report)?,
            settings,
            derived: Derived::default(),
            last_events: BTreeMap::new(),
            tunnels: BTreeMap::new(),
        })
    }

    /// Returns the view of the cache.
    pub(crate) fn local<'a>(&'a self, cache: &'a Cache) -> Local<'a> {
        let Settings {
            namespace,
            tenant_namespaces,
            ..
        } = &self.settings;
        Local::new(cache, namespace, tenant_namespaces, &self.derived)
    }

    /// Returns the planner of one work item.
    pub(crate) fn planner<'a>(&'a mut self, cache: &'a Cache) -> Planner<'a> {
        let Settings {
            namespace,
            tenant_namespaces,
            ..
        } = &self.settings;
        Planner {
            settings: &self.settings,
            local: Local::new(cache, namespace, tenant_namespaces, &self.derived),
            allocation: &mut self.allocation,
            last_events: &mut self.last_events,
            tunnels: &mut self.tunnels,
        }
    }

    /// Derives the allocations from the statuses of the objects.
    ///
    /// Allocations of this replica while it was a standby were not written, so they are discarded.
    pub(crate) fn start(&mut self, cache: &Cache) {
        if let Ok(allocation) = Allocation::new(&self.settings.pools, Conflicts::Report) {
            self.allocation = allocation;
        }
        self.last_events.clear();
        network::adopt_all(&mut self.planner(cache));
    }

    /// Handles a change of an object that the cache already contains, and returns the work items that it causes.
    pub(crate) fn observe(
        &mut self,
        kind: Kind,
        change: &Change<'_>,
        cache: &Cache,
    ) -> BTreeSet<WorkItem> {
        let key = &change.object.key;
        if kind == Kind::Secret {
            self.derived.looked_up.remove(key);
        }
        let mut items = self.local(cache).items_of_change(kind, change);
        if kind == Kind::Node {
            let nodes = &mut self.derived.cluster.nodes;
            // A new leader observes all objects again.
            let change = nodes.replace(key, change.after());
            items.extend(self.local(cache).items_of_node(&change));
        } else if Cluster::depends_on(&self.settings.namespace, kind, key) {
            let nodes = std::mem::take(&mut self.derived.cluster.nodes);
            let cluster = Cluster::of(&self.local(cache), nodes);
            let old = std::mem::replace(&mut self.derived.cluster, cluster);
            items.extend(self.local(cache).items_of_cluster(&old));
        }

        items
    }

    /// Plans a work item.
    pub(crate) fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan {
        if let WorkItem::Service(hash) = item
            && !service::is_requested(&self.local(cache), hash)
        {
            self.derived.refused_services.remove(hash);
        }
        self.planner(cache).plan(item, env)
    }

    /// Returns the number of Networks with a CIDR, and of IPs with an address.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.allocation.counts()
    }

    /// Returns the number of stored warnings.
    #[cfg(test)]
    fn stored_warnings(&self) -> usize {
        self.last_events.len()
    }
}

impl Planner<'_> {
    /// Plans a work item.
    fn plan(&mut self, item: &WorkItem, env: &mut Env<'_>) -> Plan {
        let mut plan = match item {
            WorkItem::Tenant(namespace) => tenant::plan(self, namespace),
            WorkItem::Network(key) => network::plan(self, key),
            WorkItem::Node(name) => node::plan(self, name),
            WorkItem::ServiceIp(service) => service_ip::plan(self, *service),
            WorkItem::Ip(key) => ip::plan(self, key),
            WorkItem::Configuration(key) => configuration::plan(self, key, env.now),
            WorkItem::Service(hash) => service::plan(self, hash),
            WorkItem::Peer(peer) => peer::plan(self, peer, env),
            // The controller plans these items, because it has the watches.
            WorkItem::SecretWatch(_) | WorkItem::SecretWatches => Plan::default(),
        };
        if !plan.lookups.is_empty() {
            // The item is planned again with these Secrets. That plan publishes the Events.
            plan.notices.clear();
            return plan;
        }
        if let WorkItem::Peer(peer) = item {
            plan.extend(tunnel::plan(self, peer));
        }
        plan.notices.retain(|notice| self.is_news(notice));
        plan.postpone_second_changes(item);

        plan
    }

    /// Returns whether an Event differs from the last one about its object, and stores it as the last one.
    fn is_news(&mut self, notice: &Notice) -> bool {
        if notice.is_change {
            return true;
        }
        let about = (notice.kind, notice.key.clone());
        let before = self.last_events.get(&about);
        // A normal Event is published only after a warning.
        if before.is_none() && !notice.is_warning || before == Some(&notice.note) {
            return false;
        }
        if notice.is_warning {
            if self.last_events.len() >= LAST_EVENTS_MAX {
                let local = &self.local;
                self.last_events
                    .retain(|(kind, key), _| local.meta(*kind, key).is_some());
            }
            self.last_events.insert(about, notice.note.clone());
        } else {
            self.last_events.remove(&about);
        }

        true
    }

    /// Removes the last Event about a deleted object.
    pub(crate) fn forget(&mut self, kind: Kind, key: &Key) {
        self.last_events.remove(&(kind, key.clone()));
    }
}

impl Plan {
    /// Adds a warning about an object.
    pub(crate) fn warn(
        &mut self,
        kind: Kind,
        key: &Key,
        reason: &'static str,
        note: impl ToString,
    ) {
        self.push_event(kind, key, true, false, reason, note);
    }

    /// Adds an Event that the cause of the last warning about an object is resolved.
    pub(crate) fn event_normal(
        &mut self,
        kind: Kind,
        key: &Key,
        reason: &'static str,
        note: impl ToString,
    ) {
        self.push_event(kind, key, false, false, reason, note);
    }

    /// Adds an Event of an action on an object.
    pub(crate) fn announce(
        &mut self,
        kind: Kind,
        key: &Key,
        is_warning: bool,
        reason: &'static str,
        note: impl ToString,
    ) {
        self.push_event(kind, key, is_warning, true, reason, note);
    }

    fn push_event(
        &mut self,
        kind: Kind,
        key: &Key,
        is_warning: bool,
        is_change: bool,
        reason: &'static str,
        note: impl ToString,
    ) {
        self.notices.push(Notice {
            kind,
            key: key.clone(),
            is_warning,
            is_change,
            reason,
            note: note.to_string(),
        });
    }

    /// Keeps the first change of each object, and plans the item again for the others: each change requires the
    /// resourceVersion with which it was planned, and the first change of an object ends that version.
    fn postpone_second_changes(&mut self, item: &WorkItem) {
        let mut changed = BTreeSet::new();
        let all = self.writes.len();
        self.writes
            .retain(|write| !write.is_guarded() || changed.insert((write.kind, write.key.clone())));
        if self.writes.len() < all {
            self.again.push(item.clone());
        }
    }

    /// Appends another plan.
    pub(crate) fn extend(&mut self, other: Self) {
        self.writes.extend(other.writes);
        self.notices.extend(other.notices);
        self.lookups.extend(other.lookups);
        self.again.extend(other.again);
        self.retry |= other.retry;
    }
}

/// Returns a label of an object.
pub(crate) fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    let labels = meta.labels.as_ref()?;
    labels.get(key).map(String::as_str)
}

/// Returns the message for an invalid cluster ID of a peer.
pub(crate) fn invalid_cluster_id(id: &str) -> String {
    format!("`{id}` is not a cluster id: use up to 63 lower-case letters, digits and inner hyphens")
}

/// Returns a sort key by which older objects precede newer ones. The UID orders objects that were created
/// in the same second: it is the same for every leader, and users cannot choose it.
pub(crate) fn age(meta: &ObjectMeta) -> (Option<Timestamp>, Option<String>) {
    let created = meta.creation_timestamp.as_ref().map(|time| time.0);
    (created, meta.uid.clone())
}

/// Returns a reference to an owner whose deletion does not wait for the objects that it owns.
pub(crate) fn owner<K: kube::Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        block_owner_deletion: None,
        controller: None,
    }
}

/// Returns whether an object has an owner with this UID.
pub(crate) fn is_owned_by(meta: &ObjectMeta, uid: Option<&str>) -> bool {
    let mut owners = meta.owner_references.iter().flatten();
    owners.any(|owner| uid == Some(owner.uid.as_str()))
}
