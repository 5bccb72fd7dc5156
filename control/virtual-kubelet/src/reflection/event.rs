//! Events of the provider, as Events about the objects of this cluster.
//!
//! An Event of the provider about a reflected object, a remote pod or its ShadowPod has an Event of the same name in this
//! cluster, which follows its count. It is not deleted with that of the provider: both API servers delete Events after a time,
//! so a deletion would cost a request for each Event and change nothing.

pub(crate) mod controller;
pub(crate) mod drops;
pub(crate) mod settings;

mod content;
mod involved;
mod written;

use super::kind::Kind;
use super::peering::Peering;
use super::registrations::LOCAL_ROLE;
use crate::pod::status::cut;
use content::{Content, NAME_LEN_MAX};
use control_api::offloading::policy::Marks;
use control_api::{ShadowPod, labels};
use control_runtime::{
    Cache, Cluster, Digest, Kept, Key, Registration, Resource, Scope, Selector, WatchId,
};
use k8s_openapi::api::core::v1::{Event, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

/// Reason of the provider's Event about a ShadowPod whose pod is not created.
const FAILED_CREATE: &str = "FailedCreatePod";

/// Index of Events by the name of the object that they are about.
const BY_OBJECT: &str = "object";

/// An Event of either cluster, without its texts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EventSummary {
    about: About,
    /// Digest of the content.
    content: Digest,
    /// Digest of the content as it is reflected.
    reflected: Digest,
    marks: Marks,
    /// Whether it is itself reflected, from any cluster.
    is_reflected: bool,
    failure: Option<Box<Failure>>,
}

/// The object that an Event is about.
#[derive(Clone, Debug, PartialEq)]
struct About {
    kind: Subject,
    name: String,
    uid: Option<String>,
}

/// A kind of objects whose Events are reflected.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Pod,
    /// Its Events become those of the pod.
    ShadowPod,
    Reflected(Kind),
    /// Another kind, which a flag may name.
    Other {
        group: Box<str>,
        kind: Box<str>,
    },
}

/// Why the provider does not create a pod.
#[derive(Clone, Debug, PartialEq)]
struct Failure {
    message: String,
    observed: Option<Time>,
}

impl Kept for EventSummary {
    fn resource() -> Resource {
        Resource::of::<Event>()
    }
}

impl Subject {
    fn of(object: &ObjectReference) -> Self {
        let kind = object.kind.as_deref().unwrap_or_default();
        let version = object.api_version.as_deref();
        let group = version.map(|it| it.split_once('/').map_or("", |(group, _)| group));
        // An Event may leave out the version.
        let is = |resource: Resource| {
            resource.kind == kind && group.is_none_or(|it| resource.group == it)
        };
        if is(Resource::of::<Pod>()) {
            return Self::Pod;
        }
        if is(Resource::of::<ShadowPod>()) {
            return Self::ShadowPod;
        }
        let mut kinds = Kind::ALL.into_iter();
        let other = || Self::Other {
            group: cut(group.unwrap_or_default(), NAME_LEN_MAX).into(),
            kind: cut(kind, NAME_LEN_MAX).into(),
        };

        kinds
            .find(|it| is(it.local()))
            .map_or_else(other, Self::Reflected)
    }
}

impl EventSummary {
    /// Keeps the fields that reflection depends on. Texts are bounded, because the provider may be hostile.
    pub(crate) fn of(event: Event) -> Self {
        let content = Content::of(&event);
        let object = event.involved_object;
        let labels = event.metadata.labels.unwrap_or_default();
        let about = About {
            kind: Subject::of(&object),
            name: cut(object.name.as_deref().unwrap_or_default(), NAME_LEN_MAX),
            uid: object
                .uid
                .filter(|it| !it.is_empty())
                .map(|it| cut(&it, NAME_LEN_MAX)),
        };
        let is_failure = about.kind == Subject::ShadowPod
            && content.is_warning
            && content.reason == FAILED_CREATE;

        Self {
            content: Digest::of(&content),
            reflected: Digest::of(&content.reflected()),
            marks: Marks::of(event.metadata.annotations.as_ref()),
            is_reflected: labels.contains_key(labels::ORIGIN),
            failure: is_failure.then(|| {
                Box::new(Failure {
                    observed: content.last(),
                    message: content.message,
                })
            }),
            about,
        }
    }

    /// Returns whether this is the summary of an Event.
    fn is_of(&self, event: &Event) -> bool {
        self.reflected == Digest::of(&Content::of(event).reflected())
    }

    /// Returns the name of the object that the Event is about.
    pub(crate) fn object(&self) -> &str {
        &self.about.name
    }

    /// Returns whether the Event reports that the provider does not create the pod of a ShadowPod.
    pub(crate) fn is_failed_creation(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns whether the Event is about a pod or its ShadowPod.
    fn is_of_pod(&self) -> bool {
        matches!(self.about.kind, Subject::Pod | Subject::ShadowPod)
    }

    /// Returns whether the Event is about an object with this UID.
    fn is_about(&self, uid: Option<&str>) -> bool {
        self.about.uid.as_deref().is_none_or(|it| uid == Some(it))
    }
}

/// Returns the fields of the reflected Event, which lack the reference to the object.
pub(in crate::reflection) fn reflected_fields(event: &Event) -> Value {
    Content::of(event).reflected().fields()
}

/// Returns the registration of the Events of both clusters.
pub(crate) fn registration() -> Registration {
    Registration::of(Scope::Planned, EventSummary::of)
        .full_objects()
        .verbs(&["create", "patch"])
        .written_in(Scope::Bound(LOCAL_ROLE))
        .index(BY_OBJECT, |event: &EventSummary| {
            vec![event.about.name.clone()]
        })
}

/// Returns the watch of the Events in a namespace of the provider.
fn remote_watch(peering: &Peering, namespace: &str) -> WatchId {
    watch(peering.cluster(), namespace, String::new())
}

/// Returns the watch of the reflected Events in a namespace of this cluster.
fn local_watch(peering: &Peering, namespace: &str) -> WatchId {
    watch(Cluster::Local, namespace, peering.selector())
}

fn watch(cluster: Cluster, namespace: &str, labels: String) -> WatchId {
    WatchId {
        cluster,
        resource: Resource::of::<Event>(),
        namespace: Some(namespace.to_owned()),
        selector: Selector {
            labels,
            ..Selector::default()
        },
    }
}

/// Returns the Events of a cluster that are about objects of this name.
fn about<'a>(
    cache: &'a Cache,
    cluster: &Cluster,
    object: &Key,
) -> impl Iterator<Item = (&'a Key, &'a EventSummary)> + use<'a> {
    let events = cache.objects::<EventSummary>(cluster);
    let events = events.indexed(BY_OBJECT, &object.name);
    let namespace = object.namespace.clone();

    events.filter(move |(key, _)| key.namespace == namespace)
}

/// Returns why the provider has not created the pod of the ShadowPod with this UID.
pub(crate) fn failed_creation<'a>(
    cache: &'a Cache,
    provider: &str,
    shadow: &Key,
    uid: Option<&str>,
) -> Option<&'a str> {
    let events = about(cache, &Cluster::remote(provider), shadow);
    let failures = events.filter(|(_, it)| it.is_about(uid));
    let failures = failures.filter_map(|(_, it)| it.failure.as_deref());
    let newest = failures.max_by(|a, b| a.observed.cmp(&b.observed))?;

    Some(&newest.message)
}
