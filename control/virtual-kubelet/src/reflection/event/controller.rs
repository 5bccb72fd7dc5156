//! Connects the reflection of Events to the runtime.

use super::drops::Drops;
use super::involved::{Involved, remote_name};
use super::settings::EventSettings;
use super::written::{Decision, Written};
use super::{EventSummary, about, local_watch, reflected_fields, registration, remote_watch};
use crate::pod::kept;
use crate::reflected::Reflected;
use crate::reflection::namespaces::{Namespaces, State, is_object_name, names};
use crate::reflection::registrations::{followed, namespace_maps};
use control_api::NamespaceMap;
use control_runtime::{
    Action, Cache, Carried, Change, Cluster, Controller, Env, Key, Outcome, Plan, Queue, Ref,
    Registration, Request, Resource, Scope, WatchId, Write,
};
use k8s_openapi::api::core::v1::{Event, Pod};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Code of the response to a request without the right to it, which a RoleBinding may still give.
const FORBIDDEN: u16 = 403;

/// Reflects Events of the provider: about the pods of the Node, or about reflected objects. Different Leases may decide which
/// replica runs the pods and which one reflects the objects, so a process has a controller for each.
pub(crate) struct EventController<const OF_PODS: bool> {
    settings: EventSettings,
    namespaces: Namespaces,
    carried: Carried<WorkItem>,
    written: Written,
    drops: Drops,
    reflected: Reflected,
}

/// Reflects Events about the pods of the Node.
pub(crate) type PodEvents = EventController<true>;

/// Reflects Events about reflected objects.
pub(crate) type ObjectEvents = EventController<false>;

/// Part of the reflection of Events that is compared with its desired state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// Watches of a namespace of this cluster.
    Namespace(String),
    /// Event of this cluster.
    Event(Key),
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
            Self::Event(key) => write!(f, "event {key}"),
        }
    }
}

impl<const OF_PODS: bool> EventController<OF_PODS> {
    /// Creates the controller.
    pub(crate) fn new(settings: EventSettings, drops: Drops) -> Self {
        Self {
            settings,
            namespaces: Namespaces::default(),
            carried: Carried::default(),
            written: Written::default(),
            drops,
            reflected: Reflected::default(),
        }
    }

    /// Counts what is reflected.
    pub(crate) fn counted(self, reflected: Reflected) -> Self {
        Self { reflected, ..self }
    }

    fn provider(&self) -> Cluster {
        self.settings.reflection.peering.cluster()
    }

    fn state<'a>(&self, namespace: &str, cache: &'a Cache) -> State<'a> {
        State::in_cache(cache, &self.settings.reflection.map(), namespace)
    }

    /// Returns the item of an Event of the provider.
    fn item(&self, event: &Key) -> Option<WorkItem> {
        let namespace = self.namespaces.local(&event.namespace)?;
        // The provider chooses the name, which is part of a path.
        let is_valid = is_object_name(&event.name);

        is_valid.then(|| WorkItem::Event(Key::new(namespace, &*event.name)))
    }

    /// Returns the items of the provider's Events in a namespace of this cluster.
    fn items_in(&self, namespace: &str, cache: &Cache) -> Vec<WorkItem> {
        let events = cache.objects::<EventSummary>(&self.provider());
        let remote = self.namespaces.remote(namespace).into_iter();
        let keys = remote.flat_map(|it| events.within(it));

        keys.filter_map(|(key, _)| self.item(key)).collect()
    }

    /// Returns the items of the Events about an object of either cluster, which were observed before it.
    fn items_about(&self, object: &Ref, cache: &Cache) -> Vec<WorkItem> {
        let remote = match object.cluster {
            Cluster::Local => self.namespaces.remote(&object.key.namespace).map(|it| {
                let name = remote_name(&object.resource, &object.key.name, &self.settings);
                Key::new(it, name)
            }),
            Cluster::Remote(_) => Some(object.key.clone()),
        };
        let provider = self.provider();
        let events = remote.into_iter();
        let events = events.flat_map(|it| about(cache, &provider, &it));

        events.filter_map(|(key, _)| self.item(key)).collect()
    }

    fn plan_namespace(&mut self, namespace: &str, cache: &Cache) -> Plan<WorkItem> {
        let mut plan = Plan::default();
        let peering = &self.settings.reflection.peering;
        let watches = |remote: &str| {
            let watches = [
                remote_watch(peering, remote),
                local_watch(peering, namespace),
            ];
            BTreeSet::from(watches)
        };
        let is_followed = self.namespaces.remote(namespace).is_some();
        // The last Events of a namespace that is no longer offloaded show how its pods end.
        let state = self.state(namespace, cache);
        self.namespaces.plan(namespace, state, watches, &mut plan);
        if !is_followed {
            // Watches that another controller has added are listed already.
            let items = self.items_in(namespace, cache).into_iter();
            plan.requeue.extend(items.map(|it| (Duration::ZERO, it)));
        }

        plan
    }

    fn plan_event(&mut self, key: &Key, cache: &Cache, env: &Env<'_>) -> Plan<WorkItem> {
        let mut plan = Plan::default();
        let item = WorkItem::Event(key.clone());
        let Some((event, involved)) = self.event(key, cache) else {
            if !self.is_expected(key, cache) {
                self.carried.remove(&item);
            }
            return plan;
        };
        let present = cache.local::<EventSummary>(key);
        if present.is_some_and(|it| it.content == event.reflected) {
            self.carried.remove(&item);
            return plan;
        }
        let at = (cache, env.at);
        match self.written.decide(key, event, &involved.key, at) {
            Decision::Write => {}
            Decision::Wait(rest) => {
                plan.requeue.push((rest, item));
                return plan;
            }
            Decision::Skip => {
                self.carried.remove(&item);
                return plan;
            }
            Decision::Drop(limit) => {
                if self.written.note_drop(key, event) {
                    self.drops.count(limit);
                }
                self.carried.remove(&item);
                return plan;
            }
        }
        let remote = self.namespaces.remote(&key.namespace).unwrap_or_default();
        let remote = Ref::of::<Event>(&self.provider(), &Key::new(remote, &*key.name));
        let full = self.carried.get::<Event>(&item);
        let Some(full) = full.filter(|it| event.is_of(it)) else {
            // The watch reports a later state that a read has returned.
            let observed = cache.entry(&remote).and_then(|it| it.version);
            if full.is_none_or(|it| version(it) < observed) {
                plan.reads.push(remote);
            }
            return plan;
        };
        let mut fields = reflected_fields(full);
        involved.refer(&mut fields);
        let object = Ref::of::<Event>(&Cluster::Local, key);
        let uid = cache.entry(&object).map(|it| it.uid.clone());
        let action = match uid {
            Some(_) => Action::Merge(fields),
            None => {
                let labels = BTreeMap::from(self.settings.reflection.peering.markers());
                fields["metadata"] =
                    json!({"name": key.name, "namespace": key.namespace, "labels": labels});
                Action::Create(fields)
            }
        };
        let mut write = Write::new(object, action);
        write.uid = uid;
        plan.writes.push(write);
        let object = involved.key.name.as_str();
        self.written.note(key, event, (object, env.at));

        plan
    }

    /// Returns an Event of the provider that is reflected, and the object of this cluster that it is about.
    fn event<'a>(&self, key: &Key, cache: &'a Cache) -> Option<(&'a EventSummary, Involved<'a>)> {
        let remote = self.namespaces.remote(&key.namespace)?;
        let peering = &self.settings.reflection.peering;
        if !cache.is_synced(&local_watch(peering, &key.namespace)) {
            return None;
        }
        let events = cache.objects::<EventSummary>(&self.provider());
        let event = events.get(&Key::new(remote, &*key.name))?;
        if event.is_reflected || !event.marks.is_reflected(self.settings.policy) {
            return None;
        }
        let namespaces = (key.namespace.as_str(), remote);

        Some((
            event,
            Involved::of(event, cache, &self.settings, namespaces)?,
        ))
    }

    /// Returns whether an Event of the provider is about a pod of this name, which the watch of pods may report later.
    fn is_expected(&self, key: &Key, cache: &Cache) -> bool {
        let remote = self.namespaces.remote(&key.namespace);
        let events = cache.objects::<EventSummary>(&self.provider());
        let event = remote.and_then(|it| events.get(&Key::new(it, &*key.name)));
        let pod = event.filter(|it| it.is_of_pod());
        let pod = pod.map(|it| Key::new(&*key.namespace, it.object()));

        self.settings.node.is_some() && pod.is_some_and(|it| cache.local::<Pod>(&it).is_some())
    }

    /// Returns the items of the namespaces whose state has changed.
    fn of_map(&self, change: &Change<'_>) -> Vec<WorkItem> {
        if change.object.key != self.settings.reflection.map() {
            return Vec::new();
        }
        let states: [Option<&NamespaceMap>; 2] = [change.before(), change.after()];
        let names: BTreeSet<_> = states.into_iter().flatten().flat_map(names).collect();
        let is_changed = |name: &&str| State::of(states[0], name) != State::of(states[1], name);
        let names = names.into_iter().filter(is_changed);

        names.map(|it| WorkItem::Namespace(it.to_owned())).collect()
    }

    fn of_event(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<WorkItem> {
        let key = &change.object.key;
        if change.object.cluster == Cluster::Local {
            let is_known = self.namespaces.remote(&key.namespace).is_some();
            let item = WorkItem::Event(key.clone());
            return Vec::from_iter(is_known.then_some(item));
        }
        let Some(item) = self
            .item(key)
            .filter(|_| change.object.cluster == self.provider())
        else {
            return Vec::new();
        };
        let WorkItem::Event(local) = &item else {
            return Vec::new();
        };
        let is_reflected = self.event(local, cache).is_some() || self.is_expected(local, cache);
        match change.entry().filter(|_| is_reflected) {
            Some(entry) => self.carried.put(item.clone(), entry),
            None => self.carried.remove(&item),
        }

        vec![item]
    }
}

/// Returns the version of an Event as a number, which is comparable.
fn version(event: &Event) -> Option<u64> {
    event.metadata.resource_version.as_ref()?.parse().ok()
}

impl<const OF_PODS: bool> Controller for EventController<OF_PODS> {
    type Item = WorkItem;
    const NAME: &'static str = if OF_PODS { "pod-event" } else { "object-event" };
    const FIELD_MANAGER: &'static str = "event.reflection.liqo.io";

    fn resources(&self) -> Vec<Registration> {
        let settings = &self.settings.reflection;
        let mut registrations = vec![registration(), namespace_maps(settings)];
        if let Some(node) = &self.settings.node {
            registrations.extend([
                kept::pods(Scope::All).node(node),
                kept::pods(Scope::Planned),
                kept::shadow_pods(Scope::Planned),
            ]);
        }
        registrations.extend(followed(settings));

        registrations
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<WorkItem> {
        if change.is::<NamespaceMap>() {
            self.of_map(change)
        } else if change.is::<Event>() {
            self.of_event(change, cache)
        } else if change.is_creation() {
            self.items_about(change.object, cache)
        } else {
            Vec::new()
        }
    }

    /// The watches of a former leader have ended.
    fn started(&mut self, cache: &Cache) -> Vec<WorkItem> {
        self.namespaces = Namespaces::default();
        self.carried = Carried::default();
        self.written = Written::default();
        let map = cache.local::<NamespaceMap>(&self.settings.reflection.map());
        let names = map.into_iter().flat_map(names);
        names.map(|it| WorkItem::Namespace(it.to_owned())).collect()
    }

    fn listed(&mut self, id: &WatchId, cache: &Cache) -> Vec<WorkItem> {
        let peering = &self.settings.reflection.peering;
        let namespace = self.namespaces.of_watch(id, peering).map(str::to_owned);
        let namespace = namespace.filter(|_| id.resource == Resource::of::<Event>());
        let items = namespace.map(|it| self.items_in(&it, cache));

        items.unwrap_or_default()
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        match item {
            WorkItem::Namespace(namespace) => self.plan_namespace(namespace, cache),
            WorkItem::Event(key) => self.plan_event(key, cache, env),
        }
    }

    fn done(
        &mut self,
        item: &WorkItem,
        request: &Request,
        outcome: &Outcome,
        _: &Cache,
    ) -> Vec<WorkItem> {
        let WorkItem::Event(key) = item else {
            return Vec::new();
        };
        self.reflected.count(&key.namespace, request, outcome);
        match (request, outcome) {
            (Request::Read(_), Outcome::Stored(entry)) => {
                self.carried.put(item.clone(), entry);
                return vec![item.clone()];
            }
            // An Event of another writer has the name, or the API server does not accept the content.
            (Request::Write(_), Outcome::AlreadyExists(_) | Outcome::Stored(_)) => {
                self.carried.remove(item);
            }
            (Request::Write(_), Outcome::Refused(status)) if status.code != FORBIDDEN => {
                self.carried.remove(item);
            }
            (Request::Write(_), _) => self.written.forget(key),
            (Request::Read(_) | Request::Probe(_), _) => {}
        }

        Vec::new()
    }

    /// Namespaces take turns.
    fn queue(item: &WorkItem) -> Queue {
        Queue(match item {
            WorkItem::Namespace(namespace) => namespace.clone(),
            WorkItem::Event(key) => key.namespace.clone(),
        })
    }

    fn item_kind(item: &WorkItem) -> &'static str {
        match item {
            WorkItem::Namespace(_) => "namespace",
            WorkItem::Event(_) => "event",
        }
    }
}
