//! Connects reflection to the runtime.

use super::conflicts::Conflicts;
use super::desired::View;
use super::events::{kind_refused, namespace_omitted};
use super::item::WorkItem;
use super::kind::Kind;
use super::memory::Memory;
use super::namespaces::{Namespaces, State, names};
use super::observe;
use super::omitted::Omitted;
use super::plan;
use super::refusals::Refusals;
use super::registrations::{
    FIELD_MANAGER, local_watch, local_watches, registrations, remote_watch,
};
use super::settings::Settings;
use super::status;
use crate::reflected::Reflected;
use control_api::NamespaceMap;
use control_runtime::{
    Cache, Carried, Change, Cluster, Controller, Env, Outcome, Plan, Queue, Registration, Request,
    WatchId,
};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

mod outcomes;

/// Reflects objects of this cluster into the namespaces of a provider.
pub(crate) struct ReflectionController {
    settings: Settings,
    namespaces: Namespaces,
    carried: Carried<WorkItem>,
    memory: Memory,
    refusals: Refusals,
    reflected: Reflected,
    omitted: Omitted,
}

impl ReflectionController {
    /// Creates the controller.
    pub(crate) fn new(settings: Settings, conflicts: Conflicts) -> Self {
        Self {
            settings,
            namespaces: Namespaces::default(),
            carried: Carried::default(),
            memory: Memory::new(conflicts),
            refusals: Refusals::default(),
            reflected: Reflected::default(),
            omitted: Omitted::default(),
        }
    }

    /// Counts what is reflected.
    pub(crate) fn counted(self, reflected: Reflected) -> Self {
        Self { reflected, ..self }
    }

    /// Counts the namespaces that are left out.
    pub(crate) fn omitting(self, omitted: Omitted) -> Self {
        Self { omitted, ..self }
    }

    /// Follows fewer namespaces.
    #[cfg(test)]
    pub(super) fn following(self, max: usize) -> Self {
        let namespaces = Namespaces::with_max(max);
        Self { namespaces, ..self }
    }

    fn observer<'a>(&'a self, cache: &'a Cache) -> observe::Observer<'a> {
        observe::Observer {
            cache,
            settings: &self.settings,
            namespaces: &self.namespaces,
        }
    }

    fn plan_namespace(
        &mut self,
        namespace: &str,
        (cache, now): (&Cache, Instant),
    ) -> Plan<WorkItem> {
        let mut plan = Plan::default();
        let map = self.settings.map();
        let state = State::in_cache(cache, &map, namespace);
        let settings = &self.settings;
        let of_remote = |remote: &str| watches(cache, settings, (namespace, state), remote);
        let is_followed = self.namespaces.remote(namespace).is_some();
        let is_omitted = self.namespaces.plan(namespace, state, of_remote, &mut plan);
        let is_accepted = matches!(state, State::Accepted(_));
        if self.omitted.note(namespace, is_omitted) && is_accepted {
            let destination = &self.settings.peering.destination;
            plan.events.push(namespace_omitted(namespace, destination));
        }
        if !is_followed {
            // Watches that another leader or controller has added are listed already.
            let items = self.observer(cache).items_in(namespace).into_iter();
            plan.requeue.extend(items.map(|it| (Duration::ZERO, it)));
        }
        self.report_refusals(namespace, (cache, now), &mut plan);

        plan
    }

    /// Reports the kinds that flags name and of which a cluster refuses the watch in a namespace.
    fn report_refusals(
        &mut self,
        namespace: &str,
        (cache, now): (&Cache, Instant),
        plan: &mut Plan<WorkItem>,
    ) {
        let Some(remote) = self.namespaces.remote(namespace) else {
            let namespaces = &self.namespaces;
            let peering = &self.settings.peering;
            self.refusals
                .retain(|id| namespaces.of_watch(id, peering).is_some());
            return;
        };
        let destination = self.settings.peering.destination.as_str();
        for kind in self.settings.others() {
            let local = local_watch(kind.local(), namespace);
            for id in [remote_watch(&self.settings.peering, kind, remote), local] {
                let refusal = cache.refusal(&id);
                if self.refusals.is_due(&id, refusal, now)
                    && let Some(message) = refusal
                {
                    let event = kind_refused((namespace, kind), (destination, &id), message);
                    plan.events.push(event);
                }
            }
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
        let is_local = change.object.cluster == Cluster::Local;
        let kind = self.settings.kind_of_local(&change.object.resource);
        if let (true, Some(kind)) = (is_local, kind) {
            let item = WorkItem::Object(kind, change.object.key.clone());
            match change.entry() {
                Some(entry) if items.contains(&item) => self.carried.put(item, entry),
                Some(_) | None => self.carried.remove(&item),
            }
        }
        // The status is that of the provider's object.
        let status = items.iter().find(|it| matches!(it, WorkItem::Status(..)));
        if let (false, Some(item), Some(entry)) = (is_local, status, change.entry()) {
            self.carried.put(item.clone(), entry);
        }

        Vec::from_iter(items)
    }

    /// The watches of a former leader have ended.
    fn started(&mut self, cache: &Cache) -> Vec<WorkItem> {
        self.namespaces.clear();
        self.carried = Carried::default();
        self.memory.reset();
        self.refusals = Refusals::default();
        self.omitted.reset();
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
        let items = items.filter(|it| it.is_of(&id.resource) || *it == observe::root_ca(namespace));
        // The watches of kinds that flags name follow those of other kinds.
        let further = self.settings.others().next();
        let further = further.map(|_| WorkItem::Namespace(namespace.to_owned()));
        items.chain(further).collect()
    }

    fn refused(&mut self, id: &WatchId, _cache: &Cache) -> Vec<WorkItem> {
        let kind = self.settings.kind_of_remote(&id.resource);
        let namespace = self.namespaces.of_watch(id, &self.settings.peering);
        let namespace = namespace.filter(|_| kind.is_some_and(Kind::is_other));
        let items = namespace.map(|namespace| {
            let report = WorkItem::Namespace(namespace.to_owned());
            // That of a withdrawn namespace does not wait for the kind.
            [report, observe::root_ca(namespace)]
        });

        items.into_iter().flatten().collect()
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        match item {
            WorkItem::Namespace(namespace) => self.plan_namespace(namespace, (cache, env.at)),
            WorkItem::Object(kind, key) | WorkItem::Status(kind, key) => {
                let view = View {
                    cache,
                    settings: &self.settings,
                    carried: &self.carried,
                };
                let remote = self.namespaces.remote(&key.namespace);
                let memory = (&mut self.memory, env.at);
                let planned = match item {
                    WorkItem::Status(..) => status::plan(&view, (*kind, key), remote, memory),
                    WorkItem::Object(..) | WorkItem::Namespace(_) => {
                        plan::plan(&view, (*kind, key), remote, memory)
                    }
                };
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
        cache: &Cache,
    ) -> Vec<WorkItem> {
        let can_proceed = match (item, request) {
            (WorkItem::Object(kind, _), Request::Write(write)) => {
                self.written(item, write, outcome, *kind);
                self.reflected.count(item.namespace(), request, outcome);
                false
            }
            (WorkItem::Object(kind, _), Request::Read(object)) => {
                self.read(item, object, outcome, (*kind, cache))
            }
            (WorkItem::Status(..), Request::Write(write)) => {
                self.wrote_status(item, &write.object, outcome, cache)
            }
            (WorkItem::Status(..), Request::Read(object)) => {
                self.read_for_status(item, object, outcome, cache)
            }
            (WorkItem::Namespace(_), _) | (_, Request::Probe(_)) => false,
        };
        // The status of the provider is now about the generation of this cluster, even if the write has changed nothing.
        let status = match (item, request, outcome) {
            (WorkItem::Object(kind, key), Request::Write(_), Outcome::Stored(_))
                if kind.has_status() =>
            {
                Some(WorkItem::Status(*kind, key.clone()))
            }
            _ => None,
        };

        can_proceed
            .then(|| item.clone())
            .into_iter()
            .chain(status)
            .collect()
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
///
/// The watches of kinds that flags name start after others: once one of these is listed, the rights of the namespace are in effect, and
/// a refusal means that a right is missing.
fn watches(
    cache: &Cache,
    settings: &Settings,
    (namespace, state): (&str, State<'_>),
    remote: &str,
) -> BTreeSet<WatchId> {
    let (others, kinds): (Vec<_>, Vec<_>) =
        (settings.policies.keys().copied()).partition(|it| it.is_other());
    // The objects of this cluster matter only while the namespace is offloaded.
    let is_accepted = matches!(state, State::Accepted(_));
    let of_kinds = |kinds: &[Kind]| {
        let remote = kinds
            .iter()
            .map(|kind| remote_watch(&settings.peering, *kind, remote));
        let local = kinds.iter().filter(|_| is_accepted);
        let local = local.flat_map(|kind| local_watches(*kind, namespace));
        remote.chain(local).collect::<BTreeSet<_>>()
    };
    let mut watches = of_kinds(&kinds);
    let is_served = [true, false].into_iter().all(|is_local| {
        let of_cluster = |id: &&WatchId| (id.cluster == Cluster::Local) == is_local;
        let mut of_cluster = watches.iter().filter(of_cluster).peekable();
        of_cluster.peek().is_none() || of_cluster.any(|id| cache.is_synced(id))
    });
    if is_served {
        watches.extend(of_kinds(&others));
    }

    watches
}
