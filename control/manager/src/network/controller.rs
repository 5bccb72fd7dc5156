//! The network controller: passes changes to the planner, and the planner's plans to the runtime.

use crate::network::item::WorkItem;
use crate::network::kind::{Key, Kind};
use crate::network::local::IndexKey;
use crate::network::plan::{Notice, State};
use crate::network::write::{Action, Write};
use control_runtime::{
    self as runtime, Cache, Change, Cluster, Controller, Entry, Env, Outcome, Plan, Queue, Ref,
    Registration, Request, Resource, Selector, WatchChange, WatchId,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

mod registrations;

#[cfg(test)]
pub(crate) use registrations::registration;
pub(crate) use registrations::registrations;

/// Field manager of all writes. Earlier releases used it for the operation `Update`, too.
pub(crate) const FIELD_MANAGER: &str = "liqo-controller-manager";

/// Time after which kube-apiserver aborts a write that claims a CIDR or an address. A leader sends its
/// last such write at most 10 s after it renewed the Lease, and a standby its first one at least 15 s
/// after that renewal.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(4);

/// Interval at which an object of another user is read whose name is that of an object to create.
const FOREIGN_READ_INTERVAL: Duration = Duration::from_secs(30);

/// Longest time for which the item of a peer waits for the list of its Secrets.
const LIST_WAIT_MAX: Duration = Duration::from_secs(5);

/// Interval at which the item of a peer checks whether the list is complete.
const LIST_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Plans addresses, Services, keys and status.
pub(crate) struct NetworkController {
    state: State,
    /// Secrets that the last plan of an item requested.
    lookups: BTreeMap<WorkItem, Vec<Key>>,
    /// Objects of other users whose name is that of an object that an item creates. No watch reports them.
    foreign: BTreeMap<WorkItem, BTreeSet<(Kind, Key)>>,
    /// Whether the watches of Secrets were added at the start.
    is_started: bool,
    /// Namespaces whose Secrets are watched and not listed yet, and the time until which the items of their peers wait.
    unlisted: BTreeMap<String, Timestamp>,
    metrics: crate::metrics::Metrics,
}

impl NetworkController {
    pub(crate) fn new(state: State, metrics: crate::metrics::Metrics) -> Self {
        Self {
            state,
            lookups: BTreeMap::new(),
            foreign: BTreeMap::new(),
            is_started: false,
            unlisted: BTreeMap::new(),
            metrics,
        }
    }

    fn kind_of(&self, object: &Ref) -> Option<Kind> {
        Kind::of(
            &object.resource,
            &object.key,
            &self.state.settings.namespace,
        )
    }

    /// Adds and removes watches of Secrets at the start.
    fn plan_watches(&mut self, cache: &Cache, now: Timestamp) -> Plan<WorkItem> {
        self.is_started = true;
        let mut plan = Plan::default();
        let bound = self.state.local(cache).bound_namespaces();
        for namespace in &bound | &self.state.derived.watched {
            self.plan_watch(&namespace, cache, now, &mut plan);
        }

        plan
    }

    /// Adds the watch of the Secrets of a namespace when it has a gateway, and removes it with the rights of the manager.
    ///
    /// The watch outlives the gateway, whose Secret is deleted after it.
    fn plan_watch(
        &mut self,
        namespace: &str,
        cache: &Cache,
        now: Timestamp,
        plan: &mut Plan<WorkItem>,
    ) {
        let local = self.state.local(cache);
        let (is_bound, has_gateway) = (local.is_bound(namespace), local.has_gateway(namespace));
        let watched = &mut self.state.derived.watched;
        if is_bound {
            if has_gateway && watched.insert(namespace.to_owned()) {
                let until = now + LIST_WAIT_MAX;
                self.unlisted.insert(namespace.to_owned(), until);
                plan.watches.push(WatchChange::Add(secrets(namespace)));
            }
        } else if watched.remove(namespace) {
            self.unlisted.remove(namespace);
            plan.watches.push(WatchChange::Remove(secrets(namespace)));
            let items = self.state.local(cache).items_of_gateways(namespace);
            let items = items.into_iter().map(|item| (Duration::ZERO, item));
            plan.requeue.extend(items);
        }
    }

    /// Converts a plan of the planner.
    fn convert(
        &mut self,
        item: &WorkItem,
        plan: crate::network::plan::Plan,
        cache: &Cache,
    ) -> Plan<WorkItem> {
        let lookups = self.look_up(item, &plan.lookups);
        if !lookups.is_empty() {
            // The item is planned again after these reads.
            return Plan {
                reads: lookups,
                ..Plan::default()
            };
        }
        let mut converted = Plan {
            writes: (plan.writes.into_iter())
                .map(|write| guarded(write, cache))
                .collect(),
            events: plan.notices.into_iter().map(event).collect(),
            is_incomplete: plan.retry,
            ..Plan::default()
        };
        for later in plan.again {
            converted.requeue.push((Duration::ZERO, later));
        }
        for (kind, key) in self.foreign.get(item).into_iter().flatten() {
            converted.reads.push(reference(*kind, key.clone()));
            converted
                .requeue
                .push((FOREIGN_READ_INTERVAL, item.clone()));
        }

        converted
    }

    /// Returns the Secrets that a plan requests, and drops those that the previous plan requested.
    fn look_up(&mut self, item: &WorkItem, keys: &[Key]) -> Vec<Ref> {
        for key in self.lookups.remove(item).unwrap_or_default() {
            if !keys.contains(&key) {
                self.state.derived.looked_up.remove(&key);
            }
        }
        if !keys.is_empty() {
            self.lookups.insert(item.clone(), keys.to_vec());
        }
        keys.iter()
            .map(|key| Ref::of::<Secret>(&Cluster::Local, key))
            .collect()
    }

    /// Stores an object of another user, so that the item can report it.
    fn add_foreign(&mut self, item: &WorkItem, kind: Kind, entry: &Entry) -> Vec<WorkItem> {
        let id = (kind, entry.key.clone());
        let objects = self.foreign.entry(item.clone()).or_default();
        objects.insert(id.clone());
        self.state.derived.foreign.insert(id, entry.clone());

        vec![item.clone()]
    }

    /// Removes an object of another user that was deleted or that a watch reports now. Returns the items
    /// that it blocked.
    fn remove_foreign(&mut self, kind: Kind, key: &Key) -> Vec<WorkItem> {
        let id = (kind, key.clone());
        self.state.derived.foreign.remove(&id);
        let mut items = Vec::new();
        self.foreign.retain(|item, objects| {
            if objects.remove(&id) {
                items.push(item.clone());
            }
            !objects.is_empty()
        });

        items
    }

    /// Stores the result of a read.
    fn read(&mut self, item: &WorkItem, object: &Ref, outcome: &Outcome) -> Vec<WorkItem> {
        let Some(kind) = self.kind_of(object) else {
            return Vec::new();
        };
        let is_foreign = (self.foreign.get(item))
            .is_some_and(|objects| objects.contains(&(kind, object.key.clone())));
        let secret = match outcome.found() {
            Some(None) if is_foreign => return self.remove_foreign(kind, &object.key),
            Some(found) if !is_foreign => found.and_then(|it| it.get::<Secret>().cloned()),
            Some(_) | None => return Vec::new(),
        };
        let looked_up = &mut self.state.derived.looked_up;
        looked_up.insert(object.key.clone(), secret);

        vec![item.clone()]
    }

    /// Returns whether an item waits because the Secrets of its peer, which the manager may read, are not listed yet.
    fn waits(&self, item: &WorkItem, cache: &Cache, now: Timestamp) -> bool {
        let WorkItem::Peer(peer) = item else {
            return false;
        };
        if !self.is_started {
            return true;
        }
        let local = self.state.local(cache);
        let Some(namespace) = local.tenant_namespace(peer) else {
            return false;
        };
        let watched = &self.state.derived.watched;
        // The watch is added by an item that is queued at the same time as this one.
        let is_next = !watched.contains(namespace)
            && local.is_bound(namespace)
            && local.has_gateway(namespace);
        let until = self.unlisted.get(namespace);

        is_next || until.is_some_and(|until| now < *until)
    }

    /// Stores why the API server refuses a Service of the gateway, for the peers that requested it.
    fn refuse_service(
        &mut self,
        hash: &str,
        refusal: Option<String>,
        cache: &Cache,
    ) -> Vec<WorkItem> {
        let refused = &mut self.state.derived.refused_services;
        let old = refused.get(hash).cloned();
        match &refusal {
            Some(message) => refused.insert(hash.to_owned(), message.clone()),
            None => refused.remove(hash),
        };
        if old == refusal {
            return Vec::new();
        }
        let peers = self.state.local(cache);
        peers.peers_indexed(&IndexKey::service(hash)).collect()
    }
}

impl Controller for NetworkController {
    type Item = WorkItem;
    const NAME: &'static str = "network";
    const FIELD_MANAGER: &'static str = FIELD_MANAGER;

    fn resources(&self) -> Vec<Registration> {
        registrations(&self.state.settings)
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<WorkItem> {
        let Some(kind) = self.kind_of(change.object) else {
            return Vec::new();
        };
        let mut items = self.state.observe(kind, change, cache);
        items.extend(self.remove_foreign(kind, &change.object.key));

        Vec::from_iter(items)
    }

    fn started(&mut self, cache: &Cache) -> Vec<WorkItem> {
        // No watch reports their deletion. The items find them again if they still exist.
        self.foreign.clear();
        self.state.derived.foreign.clear();
        self.state.start(cache);
        // The items of peers wait for these watches.
        vec![WorkItem::SecretWatches]
    }

    fn listed(&mut self, id: &WatchId, cache: &Cache) -> Vec<WorkItem> {
        // The authentication watches other Secrets of the namespace.
        let of_tenant = id.namespace.as_ref().filter(|it| *id == secrets(it));
        let watched = &self.state.derived.watched;
        let Some(namespace) = of_tenant.filter(|it| watched.contains(*it)) else {
            return Vec::new();
        };
        self.unlisted.remove(namespace);
        Vec::from_iter(self.state.local(cache).items_of_gateways(namespace))
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        if *item == WorkItem::SecretWatches {
            return self.plan_watches(cache, env.now);
        }
        if let WorkItem::SecretWatch(namespace) = item {
            let mut plan = Plan::default();
            self.plan_watch(namespace, cache, env.now, &mut plan);
            return plan;
        }
        if self.waits(item, cache, env.now) {
            return Plan {
                requeue: vec![(LIST_CHECK_INTERVAL, item.clone())],
                ..Plan::default()
            };
        }
        let plan = self.state.plan(item, cache, env);
        let (networks, addresses) = self.state.counts();
        self.metrics.allocated(networks, addresses);

        self.convert(item, plan, cache)
    }

    fn done(
        &mut self,
        item: &WorkItem,
        request: &Request,
        outcome: &Outcome,
        cache: &Cache,
    ) -> Vec<WorkItem> {
        let Some(object) = request.object() else {
            return Vec::new();
        };
        match (request, outcome, self.kind_of(object)) {
            (Request::Read(_), outcome, _) => self.read(item, object, outcome),
            (Request::Write(_), Outcome::AlreadyExists(Some(entry)), Some(kind)) => {
                if cache.contains(object) {
                    // The watch has reported the object since the plan.
                    return vec![item.clone()];
                }
                self.add_foreign(item, kind, entry)
            }
            (Request::Write(_), outcome, Some(Kind::Service)) => match (item, outcome) {
                (WorkItem::Service(hash), Outcome::Refused(status)) => {
                    self.refuse_service(hash, refusal(status), cache)
                }
                (WorkItem::Service(hash), _) => self.refuse_service(hash, None, cache),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn queue(item: &WorkItem) -> Queue {
        match item {
            WorkItem::Peer(peer) => Queue(peer.clone()),
            // The objects of a peer are in its tenant namespace, those of a user in the namespaces of the user.
            WorkItem::Configuration(key) | WorkItem::Network(key) | WorkItem::Ip(key) => {
                Queue(key.namespace.clone())
            }
            WorkItem::Tenant(namespace) | WorkItem::SecretWatch(namespace) => {
                Queue(namespace.clone())
            }
            WorkItem::Node(_)
            | WorkItem::ServiceIp(_)
            | WorkItem::Service(_)
            | WorkItem::SecretWatches => Queue::default(),
        }
    }

    fn item_kind(item: &WorkItem) -> &'static str {
        item.kind()
    }
}

/// Returns the reference to an object of the local cluster.
fn reference(kind: Kind, key: Key) -> Ref {
    Ref {
        cluster: Cluster::Local,
        resource: kind.resource(),
        key,
    }
}

/// Returns the watch of the gateways' Secrets in a namespace.
pub(crate) fn secrets(namespace: &str) -> WatchId {
    WatchId {
        cluster: Cluster::Local,
        resource: Resource::of::<Secret>(),
        namespace: Some(namespace.to_owned()),
        selector: Selector {
            labels: Kind::Secret.selector().unwrap_or_default(),
            ..Selector::default()
        },
    }
}

/// Returns why the API server refuses an object, if the object itself is the reason and not a missing
/// right of the manager.
fn refusal(status: &kube::core::Status) -> Option<String> {
    let is_of_object = matches!(status.code, 400..=499) && !matches!(status.code, 401 | 403);
    is_of_object.then(|| status.message.clone())
}

/// Converts a write, and adds the resourceVersion with which it was planned.
fn guarded(write: Write, cache: &Cache) -> runtime::Write {
    let is_guarded = write.is_guarded();
    let mut write = convert_write(write);
    if is_guarded {
        let version = cache.entry(&write.object).and_then(|entry| entry.version);
        write.resource_version = version.map(|version| version.to_string());
    }

    write
}

fn convert_write(write: Write) -> runtime::Write {
    let object = reference(write.kind, write.key);
    let (action, uid) = match write.action {
        Action::Create(object) => (runtime::Action::Create(object), None),
        Action::Apply(object) => (runtime::Action::Apply(object), None),
        Action::Merge(patch) => (runtime::Action::Merge(patch), None),
        Action::Status(status) => {
            return convert_status(write.kind, object, runtime::Action::Apply(status));
        }
        Action::PruneStatus(patch) => {
            return convert_status(write.kind, object, runtime::Action::Merge(patch));
        }
        Action::Delete(uid) => (runtime::Action::Delete, uid),
    };
    let mut converted = runtime::Write::new(object, action);
    converted.uid = uid;

    converted
}

fn convert_status(kind: Kind, object: Ref, action: runtime::Action) -> runtime::Write {
    let mut write = runtime::Write::new(object, action).subresource("status");
    // Such a status claims a CIDR or an address.
    if matches!(kind, Kind::Network | Kind::Ip) {
        write.server_timeout = Some(CLAIM_TIMEOUT);
    }

    write
}

fn event(notice: Notice) -> runtime::Event {
    runtime::Event {
        object: reference(notice.kind, notice.key),
        is_warning: notice.is_warning,
        is_repeated: notice.is_change,
        reason: notice.reason,
        note: notice.note,
    }
}

#[cfg(test)]
mod tests;
