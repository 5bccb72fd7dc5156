//! Connects reflection to the runtime.

use super::conflicts::Conflicts;
use super::desired::View;
use super::item::WorkItem;
use super::kind::Kind;
use super::memory::Memory;
use super::namespaces::{Namespaces, State, names};
use super::observe;
use super::plan;
use super::present::Present;
use super::registrations::{FIELD_MANAGER, local_watches, registrations, remote_watch};
use super::settings::Settings;
use control_api::NamespaceMap;
use control_runtime::{
    Action, Cache, Carried, Change, Cluster, Controller, Env, Outcome, Plan, Queue, Registration,
    Request, WatchId, Write,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// Code of the response to a write that changes an immutable field.
const INVALID: u16 = 422;

/// Reflects objects of this cluster into the namespaces of a provider.
pub(crate) struct ReflectionController {
    settings: Settings,
    namespaces: Namespaces,
    carried: Carried<WorkItem>,
    memory: Memory,
}

impl ReflectionController {
    /// Creates the controller.
    pub(crate) fn new(settings: Settings, conflicts: Conflicts) -> Self {
        Self {
            settings,
            namespaces: Namespaces::default(),
            carried: Carried::default(),
            memory: Memory::new(conflicts),
        }
    }

    fn observer<'a>(&'a self, cache: &'a Cache) -> observe::Observer<'a> {
        observe::Observer {
            cache,
            settings: &self.settings,
            namespaces: &self.namespaces,
        }
    }

    fn plan_namespace(&mut self, namespace: &str, cache: &Cache) -> Plan<WorkItem> {
        let mut plan = Plan::default();
        let map = self.settings.map();
        let state = State::in_cache(cache, &map, namespace);
        let settings = &self.settings;
        let of_remote = |remote: &str| watches(settings, (namespace, state), remote);
        let is_followed = self.namespaces.remote(namespace).is_some();
        self.namespaces.plan(namespace, state, of_remote, &mut plan);
        if !is_followed {
            // Watches that another leader or controller has added are listed already.
            let items = self.observer(cache).items_in(namespace).into_iter();
            plan.requeue.extend(items.map(|it| (Duration::ZERO, it)));
        }

        plan
    }

    /// Takes the outcome of a write of a reflected object.
    fn written(&mut self, item: &WorkItem, write: &Write, outcome: &Outcome, kind: Kind) {
        match outcome {
            Outcome::Stored(entry) if write.action != Action::Delete => {
                self.carried.remove(item);
                if let Some(present) = Present::of(entry, &self.settings.peering, kind) {
                    self.memory.stored(item, present.fingerprint);
                }
            }
            Outcome::AlreadyExists(Some(entry)) => {
                let present = Present::of(entry, &self.settings.peering, kind);
                if !present.is_some_and(|it| it.is_reflected) {
                    self.memory.mark_foreign(item);
                }
            }
            Outcome::Refused(status) => {
                self.memory.refuse(item, status);
                if let (INVALID, Action::Apply(_), Some(uid)) =
                    (status.code, &write.action, &write.uid)
                {
                    self.memory.replace(item, uid);
                }
            }
            Outcome::Stored(_)
            | Outcome::AlreadyExists(None)
            | Outcome::Answer(_)
            | Outcome::Gone
            | Outcome::Conflict(_)
            | Outcome::TimedOut
            | Outcome::Failed(_)
            | Outcome::Untrusted(_)
            | Outcome::NotLeader => {}
        }
    }

    /// Notes the field manager of a contested object that has changed it last.
    fn name_rival(&mut self, item: &WorkItem, managers: &[String]) {
        let rival = managers.iter().find(|it| *it != FIELD_MANAGER);
        let rival = rival.map_or_else(
            || "a client".to_owned(),
            |it| format!("the field manager {it}"),
        );
        self.memory.name_rival(item, &rival);
    }

    /// Takes an object that was read; returns whether the item can proceed.
    fn read(&mut self, item: &WorkItem, cluster: &Cluster, outcome: &Outcome, kind: Kind) -> bool {
        match (outcome, cluster) {
            (Outcome::Stored(entry), Cluster::Local) => {
                self.carried.put(item.clone(), entry);
                true
            }
            (Outcome::Stored(entry), Cluster::Remote(_)) => {
                let present = Present::of(entry, &self.settings.peering, kind);
                let is_ours = present.is_some_and(|it| it.is_reflected);
                if is_ours {
                    self.memory.release(item);
                    self.name_rival(item, entry.managers());
                }
                is_ours
            }
            (Outcome::Gone, Cluster::Remote(_)) => {
                self.memory.release(item);
                self.name_rival(item, &[]);
                true
            }
            // The watch reports the deletion.
            (_, Cluster::Local | Cluster::Remote(_)) => false,
        }
    }
}

impl Controller for ReflectionController {
    type Item = WorkItem;
    const NAME: &'static str = "reflection";
    const FIELD_MANAGER: &'static str = FIELD_MANAGER;

    fn resources(&self) -> Vec<Registration> {
        registrations(&self.settings)
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<WorkItem> {
        let items = self.observer(cache).items_of(change);
        let kind = Kind::of_local(&change.object.resource);
        if let (Cluster::Local, Some(kind)) = (&change.object.cluster, kind) {
            let item = WorkItem::Object(kind, change.object.key.clone());
            match change.entry() {
                Some(entry) if items.contains(&item) => self.carried.put(item, entry),
                Some(_) | None => self.carried.remove(&item),
            }
        }

        Vec::from_iter(items)
    }

    /// The watches of a former leader have ended.
    fn started(&mut self, cache: &Cache) -> Vec<WorkItem> {
        self.namespaces = Namespaces::default();
        self.carried = Carried::default();
        self.memory.reset();
        let map = cache.local::<NamespaceMap>(&self.settings.map());
        let names = map.into_iter().flat_map(names);
        names.map(|it| WorkItem::Namespace(it.to_owned())).collect()
    }

    fn listed(&mut self, id: &WatchId, cache: &Cache) -> Vec<WorkItem> {
        let Some(namespace) = self.namespaces.of_watch(id, &self.settings.peering) else {
            return Vec::new();
        };
        let items = self.observer(cache).items_in(namespace).into_iter();

        // The root CA of a withdrawn namespace waits until all kinds are known.
        items
            .filter(|it| it.is_of(&id.resource) || *it == observe::root_ca(namespace))
            .collect()
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        match item {
            WorkItem::Namespace(namespace) => self.plan_namespace(namespace, cache),
            WorkItem::Object(kind, key) => {
                let view = View {
                    cache,
                    settings: &self.settings,
                    carried: &self.carried,
                };
                let remote = self.namespaces.remote(&key.namespace);
                let planned = plan::plan(&view, (*kind, key), remote, (&mut self.memory, env.at));
                // Nothing is left to write, or the object is gone.
                if planned.writes.is_empty() && planned.reads.is_empty() {
                    self.carried.remove(item);
                }
                planned
            }
        }
    }

    fn done(
        &mut self,
        item: &WorkItem,
        request: &Request,
        outcome: &Outcome,
        _cache: &Cache,
    ) -> Vec<WorkItem> {
        let WorkItem::Object(kind, _) = item else {
            return Vec::new();
        };
        let can_proceed = match request {
            Request::Write(write) => {
                self.written(item, write, outcome, *kind);
                false
            }
            Request::Read(object) => self.read(item, &object.cluster, outcome, *kind),
            Request::Probe(_) => false,
        };

        Vec::from_iter(can_proceed.then(|| item.clone()))
    }

    /// Namespaces take turns.
    fn queue(item: &WorkItem) -> Queue {
        Queue(item.namespace().to_owned())
    }

    fn item_kind(item: &WorkItem) -> &'static str {
        item.kind()
    }
}

/// Returns the watches of a namespace in its state.
fn watches(
    settings: &Settings,
    (namespace, state): (&str, State<'_>),
    remote: &str,
) -> BTreeSet<WatchId> {
    let kinds = settings.policies.keys().copied();
    let remote = kinds
        .clone()
        .map(|kind| remote_watch(&settings.peering, kind, remote));
    let local = kinds.flat_map(|kind| local_watches(kind, namespace));
    match state {
        State::Accepted(_) => remote.chain(local).collect(),
        // The objects of this cluster no longer matter.
        State::Withdrawn(_) | State::Suspended | State::Absent => remote.collect(),
    }
}
