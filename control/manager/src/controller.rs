//! The network controller: passes changes to the world, and the planner's plans to the runtime.

use crate::kind::{Key, Kind};
use crate::plan::{Notice, Planner, Surroundings};
use crate::task::Task;
use crate::world::Subject;
use crate::write::{Action, Write};
use control_runtime::{
    self as runtime, Cache, Change, Cluster, Controller, Env, Outcome, Plan, Queue, Ref,
    Registration, Request, Resource, Selector, WatchChange, WatchId,
};
use k8s_openapi::api::core::v1::Secret;
use std::collections::{BTreeMap, BTreeSet};

mod registrations;

#[cfg(test)]
pub(crate) use registrations::registration;
use registrations::registrations;

/// Why an Apply takes fields from other field managers.
const FORCE: &str = "only the manager creates these objects, so another field manager is a mistake";

/// Plans addresses, Services, keys and status.
pub(crate) struct NetworkController {
    planner: Planner,
    /// Namespaces whose Secrets are watched.
    watched: BTreeSet<String>,
    /// Secrets that the last plan of a task asked for.
    lookups: BTreeMap<Task, Vec<Key>>,
    metrics: crate::metrics::Metrics,
}

impl NetworkController {
    pub(crate) fn new(planner: Planner, metrics: crate::metrics::Metrics) -> Self {
        Self {
            planner,
            watched: BTreeSet::new(),
            lookups: BTreeMap::new(),
            metrics,
        }
    }

    fn kind_of(&self, object: &Ref) -> Option<Kind> {
        Kind::of(
            &object.resource,
            &object.key,
            &self.planner.settings.namespace,
        )
    }

    /// Adds and removes the watches of Secrets, so that they follow the rights of the manager.
    fn plan_watches(&mut self) -> Plan<Task> {
        let bound = self.planner.world.bound_namespaces();
        let mut plan = Plan::default();
        for namespace in bound.difference(&self.watched) {
            plan.watches.push(WatchChange::Add(secrets(namespace)));
        }
        for namespace in self.watched.difference(&bound) {
            plan.watches.push(WatchChange::Remove(secrets(namespace)));
            let tasks = self.planner.world.forget_secrets(namespace);
            let tasks = tasks
                .into_iter()
                .map(|task| (std::time::Duration::ZERO, task));
            plan.requeue.extend(tasks);
        }
        self.watched = bound;

        plan
    }

    /// Converts a plan of the planner.
    fn convert(&mut self, task: &Task, plan: crate::plan::Plan) -> Plan<Task> {
        let reads = plan.lookups.iter();
        let reads = reads.map(|key| Ref::of::<Secret>(&Cluster::Local, key));
        let mut converted = Plan {
            writes: plan.writes.into_iter().map(convert_write).collect(),
            reads: reads.collect(),
            events: plan.notices.into_iter().map(event).collect(),
            is_incomplete: plan.retry,
            ..Plan::default()
        };
        for later in plan.again {
            converted.requeue.push((std::time::Duration::ZERO, later));
        }
        for key in self.lookups.remove(task).unwrap_or_default() {
            if !plan.lookups.contains(&key) {
                self.planner.world.looked_up.remove(&key);
            }
        }
        if !plan.lookups.is_empty() {
            self.lookups.insert(task.clone(), plan.lookups);
        }

        converted
    }

    /// Remembers why the API server refuses a Service of the gateway, for the peers that requested it.
    fn refuse_service(&mut self, hash: &str, refusal: Option<String>) -> Vec<Task> {
        let refused = &mut self.planner.world.refused_services;
        let old = refused.get(hash).cloned();
        match &refusal {
            Some(message) => refused.insert(hash.to_owned(), message.clone()),
            None => refused.remove(hash),
        };
        if old == refusal {
            return Vec::new();
        }
        let subject = Subject::Service(hash.to_owned());
        self.planner.world.peers_linked(&subject).collect()
    }
}

impl Controller for NetworkController {
    type Item = Task;
    const NAME: &'static str = "network";
    const FIELD_MANAGER: &'static str = "liqo-controller-manager";

    fn resources(&self) -> Vec<Registration> {
        registrations(&self.planner.settings)
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<Task> {
        let Some(kind) = self.kind_of(change.object) else {
            return Vec::new();
        };
        let key = &change.object.key;
        let world = &mut self.planner.world;
        let mut tasks = match change.entry() {
            Some(entry) => world.put(kind, key, entry.shared()),
            None => world.remove(kind, key),
        };
        if matches!(kind, Kind::Namespace | Kind::RoleBinding) {
            tasks.insert(Task::SecretWatches);
        }

        Vec::from_iter(tasks)
    }

    fn started(&mut self, _: &Cache) -> Vec<Task> {
        let mut tasks = self.planner.start();
        tasks.push(Task::SecretWatches);
        tasks
    }

    fn listed(&mut self, id: &WatchId, _: &Cache) -> Vec<Task> {
        let of_tenant = id
            .namespace
            .as_ref()
            .filter(|_| id.resource == Resource::of::<Secret>());
        let Some(namespace) = of_tenant.filter(|it| self.watched.contains(*it)) else {
            return Vec::new();
        };
        Vec::from_iter(self.planner.world.secrets_listed(namespace))
    }

    fn plan(&mut self, task: &Task, _: &Cache, env: &mut Env<'_>) -> Plan<Task> {
        if *task == Task::SecretWatches {
            return self.plan_watches();
        }
        let mut surroundings = Surroundings {
            now: env.now,
            random: env.random,
        };
        let plan = self.planner.plan(task, &mut surroundings);
        let (networks, addresses) = self.planner.counts();
        self.metrics.allocated(networks, addresses);

        self.convert(task, plan)
    }

    fn done(&mut self, task: &Task, request: &Request, outcome: &Outcome, _: &Cache) -> Vec<Task> {
        let object = request.object();
        match (request, outcome, self.kind_of(object)) {
            (Request::Read(_), Outcome::Stored(entry), _) => {
                let secret = entry.get::<Secret>().cloned();
                let looked_up = &mut self.planner.world.looked_up;
                looked_up.insert(object.key.clone(), secret);
                vec![task.clone()]
            }
            (Request::Read(_), Outcome::Gone, _) => {
                let looked_up = &mut self.planner.world.looked_up;
                looked_up.insert(object.key.clone(), None);
                vec![task.clone()]
            }
            // It may be the object of another user: the next plan decides.
            (Request::Write(_), Outcome::AlreadyExists(Some(entry)), Some(kind)) => {
                let tasks = self.planner.world.put(kind, &object.key, entry.shared());
                Vec::from_iter(tasks)
            }
            (Request::Write(_), outcome, Some(Kind::Service)) => match (task, outcome) {
                (Task::Service(hash), Outcome::Refused(status)) => {
                    self.refuse_service(hash, refusal(status))
                }
                (Task::Service(hash), _) => self.refuse_service(hash, None),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn queue(task: &Task) -> Queue {
        match task {
            Task::Peer(peer) => Queue(peer.clone()),
            Task::Configuration(key) => Queue(key.namespace.clone()),
            Task::Tenant(_)
            | Task::Network(_)
            | Task::Node(_)
            | Task::Ip(_)
            | Task::Service(_)
            | Task::SecretWatches => Queue::default(),
        }
    }

    fn item_kind(task: &Task) -> &'static str {
        task.concern()
    }
}

/// Returns the watch of the gateways' Secrets in a namespace.
fn secrets(namespace: &str) -> WatchId {
    WatchId {
        cluster: Cluster::Local,
        resource: Resource::of::<Secret>(),
        namespace: Some(namespace.to_owned()),
        selector: Selector {
            labels: Kind::Secret.selector().unwrap_or_default(),
            name: None,
        },
    }
}

/// Returns why the API server refuses an object, if the reason is the object itself and not a right
/// that the manager lacks.
fn refusal(status: &kube::core::Status) -> Option<String> {
    let is_of_object = matches!(status.code, 400..=499) && !matches!(status.code, 401 | 403);
    is_of_object.then(|| status.message.clone())
}

fn convert_write(write: Write) -> runtime::Write {
    let object = Ref {
        cluster: Cluster::Local,
        resource: write.kind.resource(),
        key: write.key,
    };
    let (action, uid) = match write.action {
        Action::Create(object) => (runtime::Action::Create(object), None),
        Action::Apply(object) => (runtime::Action::Apply(object), None),
        Action::Merge(patch) => (runtime::Action::Merge(patch), None),
        Action::Status(patch) => {
            let status = runtime::Write::new(object, runtime::Action::Merge(patch));
            return status.subresource("status");
        }
        Action::Delete(uid) => (runtime::Action::Delete, uid),
    };
    let is_apply = matches!(action, runtime::Action::Apply(_));
    let mut converted = runtime::Write::new(object, action);
    converted.uid = uid;
    converted.force = is_apply.then_some(FORCE);

    converted
}

fn event(notice: Notice) -> runtime::Event {
    runtime::Event {
        object: Ref {
            cluster: Cluster::Local,
            resource: notice.kind.resource(),
            key: notice.key,
        },
        is_warning: notice.is_warning,
        reason: notice.reason,
        note: notice.note,
    }
}

#[cfg(test)]
mod tests;
