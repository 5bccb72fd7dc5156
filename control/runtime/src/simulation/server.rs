//! The API server of one cluster, in memory.

use super::fields::{Owners, merge};
use super::parts::{is_selected, key, scope, text};
use crate::controller::{Action, Answer, Outcome, Request, Write, named};
use crate::entry::Signal;
use crate::execute::{content, missing, refusal};
use crate::registration::Form;
use control_client::object::{Cluster, Key, Ref, Resource};
use control_client::watch::WatchId;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::core::Status;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

type Id = (Resource, Key);

/// Sets fields in a new object.
type SetDefaults = fn(&mut Value);

/// Objects of one cluster, and the history of their changes.
#[derive(Debug)]
pub struct Server {
    cluster: Cluster,
    objects: BTreeMap<Id, Stored>,
    history: Vec<Change>,
    version: u64,
    lists: usize,
    /// The time of its clock.
    pub(super) now: Timestamp,
    /// Fields that it sets in new objects of a resource.
    defaults: Vec<(Resource, SetDefaults)>,
    /// Whether it refuses all requests but reviews of the rights.
    pub(super) is_refusing: bool,
    /// A right that it refuses.
    refused: Option<Right>,
    /// Whether reviews say that all rights are given.
    is_lying: bool,
    /// Whether its certificate is of the authority that its clients know.
    pub(super) is_trusted: bool,
    /// Fields that the schema of a resource lacks, as an older CRD does: writes drop them.
    pruned: Vec<(Resource, &'static str)>,
}

/// A verb, and the plural of a resource.
type Right = (&'static str, &'static str);

#[derive(Clone, Debug)]
struct Stored {
    object: Value,
    owners: Owners,
}

#[derive(Clone, Debug)]
struct Change {
    id: Id,
    object: Value,
    /// Labels before the change; `None` if the object was created.
    labels_before: Option<Value>,
    is_deletion: bool,
}

/// Field manager of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manager {
    pub(super) name: &'static str,
    /// Whether an Apply takes fields from other field managers.
    pub(super) force: bool,
    /// Whether an Apply removes fields that the manager has created and that the Apply leaves.
    pub(super) adopts: bool,
}

impl Server {
    pub(super) fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            objects: BTreeMap::new(),
            history: Vec::new(),
            version: 0,
            lists: 0,
            now: Timestamp::default(),
            defaults: Vec::new(),
            is_refusing: false,
            refused: None,
            is_lying: false,
            is_trusted: true,
            pruned: Vec::new(),
        }
    }

    /// Creates or replaces an object, with its status, as another client does.
    pub fn put<K: kube::Resource<DynamicType = ()>>(&mut self, object: Value) {
        let id = (Resource::of::<K>(), key(&object));
        let owners = self.objects.get(&id).map(|stored| stored.owners.clone());
        self.store(id, object, owners.unwrap_or_default());
    }

    /// Creates a namespace. Writes to namespaces that do not exist are refused.
    pub fn put_namespace(&mut self, name: &str) {
        self.put::<Namespace>(json!({"metadata": {"name": name}}));
    }

    /// Deletes an object, as another client does. A pod of a node is terminated gracefully.
    pub fn remove<K: kube::Resource<DynamicType = ()>>(&mut self, key: &Key) {
        self.delete_now::<K>(key, false);
    }

    /// Deletes an object without grace period, as the kubelet does when a pod has ended.
    pub fn terminate<K: kube::Resource<DynamicType = ()>>(&mut self, key: &Key) {
        self.delete_now::<K>(key, true);
    }

    fn delete_now<K: kube::Resource<DynamicType = ()>>(&mut self, key: &Key, is_immediate: bool) {
        let id = (Resource::of::<K>(), key.clone());
        let mut write = Write::new(Ref::of::<K>(&self.cluster, key), Action::Delete);
        write.is_immediate = is_immediate;
        // An object that is gone is the aim.
        self.delete(&id, &write).ok();
    }

    /// Returns an object.
    pub fn get<K: kube::Resource<DynamicType = ()>>(&self, key: &Key) -> Option<&Value> {
        let stored = self.objects.get(&(Resource::of::<K>(), key.clone()));
        stored.map(|stored| &stored.object)
    }

    /// Returns all objects of a type.
    pub fn all<K: kube::Resource<DynamicType = ()>>(&self) -> Vec<&Value> {
        let resource = Resource::of::<K>();
        let objects = self.objects.iter();
        let objects = objects.filter(|((other, _), _)| *other == resource);
        objects.map(|(_, stored)| &stored.object).collect()
    }

    /// Drops a field of the objects of a type in writes, as an older CRD without the field does.
    pub fn prune<K: kube::Resource<DynamicType = ()>>(&mut self, field: &'static str) {
        self.pruned.push((Resource::of::<K>(), field));
    }

    /// Sets fields of the objects of a type that requests create, as an API server sets the user of a
    /// CertificateSigningRequest.
    pub fn set_defaults<K: kube::Resource<DynamicType = ()>>(&mut self, set: SetDefaults) {
        self.defaults.push((Resource::of::<K>(), set));
    }

    /// Withdraws the rights of all requests, or gives them again. Watches that were listed go on, as Kubernetes
    /// does not end them.
    pub fn refuse(&mut self, is_refusing: bool) {
        self.is_refusing = is_refusing;
    }

    /// Withdraws one right, or gives it again. If `is_lying`, reviews say that it is given.
    pub fn refuse_right(&mut self, right: Option<Right>, is_lying: bool) {
        self.refused = right;
        self.is_lying = is_lying;
    }

    /// Replaces its certificate by one of another authority, or by the original one. Clients then send it nothing.
    pub fn trust(&mut self, is_trusted: bool) {
        self.is_trusted = is_trusted;
    }

    /// Returns whether the right to list a resource is withdrawn.
    pub(super) fn refuses_lists(&self, id: &WatchId) -> bool {
        self.refused == Some(("list", &*id.resource.plural))
    }

    /// Returns the number of lists so far.
    pub fn lists(&self) -> usize {
        self.lists
    }

    /// Returns the fields that more than one field manager has applied, with the managers.
    pub fn shared_fields(&self) -> Vec<String> {
        let objects = self.objects.iter();
        let shared = objects.flat_map(|((resource, key), stored)| {
            let shared = stored.owners.shared().into_iter();
            shared.map(move |(path, owners)| {
                let (path, owners) = (path.join("."), owners.join(", "));
                format!("{path} of {resource} {key}: {owners}")
            })
        });
        shared.collect()
    }

    /// Removes all objects, as the API server of another cluster with the same name has others.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.cluster.clone());
    }

    /// Returns the version of an object, which each change of it increases.
    pub(super) fn version(&self, object: &Ref) -> Option<u64> {
        let id = (object.resource.clone(), object.key.clone());
        text(&self.objects.get(&id)?.object, "resourceVersion")
            .parse()
            .ok()
    }

    /// Carries out a request. `form` decodes the object that is returned.
    pub(super) fn answer(
        &mut self,
        request: &Request,
        manager: Manager,
        form: Option<&dyn Form>,
    ) -> Outcome {
        let Some(object) = request.object() else {
            return self.probe();
        };
        let id = (object.resource.clone(), object.key.clone());
        if object.resource.kind == "SelfSubjectAccessReview" {
            return self.review(request);
        }
        let cluster = &object.cluster;
        let verb = match request {
            Request::Write(write) => write.action.verb(),
            Request::Read(_) | Request::Probe(_) => "get",
        };
        let is_refused = self.refused == Some((verb, &*object.resource.plural));
        let result = match request {
            _ if self.is_refusing || is_refused => Err((403, "Forbidden")),
            Request::Read(_) => self
                .objects
                .get(&id)
                .map(|it| it.object.clone())
                .ok_or(NOT_FOUND),
            Request::Write(write) => self.write(write, id.clone(), manager),
            Request::Probe(_) => Ok(Value::Null),
        };
        let decode =
            |object: &Value| match form.map(|form| form.decode(&object.to_string(), cluster)) {
                Some(Ok(entry)) => Outcome::Stored(entry),
                Some(Err(error)) => Outcome::Failed(error.to_string()),
                None => Outcome::Answer(Answer(object.clone())),
            };
        let outcome = match result {
            Ok(Value::Null) => return Outcome::Gone,
            Ok(object) => {
                return match request {
                    Request::Read(_) => decode(&object).with_managers(&object.to_string()),
                    Request::Write(_) | Request::Probe(_) => decode(&object),
                };
            }
            Err((code, reason)) => {
                let message = format!("{object}: {reason}");
                refusal(Box::new(Status::failure(&message, reason).with_code(code)))
            }
        };
        match (outcome, request) {
            (Outcome::AlreadyExists(_), _) => {
                let existing = self.objects.get(&id).map(|it| decode(&it.object));
                Outcome::AlreadyExists(match existing {
                    Some(Outcome::Stored(entry)) => Some(entry),
                    _ => None,
                })
            }
            (outcome, Request::Write(write)) => missing(write, outcome),
            (outcome, Request::Read(_) | Request::Probe(_)) => outcome,
        }
    }

    /// Responds to a review of a right.
    fn review(&self, request: &Request) -> Outcome {
        let attributes = match request {
            Request::Write(write) => content(write)["spec"]["resourceAttributes"].take(),
            Request::Read(_) | Request::Probe(_) => Value::Null,
        };
        let is_refused = self.refused.is_some_and(|(verb, plural)| {
            attributes["verb"] == verb && attributes["resource"] == plural
        });
        let is_allowed = self.is_lying || !self.is_refusing && !is_refused;

        Outcome::Answer(Answer(json!({"status": {"allowed": is_allowed}})))
    }

    /// Responds to a probe, or to a client that does not trust it.
    pub(super) fn probe(&self) -> Outcome {
        match self.is_trusted {
            true => Outcome::Answer(Answer(Value::Null)),
            false => Outcome::Untrusted("invalid peer certificate: UnknownIssuer".into()),
        }
    }

    /// Returns the object after a write; `Null` if it is gone.
    fn write(&mut self, write: &Write, id: Id, manager: Manager) -> Result<Value, Refusal> {
        let mut body = content(write);
        let namespace = (Resource::of::<Namespace>(), Key::cluster(&id.1.namespace));
        if !id.1.namespace.is_empty() && !self.objects.contains_key(&namespace) {
            return Err(NOT_FOUND);
        }
        if write.action == Action::Delete {
            return self.delete(&id, write);
        }
        if write.subresource == Some("eviction") {
            let uid = body["deleteOptions"]["preconditions"]["uid"].as_str();
            let mut deletion = Write::new(write.object.clone(), Action::Delete);
            deletion.uid = uid.map(str::to_owned);
            // As if the kubelet had ended the pod at once.
            deletion.is_immediate = true;
            return self.delete(&id, &deletion).map(|_| Value::Null);
        }
        for (resource, field) in &self.pruned {
            if *resource == id.0 {
                body.as_object_mut().and_then(|body| body.remove(*field));
            }
        }
        let mut stored = self.target(write, &id)?;
        let created = manager.adopts.then(|| body.clone());
        if !self.objects.contains_key(&id) {
            let defaults = self.defaults.iter();
            let defaults = defaults.filter(|(resource, _)| *resource == id.0);
            defaults.for_each(|(_, set)| set(&mut body));
        }
        let before = stored.object.clone();
        for field in ["uid", "resourceVersion"] {
            let wanted = text(&body, field);
            if !wanted.is_empty() && wanted != text(&before, field) {
                return Err((409, "Conflict"));
            }
        }
        scope(&mut body, &before, write);
        let owner = (manager.name.to_owned(), write.subresource);
        if let Action::Apply(_) = write.action {
            let applied = stored
                .owners
                .apply(&mut stored.object, owner, &body, manager.force);
            applied.map_err(|_| (409, "Conflict"))?;
        } else {
            match write.action {
                Action::Merge(_) | Action::Finalize(_) => merge(&mut stored.object, &body),
                Action::Apply(_)
                | Action::Create(_)
                | Action::Update(_)
                | Action::Delete
                | Action::Post(_) => stored.object = body,
            }
            stored.owners.update(&before, &stored.object);
            let created = created.filter(|_| matches!(write.action, Action::Create(_)));
            stored.owners.own(owner, created.as_ref());
        }
        stored.object = named(&id.0, &id.1, stored.object);
        Ok(self.store(id, stored.object, stored.owners))
    }

    /// Returns the object that a write changes, which is empty if it creates the object.
    fn target(&self, write: &Write, id: &Id) -> Result<Stored, Refusal> {
        let is_apply = matches!(write.action, Action::Apply(_)) && write.subresource.is_none();
        let is_create = matches!(write.action, Action::Create(_));
        match self.objects.get(id) {
            Some(_) if is_create => Err((409, "AlreadyExists")),
            Some(stored) if !matches!(write.action, Action::Post(_)) => Ok(stored.clone()),
            None if is_apply || is_create => Ok(Stored::default()),
            Some(_) | None => Err(NOT_FOUND),
        }
    }

    /// Returns the time as in metadata.
    fn now_in_seconds(&self) -> String {
        let now = Timestamp::from_second(self.now.as_second()).unwrap_or_default();
        now.to_string()
    }

    fn delete(&mut self, id: &Id, write: &Write) -> Result<Value, Refusal> {
        let stored = self.objects.get(id).cloned().ok_or(NOT_FOUND)?;
        let differs = |wanted: &Option<String>, field| {
            let wanted = wanted.as_deref();
            wanted.is_some_and(|wanted| wanted != text(&stored.object, field))
        };
        if differs(&write.uid, "uid") || differs(&write.resource_version, "resourceVersion") {
            return Err((409, "Conflict"));
        }
        let mut object = stored.object;
        // A pod that is bound to a node terminates gracefully.
        let is_bound = id.0.kind == "Pod" && object["spec"]["nodeName"].is_string();
        if is_bound {
            let seconds = if write.is_immediate { 0 } else { 30 };
            object["metadata"]["deletionGracePeriodSeconds"] = seconds.into();
        }
        if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = self.now_in_seconds().into();
        }
        Ok(self.store(id.clone(), object, stored.owners))
    }

    /// Stores an object, unless it is unchanged, or removes it if its deletion waits for no finalizer.
    fn store(&mut self, id: Id, mut object: Value, owners: Owners) -> Value {
        let old = self.objects.get(&id).map(|stored| stored.object.clone());
        let metadata = &mut object["metadata"];
        if let Some(old) = &old {
            for field in ["uid", "resourceVersion"] {
                metadata[field] = old["metadata"][field].clone();
            }
            let deletion = &old["metadata"]["deletionTimestamp"];
            if !deletion.is_null() {
                metadata["deletionTimestamp"] = deletion.clone();
            }
        } else {
            metadata["uid"] = format!("uid-{}", self.version + 1).into();
        }
        let finalizers = metadata["finalizers"].as_array();
        let is_deletion = !metadata["deletionTimestamp"].is_null()
            && finalizers.is_none_or(|finalizers| finalizers.is_empty())
            && metadata["deletionGracePeriodSeconds"]
                .as_u64()
                .is_none_or(|seconds| seconds == 0);
        if old.as_ref() == Some(&object) && !is_deletion {
            self.objects.insert(id, Stored::new(object.clone(), owners));
            return object;
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.history.push(Change {
            id: id.clone(),
            object: object.clone(),
            labels_before: old.map(|old| old["metadata"]["labels"].clone()),
            is_deletion,
        });
        if is_deletion {
            self.objects.remove(&id);
            return Value::Null;
        }
        self.objects.insert(id, Stored::new(object.clone(), owners));
        object
    }

    /// Returns the signals of a list, and the position in the history where its watch continues.
    pub(super) fn list(&mut self, id: &WatchId, form: &dyn Form) -> (VecDeque<Signal>, usize) {
        self.lists += 1;
        let selected = self.objects.iter().filter(|((resource, key), stored)| {
            *resource == id.resource
                && id.covers(key)
                && is_selected(id, &stored.object["metadata"]["labels"], &stored.object)
        });
        let listed = selected.map(|(_, stored)| Signal::Object {
            object: form.decode(&stored.object.to_string(), &id.cluster),
            is_listed: true,
        });
        let signals = [Signal::ListBegins].into_iter().chain(listed);
        (
            signals.chain([Signal::ListEnds]).collect(),
            self.history.len(),
        )
    }

    /// Returns the next event of a watch after a position, and the position after the event.
    pub(super) fn next(
        &self,
        id: &WatchId,
        position: usize,
        form: &dyn Form,
    ) -> Option<(Signal, usize)> {
        let mut later = self.history.iter().enumerate().skip(position);
        later.find_map(|(position, change)| {
            if change.id.0 != id.resource || !id.covers(&change.id.1) {
                return None;
            }
            let was_selected = (change.labels_before.as_ref())
                .is_some_and(|labels| is_selected(id, labels, &change.object));
            let is_selected = is_selected(id, &change.object["metadata"]["labels"], &change.object);
            let signal = match (was_selected, is_selected && !change.is_deletion) {
                (false, false) => return None,
                (true, false) => Signal::Deleted {
                    key: change.id.1.clone(),
                    uid: text(&change.object, "uid").to_owned(),
                    version: text(&change.object, "resourceVersion").parse().ok(),
                },
                (_, true) => Signal::Object {
                    object: form.decode(&change.object.to_string(), &id.cluster),
                    is_listed: false,
                },
            };
            Some((signal, position + 1))
        })
    }
}

impl Stored {
    fn new(object: Value, owners: Owners) -> Self {
        Self { object, owners }
    }
}

impl Default for Stored {
    fn default() -> Self {
        Self::new(json!({}), Owners::default())
    }
}

/// Code and reason of a refusal.
type Refusal = (u16, &'static str);

const NOT_FOUND: Refusal = (404, "NotFound");
