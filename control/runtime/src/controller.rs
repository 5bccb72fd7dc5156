//! The interface of controllers: pure decisions over the cache.

use crate::cache::{Cache, Change};
use crate::entry::Entry;
use crate::registration::Registration;
use control_client::kubeconfig::RemoteConfig;
use control_client::object::{Cluster, Key, Ref, Resource};
use control_client::watch::WatchId;
use k8s_openapi::jiff::Timestamp;
use kube::core::Status;
use serde_json::Value;
use std::fmt;
use std::time::{Duration, Instant};

/// Decides what to write when objects change. Controllers have no IO: the runtime calls them with
/// values, and carries out the plans that they return.
///
/// ```text
/// watch -> Cache -> observe -> work queue -> plan -> requests -> outcome -> done
///            ^                                                     |
///            +--------- objects that requests return --------------+
/// ```
pub trait Controller: Send + 'static {
    /// Work item: names what is to be compared with its desired state.
    type Item: Ord + Clone + fmt::Display + Send;

    /// Name of the controller, for metrics and logs.
    const NAME: &'static str;

    /// Field manager of its writes. Controllers of different resources may share one.
    const FIELD_MANAGER: &'static str;

    /// Returns the resources that the controller follows or writes.
    fn resources(&self) -> Vec<Registration>;

    /// Returns the work items that a change concerns. The change is in the cache already.
    ///
    /// At the start, and when this replica becomes the leader, it is called for every object, as if
    /// the object was created, but [without a time](Change::seen_at).
    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<Self::Item>;

    /// Compares what an item names with its desired state.
    ///
    /// A plan that was carried out must be followed by an empty plan.
    fn plan(&mut self, item: &Self::Item, cache: &Cache, env: &mut Env<'_>) -> Plan<Self::Item>;

    /// Returns further work items once the objects of all required watches are known, and again when
    /// this replica becomes the leader. [`observe`](Self::observe) has been called for every object
    /// before. A controller that derives state from objects, such as allocations, derives it here:
    /// plans of a standby are not carried out, so they must not count.
    fn started(&mut self, _cache: &Cache) -> Vec<Self::Item> {
        Vec::new()
    }

    /// Returns the work items that can proceed because a watch that a plan has added was listed.
    fn listed(&mut self, _id: &WatchId, _cache: &Cache) -> Vec<Self::Item> {
        Vec::new()
    }

    /// Returns the work items that depend on whether a server refuses a watch, because the resource or the right is missing. It is
    /// called after each refusal; the watch is repeated until it is listed. See [`Cache::refusal`].
    fn refused(&mut self, _id: &WatchId, _cache: &Cache) -> Vec<Self::Item> {
        Vec::new()
    }

    /// Takes the outcome of a request, and returns items to plan, for example with an object that
    /// was read. Most outcomes are objects, which [`observe`](Self::observe) has received before.
    fn done(
        &mut self,
        _item: &Self::Item,
        _request: &Request,
        _outcome: &Outcome,
        _cache: &Cache,
    ) -> Vec<Self::Item> {
        Vec::new()
    }

    /// Returns the queue of an item. Queues take turns, so a queue with many items does not delay
    /// the others; usually one per peer.
    fn queue(_item: &Self::Item) -> Queue {
        Queue::default()
    }

    /// Returns a name for the kind of an item, for metrics. There must be few.
    fn item_kind(_item: &Self::Item) -> &'static str {
        "item"
    }
}

/// Name of a queue of work items.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Queue(pub String);

/// Values that a plan depends on besides the cache.
pub struct Env<'a> {
    /// Time of day.
    pub now: Timestamp,
    /// Time for intervals, which no change of the clock affects. The delays of
    /// [`Plan::requeue`] count from it.
    pub at: Instant,
    /// Returns 32 bytes that cannot be guessed.
    pub random: &'a mut dyn FnMut() -> [u8; 32],
}

impl fmt::Debug for Env<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// Writes, watches and other effects that a controller plans for a work item.
#[derive(Clone, Debug)]
pub struct Plan<I> {
    /// Writes. Those of different resources are sent concurrently, those of one resource in this
    /// order; see [`Write::is_last`].
    pub writes: Vec<Write>,
    /// Objects to read. [`Controller::done`] receives them.
    pub reads: Vec<Ref>,
    /// API servers to probe. [`Controller::done`] receives the results.
    pub probes: Vec<Probe>,
    /// Watches to add or remove.
    pub watches: Vec<WatchChange>,
    /// Clusters to add or remove.
    pub clusters: Vec<ClusterChange>,
    /// Events to publish.
    pub events: Vec<Event>,
    /// Items to plan after a delay, for example because something expires then.
    pub requeue: Vec<(Duration, I)>,
    /// Whether to plan the item again with backoff, because no watch reports when it can proceed.
    pub is_incomplete: bool,
}

impl<I> Default for Plan<I> {
    fn default() -> Self {
        Self {
            writes: Vec::new(),
            reads: Vec::new(),
            probes: Vec::new(),
            watches: Vec::new(),
            clusters: Vec::new(),
            events: Vec::new(),
            requeue: Vec::new(),
            is_incomplete: false,
        }
    }
}

/// A change of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The object.
    pub object: Ref,
    /// Subresource, for example `status`.
    pub subresource: Option<&'static str>,
    /// Kind and content of the change.
    pub action: Action,
    /// UID that the object must have. A deletion without UID is not sent: it could delete a later object.
    pub uid: Option<String>,
    /// Version that the object must have.
    pub resource_version: Option<String>,
    /// Whether a deletion waits for no graceful termination, as that of a pod which has ended on its node.
    pub is_immediate: bool,
    /// Whether only the leader sends it.
    pub gate: Gate,
    /// Whether it waits for all writes of the plan before it.
    pub is_last: bool,
    /// Time after which the server gives up the write, in whole seconds. A write that claims from a
    /// shared pool sets it, so that it does not take effect after another replica may have become the
    /// leader.
    pub server_timeout: Option<Duration>,
}

impl Write {
    /// Creates a write that only the leader sends.
    pub fn new(object: Ref, action: Action) -> Self {
        Self {
            object,
            subresource: None,
            action,
            uid: None,
            resource_version: None,
            is_immediate: false,
            gate: Gate::Leader,
            is_last: false,
            server_timeout: None,
        }
    }

    /// Directs the write at a subresource.
    #[must_use]
    pub fn subresource(mut self, subresource: &'static str) -> Self {
        self.subresource = Some(subresource);
        self
    }
}

/// Kind and content of a change.
#[derive(Clone, PartialEq)]
pub enum Action {
    /// Server-side apply: the object has these fields, and no others of this field manager.
    Apply(Value),
    /// Creates the object; an existing one is an outcome of its own.
    Create(Value),
    /// Replaces the object.
    Update(Value),
    /// Merge patch (RFC 7386), for fields that no Apply of this field manager names.
    Merge(Value),
    /// Replaces the finalizers; the write needs a version. See [`Finalizer`](crate::Finalizer).
    Finalize(Vec<String>),
    /// Deletes the object.
    Delete,
    /// Posts to a subresource that returns an answer, for example `token`.
    Post(Value),
}

impl Action {
    /// Returns the verb, for metrics and logs.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Apply(_) => "apply",
            Self::Create(_) => "create",
            Self::Update(_) => "update",
            Self::Merge(_) | Self::Finalize(_) => "patch",
            Self::Delete => "delete",
            Self::Post(_) => "post",
        }
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the content, which may be a Secret's.
        f.write_str(self.verb())
    }
}

/// Which replicas send a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// The leader.
    #[default]
    Leader,
    /// Every replica.
    Always,
}

/// A GET of a path that is no object, for example `/livez`, to find out whether an API server responds. Only the
/// leader sends it. A failure is a result, so it does not have the item planned again: the controller chooses the
/// interval by [`Plan::requeue`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The cluster of the API server.
    pub cluster: Cluster,
    /// The path, which begins with `/`.
    pub path: &'static str,
    /// Time from the plan's request to the end of the response, at most that of a read (10 s). It includes the
    /// connection.
    pub timeout: Duration,
}

/// A request that a plan caused.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// A change.
    Write(Write),
    /// A GET of one object.
    Read(Ref),
    /// A GET of a path. It succeeds with [`Outcome::Answer`] without content.
    Probe(Probe),
}

impl Request {
    /// Returns the cluster that the request is sent to.
    pub fn cluster(&self) -> &Cluster {
        match self {
            Self::Write(write) => &write.object.cluster,
            Self::Read(object) => &object.cluster,
            Self::Probe(probe) => &probe.cluster,
        }
    }

    /// Returns the object of the request; `None` for a probe.
    pub fn object(&self) -> Option<&Ref> {
        match self {
            Self::Write(write) => Some(&write.object),
            Self::Read(object) => Some(object),
            Self::Probe(_) => None,
        }
    }

    /// Returns whether only the leader sends the request.
    pub(crate) fn is_of_leader(&self) -> bool {
        match self {
            Self::Write(write) => write.gate == Gate::Leader,
            Self::Read(_) => false,
            Self::Probe(_) => true,
        }
    }

    /// Returns the verb, for metrics and logs.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Write(write) => write.action.verb(),
            Self::Read(_) | Self::Probe(_) => "get",
        }
    }
}

/// Outcome of a request.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The object as the server has it now.
    Stored(Entry),
    /// The body of a response that is no registered object, for example a token.
    Answer(Answer),
    /// The object does not exist, or no longer.
    Gone,
    /// An object of this name exists, and was not changed; `None` if it is gone since.
    AlreadyExists(Option<Entry>),
    /// Another version, UID or field manager has the object.
    Conflict(Box<Status>),
    /// The server refuses the request.
    Refused(Box<Status>),
    /// The server did not answer in time. It may have made the change.
    TimedOut,
    /// The request failed before a response. The server may have made the change.
    Failed(String),
    /// The server presented a certificate that the authority in the configuration of its cluster has not issued, so
    /// nothing was sent. It is another cluster, or an attacker.
    Untrusted(String),
    /// This replica is not the leader, so nothing was sent.
    NotLeader,
}

impl Outcome {
    /// Returns the object that a read has shown, or that there is none; `None` if the read has failed.
    pub fn found(&self) -> Option<Option<&Entry>> {
        match self {
            Self::Stored(entry) => Some(Some(entry)),
            Self::Gone => Some(None),
            Self::Answer(_)
            | Self::AlreadyExists(_)
            | Self::Conflict(_)
            | Self::Refused(_)
            | Self::TimedOut
            | Self::Failed(_)
            | Self::Untrusted(_)
            | Self::NotLeader => None,
        }
    }

    /// Returns whether the request has reached its aim.
    pub fn is_success(&self) -> bool {
        matches!(
            self,
            Self::Stored(_) | Self::Answer(_) | Self::Gone | Self::NotLeader
        )
    }

    /// Adds the field managers of an object that was read, whose JSON is `text`.
    pub(crate) fn with_managers(self, text: &str) -> Self {
        let Self::Stored(entry) = self else {
            return self;
        };
        Self::Stored(entry.with_managers(text))
    }
}

/// The body of a response. Not printed, because it may be secret.
#[derive(Clone, PartialEq)]
pub struct Answer(pub Value);

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer(..)")
    }
}

/// A watch to add or remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchChange {
    /// Add the watch, unless it exists.
    Add(WatchId),
    /// Remove the watch, and the objects that no other watch reports.
    Remove(WatchId),
}

/// A cluster to add or remove.
#[derive(Clone, Debug)]
pub enum ClusterChange {
    /// Add the cluster, or replace its address and credentials without a new list.
    Set(Cluster, Box<RemoteConfig>),
    /// Remove the cluster with its objects and this controller's watches. Watches of other controllers
    /// start again when the cluster is set again.
    Remove(Cluster),
}

/// An Event of the Kubernetes API about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The object.
    pub object: Ref,
    /// Whether it reports a problem.
    pub is_warning: bool,
    /// Reason, in CamelCase.
    pub reason: &'static str,
    /// Message for users.
    pub note: String,
    /// Whether it is published although it equals the last one about the object, because it reports
    /// an action and not a condition.
    pub is_repeated: bool,
}

impl<I> Plan<I> {
    /// Adds a server-side apply of the fields of an object. `fields` needs no `apiVersion`, `kind`
    /// and name.
    pub fn apply(&mut self, object: Ref, fields: Value) {
        let fields = named(&object.resource, &object.key, fields);
        self.writes.push(Write::new(object, Action::Apply(fields)));
    }

    /// Adds the deletion of an object with this UID.
    pub fn delete(&mut self, object: Ref, uid: impl Into<String>) {
        let mut write = Write::new(object, Action::Delete);
        write.uid = Some(uid.into());
        self.writes.push(write);
    }
}

/// Adds `apiVersion`, `kind` and name to the fields of an object.
pub(crate) fn named(resource: &Resource, key: &Key, mut fields: Value) -> Value {
    if !fields.is_object() {
        fields = Value::Object(serde_json::Map::new());
    }
    fields["apiVersion"] = resource.api_version().into();
    // The controller sets the kind of a resource whose kind is not known here.
    if !resource.kind.is_empty() {
        fields["kind"] = resource.kind.as_ref().into();
    }
    if !fields["metadata"].is_object() {
        fields["metadata"] = Value::Object(serde_json::Map::new());
    }
    fields["metadata"]["name"] = key.name.as_str().into();
    if !key.namespace.is_empty() {
        fields["metadata"]["namespace"] = key.namespace.as_str().into();
    }

    fields
}
