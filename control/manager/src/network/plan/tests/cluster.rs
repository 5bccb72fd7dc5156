//! An API server in memory, and a manager that runs the planner.

use super::api_server::{applied, assert_right, complete_service, is_watched, key_in};
use super::queue::Queue;
use crate::network::controller::{registration, registrations, secrets};
use crate::network::item::WorkItem;
use crate::network::kind::{Key, Kind};
use crate::network::local::IndexKey;
use crate::network::plan::{Env, Notice, State};
use crate::network::settings::Settings;
use crate::network::write::{Action, Write};
use control_runtime::{Cache, Changed, Ref};
use fake_apiserver::merged;
use ipam::DEFAULT_POOLS;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Limit of steps, which detects a plan that does not converge. No test needs as many.
const STEPS_MAX: usize = 20_000;

/// The objects of a cluster, and its manager.
pub(super) struct Cluster {
    pub(super) state: State,
    cache: Cache,
    pub(super) objects: BTreeMap<(Kind, Key), Value>,
    /// All writes since the last call.
    pub(super) writes: Vec<Write>,
    /// The work items planned since the last call.
    pub(super) planned: Vec<WorkItem>,
    /// Keys of all objects that the manager has created.
    pub(super) created: BTreeSet<(Kind, Key)>,
    /// All Events.
    pub(super) notices: Vec<Notice>,
    /// Node ports that the API server refuses as already allocated.
    pub(super) taken_ports: Vec<u16>,
    queue: Queue,
    started: bool,
    counter: u64,
}

impl Clone for Cluster {
    fn clone(&self) -> Self {
        let mut cache = cache();
        for namespace in &self.state.derived.watched {
            cache.fixture_watch(&secrets(namespace));
        }
        for change in self.cache.fixture_replay() {
            let change = change.as_change();
            let kind = Kind::of(&change.object.resource, &change.object.key, "liqo").unwrap();
            let registration = registration(kind, &self.state.settings);
            cache.fixture_put(&registration, change.entry().unwrap().clone());
        }
        Self {
            state: self.state.clone(),
            cache,
            objects: self.objects.clone(),
            writes: self.writes.clone(),
            planned: self.planned.clone(),
            created: self.created.clone(),
            notices: self.notices.clone(),
            taken_ports: self.taken_ports.clone(),
            queue: self.queue.clone(),
            started: self.started,
            counter: self.counter,
        }
    }
}

impl Cluster {
    pub(super) fn new() -> Self {
        Self {
            state: State::new(settings()).unwrap(),
            cache: cache(),
            objects: BTreeMap::new(),
            writes: Vec::new(),
            planned: Vec::new(),
            created: BTreeSet::new(),
            notices: Vec::new(),
            taken_ports: Vec::new(),
            queue: Queue::default(),
            started: false,
            counter: 0,
        }
    }

    /// Creates or replaces an object as a user does, with its status.
    ///
    /// Creates the tenant namespace of a peer's object first, unless it exists.
    pub(super) fn put(&mut self, kind: Kind, object: Value) -> Key {
        let key = key_in(&object);
        let peer = &object["metadata"]["labels"]["liqo.io/remote-cluster-id"];
        let namespace = (Kind::Namespace, Key::cluster(key.namespace.clone()));
        if key.namespace.starts_with("liqo-tenant-") && !self.objects.contains_key(&namespace) {
            let labels =
                json!({"liqo.io/remote-cluster-id": peer, "liqo.io/tenant-namespace": "true"});
            let metadata = json!({"name": key.namespace, "labels": labels});
            self.store(
                Kind::Namespace,
                namespace.1,
                json!({ "metadata": metadata }),
                true,
            );
        }
        self.store(kind, key.clone(), object, true);
        key
    }

    /// Changes an object as a user does.
    pub(super) fn edit(&mut self, kind: Kind, key: &Key, patch: Value) {
        let old = self.objects[&(kind, key.clone())].clone();
        self.store(kind, key.clone(), merged(old, patch), true);
    }

    /// Changes an object without a watch event, for managers that start later.
    pub(super) fn store_silently(&mut self, kind: Kind, key: &Key, patch: Value) {
        let object = self.objects.get_mut(&(kind, key.clone())).unwrap();
        *object = merged(object.take(), patch);
    }

    /// Deletes an object and the objects that it owns, as the garbage collector does.
    pub(super) fn delete(&mut self, kind: Kind, key: &Key) {
        let Some(object) = self.remove_alone(kind, key) else {
            return;
        };
        let uid = object["metadata"]["uid"].clone();
        let owned: Vec<_> = self
            .objects
            .iter()
            .filter(|(_, child)| {
                let owners = child["metadata"]["ownerReferences"].as_array();
                owners
                    .into_iter()
                    .flatten()
                    .any(|owner| owner["uid"] == uid)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for (kind, key) in owned {
            self.delete(kind, &key);
        }
    }

    /// Deletes an object, but not the objects that it owns.
    pub(super) fn remove_alone(&mut self, kind: Kind, key: &Key) -> Option<Value> {
        let object = self.objects.remove(&(kind, key.clone()))?;
        self.forget(kind, key);
        if matches!(kind, Kind::RoleBinding | Kind::Namespace) {
            self.forget_unbound();
        }
        Some(object)
    }

    /// Stops the manager and starts another one.
    pub(super) fn restart(&mut self) {
        self.state = State::new(settings()).unwrap();
        self.cache = cache();
        self.queue = Queue::default();
        self.started = false;
        let objects: Vec<_> = self.objects.clone().into_iter().collect();
        for ((kind, key), object) in objects {
            if kind != Kind::Secret {
                self.deliver(kind, object);
            }
            if kind == Kind::RoleBinding {
                self.list_secrets(&key.namespace);
            }
        }
    }

    /// Reports the Secrets of a namespace to the manager, as its watch does once it has the right.
    fn list_secrets(&mut self, namespace: &str) {
        let listed: Vec<_> = self
            .objects
            .iter()
            .filter(|((kind, key), object)| {
                *kind == Kind::Secret && key.namespace == namespace && is_watched(*kind, object)
            })
            .map(|(_, secret)| secret.clone())
            .collect();
        self.state.derived.watched.insert(namespace.to_owned());
        self.cache.fixture_watch(&secrets(namespace));
        for secret in listed {
            self.deliver(Kind::Secret, secret);
        }
        let items = self.state.local(&self.cache).items_of_gateways(namespace);
        items.into_iter().for_each(|item| self.queue.push(item));
    }

    /// Returns whether the manager has the right to read Secrets of a namespace.
    fn is_bound(&self, namespace: &str) -> bool {
        self.state.local(&self.cache).is_bound(namespace)
    }

    /// Runs the manager until its queue is empty, and returns its writes.
    pub(super) fn settle(&mut self) -> Vec<Write> {
        if !self.started {
            self.started = true;
            let mut items = BTreeSet::new();
            for change in self.cache.fixture_replay() {
                let change = change.as_change();
                let object = change.object;
                let kind = Kind::of(&object.resource, &object.key, "liqo").unwrap();
                items.extend(self.state.observe(kind, &change, &self.cache));
            }
            self.state.start(&self.cache);
            items.into_iter().for_each(|item| self.queue.push(item));
        }
        let mut retried = BTreeMap::<WorkItem, u32>::new();
        let mut now = Instant::now();
        for _ in 0..STEPS_MAX {
            now += Duration::from_millis(1);
            let Some(item) = self.queue.pop(now) else {
                let Some(at) = self.queue.next_at(now) else {
                    return std::mem::take(&mut self.writes);
                };
                now = at;
                continue;
            };
            if !self.work(&item) {
                let times = retried.entry(item.clone()).or_default();
                *times += 1;
                if *times < 5 {
                    self.queue.failed(item, now);
                }
            }
        }
        panic!(
            "no convergence: {:#?}",
            &self.writes[self.writes.len() - 10..]
        );
    }

    /// Stops the watches of Secrets to which the manager has no right any more.
    fn forget_unbound(&mut self) {
        let namespaces: BTreeSet<_> = self
            .objects
            .keys()
            .map(|(_, key)| key.namespace.clone())
            .collect();
        for namespace in namespaces {
            if self.is_readable(&namespace) && !self.is_bound(&namespace) {
                self.state.derived.watched.remove(&namespace);
                let items = self.state.local(&self.cache).items_of_gateways(&namespace);
                items.into_iter().for_each(|item| self.queue.push(item));
                for change in self.cache.fixture_unwatch(&secrets(&namespace)) {
                    self.observe(Kind::Secret, Some(change));
                }
            }
        }
    }

    pub(super) fn get(&self, kind: Kind, key: &Key) -> &Value {
        static NONE: Value = Value::Null;
        self.objects.get(&(kind, key.clone())).unwrap_or(&NONE)
    }

    pub(super) fn names(&self, kind: Kind) -> Vec<String> {
        let names = self.objects.keys().filter(|(found, _)| *found == kind);
        names.map(|(_, key)| key.to_string()).collect()
    }

    pub(super) fn work(&mut self, item: &WorkItem) -> bool {
        self.planned.push(item.clone());
        let plan = loop {
            let mut counter = self.counter;
            let mut random = || {
                counter += 1;
                let mut bytes = [7; 32];
                bytes[..8].copy_from_slice(&counter.to_le_bytes());
                bytes
            };
            let mut env = Env {
                now: Timestamp::from_second(i64::try_from(self.counter).unwrap()).unwrap(),
                at: Instant::now(),
                random: &mut random,
            };
            let plan = self.state.plan(item, &self.cache, &mut env);
            self.counter = counter;
            if plan.lookups.is_empty() {
                break plan;
            }
            for key in plan.lookups {
                assert!(
                    self.is_bound(&key.namespace),
                    "no right to read Secret {key}"
                );
                let secret = self.objects.get(&(Kind::Secret, key.clone()));
                let secret = secret.map(|it| serde_json::from_value::<Secret>(it.clone()));
                let Ok(secret) = secret.transpose() else {
                    self.state.derived.looked_up.clear();
                    return false;
                };
                self.state.derived.looked_up.insert(key, secret);
            }
        };
        self.state.derived.looked_up.clear();
        let mut is_done = !plan.retry;
        for write in plan.writes {
            self.writes.push(write.clone());
            is_done &= self.write(item, write);
        }
        self.notices.extend(plan.notices);
        plan.again
            .into_iter()
            .for_each(|item| self.queue.push(item));
        is_done
    }

    /// Executes a write as an API server does. Returns whether it succeeded.
    fn write(&mut self, item: &WorkItem, write: Write) -> bool {
        assert_right(&write);
        let name = (write.kind, write.key.clone());
        if write.kind == Kind::Secret {
            assert!(
                self.is_bound(&write.key.namespace),
                "no right to write {write:?}"
            );
        }
        let present = self.objects.get(&name).cloned();
        if present.is_none() && matches!(write.action, Action::Create(_) | Action::Apply(_)) {
            self.created.insert(name.clone());
        }
        if self.is_refused(item, &write) {
            return false;
        }
        match (write.action, present) {
            (Action::Create(mut object), None) => {
                if let Some(fields) = object.as_object_mut() {
                    fields.remove("status");
                }
                self.store(write.kind, write.key, object, false);
            }
            (Action::Create(_), Some(present)) => {
                if is_watched(write.kind, &present) {
                    self.deliver(write.kind, present);
                } else {
                    let registration = registration(write.kind, &self.state.settings);
                    let entry = registration.decode(&present.to_string()).unwrap();
                    self.state.derived.foreign.insert(name, entry);
                }
                return false;
            }
            (Action::Apply(object), present) => {
                let object = applied(write.kind, present.unwrap_or_default(), object);
                self.store(write.kind, write.key, object, false);
            }
            (
                Action::Merge(patch) | Action::Status(patch) | Action::PruneStatus(patch),
                Some(present),
            ) => {
                self.store(write.kind, write.key, merged(present, patch), false);
            }
            (Action::Merge(_) | Action::Status(_) | Action::PruneStatus(_), None) => {}
            (Action::Delete(uid), Some(present)) => {
                if uid.is_none_or(|uid| present["metadata"]["uid"] == uid) {
                    self.delete(write.kind, &write.key);
                }
            }
            (Action::Delete(_), None) => {}
        }
        true
    }

    /// Returns whether the API server refuses a Service because its node port is already allocated, and
    /// reports the refusal to the planner.
    fn is_refused(&mut self, item: &WorkItem, write: &Write) -> bool {
        let (WorkItem::Service(hash), Kind::Service) = (item, write.kind) else {
            return false;
        };
        let (Action::Create(object) | Action::Apply(object) | Action::Merge(object)) =
            &write.action
        else {
            return false;
        };
        let port = &object["spec"]["ports"][0]["nodePort"];
        if !self.taken_ports.iter().any(|taken| port == taken) {
            return false;
        }
        let message = "provided port is already allocated".to_owned();
        let refused = &mut self.state.derived.refused_services;
        refused.insert(hash.clone(), message);
        let index_key = IndexKey::service(hash);
        let peers = self.state.local(&self.cache).peers_indexed(&index_key);
        peers.for_each(|item| self.queue.push(item));
        true
    }

    /// Stores an object as an API server does, and reports the change as the manager's watches do.
    fn store(&mut self, kind: Kind, key: Key, mut object: Value, by_user: bool) {
        self.counter += 1;
        let resource = kind.resource();
        object["apiVersion"] = json!(resource.api_version());
        object["kind"] = json!(resource.kind);
        let old = self.objects.get(&(kind, key.clone()));
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(self.counter.to_string());
        let old_meta = |field: &str| old.map(|old| old["metadata"][field].clone());
        let created = Timestamp::from_second(i64::try_from(self.counter).unwrap()).unwrap();
        metadata["uid"] = old_meta("uid").unwrap_or(json!(format!("uid-{}", self.counter)));
        metadata["creationTimestamp"] = old_meta("creationTimestamp").unwrap_or(json!(created));
        let generation = old.map_or(0, |old| old["metadata"]["generation"].as_i64().unwrap_or(0));
        let is_new = old.is_none_or(|old| old["spec"] != object["spec"]);
        object["metadata"]["generation"] = json!(generation + i64::from(is_new));
        if kind == Kind::Service {
            complete_service(&mut object, self.counter);
        }
        self.objects.insert((kind, key.clone()), object.clone());
        let is_seen = kind != Kind::Secret || self.is_readable(&key.namespace);
        if is_seen && (is_watched(kind, &object) || !by_user) {
            self.deliver(kind, object);
            if matches!(kind, Kind::RoleBinding | Kind::Namespace) {
                self.forget_unbound();
            }
            if kind == Kind::RoleBinding && self.is_bound(&key.namespace) {
                self.list_secrets(&key.namespace);
            }
        } else if self.started {
            self.forget(kind, &key);
        }
    }

    /// Removes an object from the cache, as a watch reports it.
    fn forget(&mut self, kind: Kind, key: &Key) {
        self.state.derived.foreign.remove(&(kind, key.clone()));
        let change = self.cache.fixture_remove(&Ref {
            cluster: control_runtime::Cluster::Local,
            resource: kind.resource(),
            key: key.clone(),
        });
        self.observe(kind, change);
    }

    fn observe(&mut self, kind: Kind, change: Option<Changed>) {
        let Some(change) = change else {
            return;
        };
        let items = self.state.observe(kind, &change.as_change(), &self.cache);
        if self.started {
            items.into_iter().for_each(|item| self.queue.push(item));
        }
    }

    fn is_readable(&self, namespace: &str) -> bool {
        self.state.local(&self.cache).is_readable(namespace)
    }

    pub(super) fn deliver(&mut self, kind: Kind, object: Value) {
        let registration = registration(kind, &self.state.settings);
        let Ok(entry) = registration.decode(&object.to_string()) else {
            return;
        };
        let id = (kind, entry.key.clone());
        self.state.derived.foreign.remove(&id);
        let change = self.cache.fixture_put(&registration, entry);
        self.observe(kind, change);
    }
}

fn cache() -> Cache {
    let mut settings = settings();
    settings.deployment_image = Some("pause".to_owned());
    Cache::fixture(&registrations(&settings)).unwrap()
}

/// Returns the settings of an installation in the namespace `liqo`.
pub(crate) fn settings() -> Settings {
    Settings {
        namespace: "liqo".to_owned(),
        tenant_namespaces: vec!["named".to_owned()],
        pools: DEFAULT_POOLS.to_vec(),
        gateway_port: 51840,
        exposes_api_server: true,
        deployment_image: None,
        installation: Some(OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            name: "liqo-controller-manager".to_owned(),
            uid: "uid-installation".to_owned(),
            ..OwnerReference::default()
        }),
    }
}
