//! Sends one request, and turns the response into an outcome.

use crate::cache::{Cache, Changed};
use crate::controller::{Action, Answer, Gate, Outcome, Probe, Request, Write, named};
use crate::entry::Entry;
use crate::managed_fields;
use crate::registration::{self, Form};
use control_client::cause::{cause, chain};
use control_client::election::Leadership;
use control_client::object::{Cluster, Ref};
use control_client::transport::{DeadlineError, NotLeaderError, TimeLimit, is_untrusted};
use control_client::watch::shortened;
use http::{Method, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::core::{Status, TypeMeta};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Code of the response to an object that is not valid.
const INVALID: u16 = 422;

/// Reason of a refusal because a list has two members with a value that only one may have.
const DUPLICATE: &str = "FieldValueDuplicate";

/// A request, unless its parts are invalid.
type NewRequest = http::Result<http::Request<Vec<u8>>>;

/// Client, leadership and decoder of a request.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) leadership: Leadership,
    /// Decodes the object that is returned; `None` if nothing registers the resource.
    pub(crate) form: Option<Arc<dyn Form>>,
    pub(crate) field_manager: &'static str,
    /// Whether an Apply takes fields from other field managers.
    pub(crate) force: bool,
    /// Fields that the controller declares to apply; any if there are none.
    pub(crate) fields: Vec<&'static str>,
    /// Earlier field managers whose fields are adopted before this Apply; usually empty.
    pub(crate) adopted: Vec<&'static str>,
    /// Whether only fields are adopted that the Apply leaves.
    pub(crate) adopts_late: bool,
}

impl Context {
    /// Sends the request once.
    pub(crate) async fn execute(&self, request: &Request) -> Outcome {
        if let Some(reason) = request.object().and_then(|it| unnamed(it, request)) {
            return Outcome::Failed(reason);
        }
        match request {
            Request::Read(object) => self.read(object).await,
            Request::Write(write) => self.write(write).await,
            Request::Probe(probe) => self.probe(probe).await,
        }
    }

    async fn read(&self, object: &Ref) -> Outcome {
        match self.get(object).await {
            Ok(text) => self.stored(&text, &object.cluster).with_managers(&text),
            Err(outcome) => outcome,
        }
    }

    async fn probe(&self, probe: &Probe) -> Outcome {
        let request = http::Request::get(probe.path)
            .extension(TimeLimit(probe.timeout))
            .body(Vec::new());
        match self.send(Gate::Always, request).await {
            Ok(_) => Outcome::Answer(Answer(Value::Null)),
            Err(outcome) => outcome,
        }
    }

    async fn write(&self, write: &Write) -> Outcome {
        if let Some(reason) = invalid(write, &self.fields) {
            return Outcome::Failed(reason);
        }
        let is_apply = matches!(write.action, Action::Apply(_));
        let sent = if is_apply && !self.adopted.is_empty() {
            self.adopting(write).await
        } else {
            self.send_write(write).await
        };
        let sent = match sent {
            Err(Outcome::Refused(status)) if is_apply && status.code == INVALID => {
                self.adopt_after(write, status).await
            }
            sent => sent,
        };
        match sent {
            Ok(text) if matches!(write.action, Action::Post(_)) => {
                parse(&text).map_or_else(Outcome::Failed, |value| Outcome::Answer(Answer(value)))
            }
            Ok(text) if write.action == Action::Delete => self.deleted(&text, write),
            Ok(text) => self.stored(&text, &write.object.cluster),
            Err(Outcome::AlreadyExists(_)) => self.existing(&write.object).await,
            Err(Outcome::Conflict(status)) if write.action == Action::Delete => {
                self.not_deleted(write, status).await
            }
            Err(outcome) => missing(write, outcome),
        }
    }

    /// Reads the object that has the name of one to be created.
    async fn existing(&self, object: &Ref) -> Outcome {
        let read = self.read(object).await;
        let Outcome::Stored(entry) = read else {
            return Outcome::AlreadyExists(None);
        };
        Outcome::AlreadyExists(Some(entry))
    }

    /// Reads the object after a conflict with its deletion: an admission webhook may answer with this code, too.
    async fn not_deleted(&self, write: &Write, status: Box<Status>) -> Outcome {
        let conflict = Outcome::Conflict(status);
        let read = self.read(&write.object).await;
        let is_present = |entry: &Entry| Some(&entry.uid) == write.uid.as_ref();
        let is_gone = read.found().is_some_and(|it| !it.is_some_and(is_present));

        match is_gone {
            true => missing(write, conflict),
            false => conflict,
        }
    }

    async fn send_write(&self, write: &Write) -> Result<String, Outcome> {
        let request = request(write, self.field_manager, self.force);
        self.send(write.gate, request).await
    }

    /// Sends an Apply to an object with fields of earlier field managers.
    async fn adopting(&self, write: &Write) -> Result<String, Outcome> {
        if !self.adopts_late {
            return match self.get(&write.object).await {
                Ok(text) => self.adopt(write, &text).await,
                Err(Outcome::Gone) => self.send_write(write).await,
                Err(outcome) => Err(outcome),
            };
        }
        let text = self.send_write(write).await?;
        let value = parse(&text).map_err(Outcome::Failed)?;
        let subresource = write.subresource.unwrap_or_default();
        let (manager, adopted) = (self.field_manager, &self.adopted);
        // The Apply has taken the fields that it names. Most objects have no others.
        match managed_fields::has_rest(&value, manager, adopted, subresource) {
            true => self.adopt(write, &text).await,
            false => Ok(text),
        }
    }

    /// Sends an Apply again that was refused, because fields that it leaves contradict its own: those of earlier field managers, or
    /// members that others have added to its lists, such as a port of the same name.
    async fn adopt_after(&self, write: &Write, refusal: Box<Status>) -> Result<String, Outcome> {
        let lists = match self.force {
            true => refused_lists(write, &refusal),
            false => Vec::new(),
        };
        if self.adopted.is_empty() && lists.is_empty() {
            return Err(Outcome::Refused(refusal));
        }
        let assigned = match self.get(&write.object).await {
            Ok(text) => self.assign(write, &text, &lists).await,
            Err(outcome) => Err(outcome),
        };
        match assigned {
            Ok(true) => self.send_write(write).await,
            // The reason is the first refusal, not that of an attempt to get around it.
            Ok(false) | Err(Outcome::Refused(_)) => Err(Outcome::Refused(refusal)),
            Err(outcome) => Err(outcome),
        }
    }

    /// Assigns the fields of earlier field managers of an object to this one, and sends the Apply.
    async fn adopt(&self, write: &Write, object: &str) -> Result<String, Outcome> {
        self.assign(write, object, &[]).await?;
        self.send_write(write).await
    }

    /// Assigns the fields of earlier field managers of an object, and those of all others in lists, to this one. Returns whether there
    /// are any.
    async fn assign(
        &self,
        write: &Write,
        object: &str,
        lists: &[Vec<String>],
    ) -> Result<bool, Outcome> {
        let value = parse(object).map_err(Outcome::Failed)?;
        let subresource = write.subresource.unwrap_or_default();
        let (manager, adopted) = (self.field_manager, &self.adopted);
        let patch = managed_fields::adoption(&value, manager, adopted, subresource, lists);
        let Some(patch) = patch else {
            return Ok(false);
        };
        // kube-apiserver ignores `managedFields` in a patch of a subresource.
        let patch = http::Request::patch(write.object.path(None, &[]))
            .header(header::CONTENT_TYPE, "application/json-patch+json")
            .body(patch.to_string().into_bytes());
        self.send(write.gate, patch).await?;

        Ok(true)
    }

    async fn get(&self, object: &Ref) -> Result<String, Outcome> {
        let request = http::Request::get(object.path(None, &[])).body(Vec::new());
        self.send(Gate::Always, request).await
    }

    async fn send(&self, gate: Gate, request: NewRequest) -> Result<String, Outcome> {
        let mut request = request.map_err(|error| Outcome::Failed(error.to_string()))?;
        if gate == Gate::Leader {
            // The transport checks it when the request has a connection.
            request.extensions_mut().insert(self.leadership.clone());
        }
        self.client.request_text(request).await.map_err(failure)
    }

    fn stored(&self, text: &str, cluster: &Cluster) -> Outcome {
        let Some(form) = &self.form else {
            let value = serde_json::from_str(text).unwrap_or_default();
            return Outcome::Answer(Answer(value));
        };
        match form.decode(text, cluster) {
            Ok(entry) => Outcome::Stored(entry),
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }

    /// The response to a deletion is a Status, or the object if finalizers delay the deletion.
    fn deleted(&self, text: &str, write: &Write) -> Outcome {
        let is_status = serde_json::from_str::<TypeMeta>(text).is_ok_and(|it| it.kind == "Status");
        if is_status {
            return Outcome::Gone;
        }
        let outcome = self.stored(text, &write.object.cluster);
        if matches!(outcome, Outcome::Stored(_)) && !is_pending(text, write) {
            return Outcome::Gone;
        }
        outcome
    }
}

/// Returns whether an object still exists that kube-apiserver returned for its deletion. For some resources it returns the
/// object that it has removed, with the time at which the deletion began.
fn is_pending(text: &str, write: &Write) -> bool {
    #[derive(Deserialize)]
    struct Deleted {
        metadata: ObjectMeta,
    }
    let Ok(Deleted { metadata }) = serde_json::from_str(text) else {
        return true;
    };
    let is_removed = write.is_immediate && metadata.finalizers.is_none_or(|it| it.is_empty());

    metadata.deletion_timestamp.is_some() && !is_removed
}

/// Returns why a request does not name its object.
fn unnamed(object: &Ref, request: &Request) -> Option<String> {
    let is_create =
        matches!(request, Request::Write(write) if matches!(write.action, Action::Create(_)));
    if object.key.name.is_empty() && !is_create {
        // The path would be that of all objects.
        return Some("the object has no name".into());
    }
    let part = object.invalid_part()?;
    Some(format!("{part:?} is not a valid name"))
}

/// Returns why a write of a controller that declares `fields` is not sent.
fn invalid(write: &Write, fields: &[&'static str]) -> Option<String> {
    if let Action::Apply(value) = &write.action {
        let field = registration::undeclared(value, fields)?;
        return Some(format!(
            "the registration does not declare the field {field}"
        ));
    }
    let is_finalize = matches!(write.action, Action::Finalize(_));
    let is_blind = write.uid.is_none() && (is_finalize || write.action == Action::Delete)
        || write.resource_version.is_none() && is_finalize;
    is_blind.then(|| "the object has no UID or no version to compare".into())
}

/// A missing object is the aim of a deletion. The parent of a new object that is missing, its
/// namespace or resource, is a refusal.
pub(crate) fn missing(write: &Write, outcome: Outcome) -> Outcome {
    let may_create = write.subresource.is_none() && write.uid.is_none();
    match (&outcome, &write.action) {
        (Outcome::Gone, Action::Apply(_)) if !may_create => outcome,
        (Outcome::Gone, Action::Create(_) | Action::Post(_) | Action::Apply(_)) => {
            Outcome::Failed("the namespace or the resource does not exist".into())
        }
        (Outcome::Conflict(_), Action::Delete) if write.resource_version.is_none() => {
            // Another object has the name now.
            Outcome::Gone
        }
        _ => outcome,
    }
}

/// Enters the result of a request into the cache: the returned object, or the deletion of an object, so
/// that the next plan knows the result. Returns the change.
pub(crate) fn enter(cache: &mut Cache, request: &Request, outcome: &Outcome) -> Option<Changed> {
    let object = request.object()?;
    match (outcome, request) {
        (Outcome::Stored(entry) | Outcome::AlreadyExists(Some(entry)), _) => {
            let put = cache.put_answer(&object.cluster, &object.resource, entry.clone());
            put.ok().flatten()
        }
        // Only a deletion names the UID of the deleted object; after other writes the watch reports the
        // deletion.
        (Outcome::Gone, Request::Write(gone)) if gone.action == Action::Delete => {
            cache.delete_answer(object, gone.uid.as_deref()?)
        }
        _ => None,
    }
}

fn request(write: &Write, field_manager: &str, force: bool) -> NewRequest {
    let force = force.to_string();
    let finalizers = format!("{field_manager}-finalizers");
    let mut query = vec![("fieldManager", field_manager)];
    let body = content(write);
    let (method, content_type) = match &write.action {
        Action::Apply(_) => {
            query.push(("force", &force));
            (Method::PATCH, "application/apply-patch+yaml")
        }
        Action::Merge(_) => (Method::PATCH, "application/merge-patch+json"),
        Action::Finalize(_) => {
            query = vec![("fieldManager", &finalizers)];
            (Method::PATCH, "application/merge-patch+json")
        }
        Action::Update(_) => (Method::PUT, "application/json"),
        Action::Create(_) | Action::Post(_) => (Method::POST, "application/json"),
        Action::Delete => {
            query.clear();
            (Method::DELETE, "application/json")
        }
    };
    let seconds = write.server_timeout.map(|it| format!("{}s", it.as_secs()));
    if let Some(seconds) = &seconds {
        query.push(("timeout", seconds));
    }
    let mut addressed = write.object.clone();
    if let Action::Create(_) = write.action {
        addressed.key.name.clear();
    }
    let uri = addressed.path(write.subresource, &query);

    http::Request::builder()
        .method(method)
        .uri(uri)
        .header(header::CONTENT_TYPE, content_type)
        .body(body.to_string().into_bytes())
}

/// Returns the body of a write, with the preconditions in it.
pub(crate) fn content(write: &Write) -> Value {
    let object = &write.object;
    let mut value = match &write.action {
        Action::Apply(value) | Action::Create(value) | Action::Update(value) => {
            named(&object.resource, &object.key, value.clone())
        }
        Action::Merge(value) | Action::Post(value) => value.clone(),
        Action::Finalize(finalizers) => json!({"metadata": {"finalizers": finalizers}}),
        Action::Delete => return delete_options(write),
    };
    if let Some(uid) = &write.uid {
        value["metadata"]["uid"] = uid.as_str().into();
    }
    if let Some(version) = &write.resource_version {
        value["metadata"]["resourceVersion"] = version.as_str().into();
    }

    value
}

fn delete_options(write: &Write) -> Value {
    let preconditions = json!({"uid": write.uid, "resourceVersion": write.resource_version});
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions",
        "propagationPolicy": "Background", "preconditions": preconditions});
    if write.is_immediate {
        options["gracePeriodSeconds"] = json!(0);
    }

    options
}

fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("the response is not JSON: {error}"))
}

fn failure(error: kube::Error) -> Outcome {
    if let kube::Error::Api(status) = error {
        return refusal(status);
    }
    if cause::<DeadlineError>(&error).is_some() {
        return Outcome::TimedOut;
    }
    if cause::<NotLeaderError>(&error).is_some() {
        return Outcome::NotLeader;
    }
    let reason = shortened(chain(&error));
    if is_untrusted(&error) {
        return Outcome::Untrusted(reason);
    }
    Outcome::Failed(reason)
}

/// Returns the paths of the lists of an Apply of which a refusal names duplicate members, such as `spec.ports[1].name`.
fn refused_lists(write: &Write, refusal: &Status) -> Vec<Vec<String>> {
    let Action::Apply(body) = &write.action else {
        return Vec::new();
    };
    let causes = refusal.details.iter().flat_map(|it| &it.causes);
    let causes = causes.filter(|it| it.reason == DUPLICATE);
    let lists = causes.filter_map(|cause| {
        let (list, _) = cause.field.split_once('[')?;
        let path: Vec<String> = list.split('.').map(str::to_owned).collect();
        let pointer = format!("/{}", path.join("/"));
        body.pointer(&pointer)
            .is_some_and(Value::is_array)
            .then_some(path)
    });

    BTreeSet::from_iter(lists).into_iter().collect()
}

/// Returns the outcome of a request that the server refuses.
pub(crate) fn refusal(mut status: Box<Status>) -> Outcome {
    status.message = shortened(status.message);
    match (status.code, status.reason.as_str()) {
        (404, _) => Outcome::Gone,
        (409, "AlreadyExists") => Outcome::AlreadyExists(None),
        (409, _) => Outcome::Conflict(status),
        (504, _) | (_, "Timeout") => Outcome::TimedOut,
        // The server is overloaded, or about to stop. It says nothing about the object.
        (429 | 503, _) => Outcome::Failed(status.message),
        _ => Outcome::Refused(status),
    }
}

#[cfg(test)]
mod tests;
