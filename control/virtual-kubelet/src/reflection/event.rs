//! Events of the provider about ShadowPods, as Events about the pods of this cluster.
//!
//! So far, these are the warnings about ShadowPods: why the provider does not create or change the pod. [`watch`] selects them, so
//! that a healthy pod causes no traffic. An Event of the provider has one Event in this cluster, which follows its count.

use super::registrations::LOCAL_ROLE;
use crate::pod::status::cut;
use control_credentials::digest;
use control_runtime::{
    Cache, Cluster, Kept, Key, Registration, Resource, Scope, Selector, WatchId,
};
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

/// Reason of the provider's Event about a ShadowPod whose pod is not created.
const FAILED_CREATE: &str = "FailedCreatePod";

/// Reason of the Event about a pod that a scheduler does not place, as the scheduler's own.
const FAILED_SCHEDULING: &str = "FailedScheduling";

/// Index of Events by the object that they are about.
const BY_OBJECT: &str = "object";

const SHADOW_POD: &str = "ShadowPod";

/// Limits of Kubernetes for new Events, in bytes.
const MESSAGE_LEN_MAX: usize = 1024;
const REASON_LEN_MAX: usize = 128;

/// Longest name of a component that is reported, in bytes: that of an object.
const COMPONENT_LEN_MAX: usize = 253;

/// Longest name of a pod in the name of its Event, in bytes: a dot and 16 digits follow, and names have 253 bytes at most.
const POD_LEN_MAX: usize = 236;

/// An Event of the provider. Texts are bounded, because the provider may be hostile.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RemoteEvent {
    /// Text that differs from that of other Events about the pod.
    id: String,
    /// Kind, name and UID of the object that the Event is about.
    about: (String, String, Option<String>),
    is_warning: bool,
    reason: String,
    pub(crate) message: String,
    component: String,
    count: i32,
    first: Option<Time>,
    last: Option<Time>,
}

impl Kept for RemoteEvent {
    fn resource() -> Resource {
        Resource::of::<Event>()
    }
}

/// Returns the registration of the provider's Events, and of the Events of this cluster that report them.
pub(crate) fn registration() -> Registration {
    Registration::of(Scope::Planned, RemoteEvent::of)
        .verbs(&["create", "patch"])
        .written_in(Scope::Bound(LOCAL_ROLE))
        .index(BY_OBJECT, |event: &RemoteEvent| vec![event.about.1.clone()])
}

/// Returns the watch of the warnings about ShadowPods in a namespace of the provider.
pub(crate) fn watch(provider: &str, namespace: &str) -> WatchId {
    WatchId {
        cluster: Cluster::remote(provider),
        resource: Resource::of::<Event>(),
        namespace: Some(namespace.to_owned()),
        selector: Selector {
            terms: format!("involvedObject.kind={SHADOW_POD},type=Warning"),
            ..Selector::default()
        },
    }
}

impl RemoteEvent {
    /// Keeps the parts that are reported, from either form of an Event: with a series, or with a count.
    pub(crate) fn of(event: Event) -> Self {
        let text = |text: Option<String>, max: usize| cut(&text.unwrap_or_default(), max);
        let object = event.involved_object;
        let series = event.series.unwrap_or_default();
        let at = event.event_time.map(|it| Time(it.0));
        let component = event.source.and_then(|it| it.component);
        let component = component.filter(|it| !it.is_empty());

        Self {
            id: text(event.metadata.uid, MESSAGE_LEN_MAX),
            about: (
                text(object.kind, REASON_LEN_MAX),
                text(object.name, COMPONENT_LEN_MAX),
                object.uid,
            ),
            is_warning: event.type_.as_deref() != Some("Normal"),
            reason: text(event.reason, REASON_LEN_MAX),
            message: text(event.message, MESSAGE_LEN_MAX),
            component: text(component.or(event.reporting_component), COMPONENT_LEN_MAX),
            count: series.count.or(event.count).unwrap_or(1).max(1),
            first: event.first_timestamp.or_else(|| at.clone()),
            last: series
                .last_observed_time
                .map(|it| Time(it.0))
                .or(event.last_timestamp)
                .or(at),
        }
    }

    /// Returns the report of the provider's scheduler in the condition of a pod. It has no count.
    pub(crate) fn unscheduled(remote: &Pod, message: &str, since: Option<Time>) -> Self {
        let scheduler = remote
            .spec
            .as_ref()
            .and_then(|it| it.scheduler_name.clone());
        Self {
            id: FAILED_SCHEDULING.to_owned(),
            about: Default::default(),
            is_warning: true,
            reason: FAILED_SCHEDULING.to_owned(),
            message: cut(message, MESSAGE_LEN_MAX),
            component: cut(&scheduler.unwrap_or_default(), COMPONENT_LEN_MAX),
            count: 1,
            first: since.clone(),
            last: since,
        }
    }

    /// Returns the name of the object that the Event is about.
    pub(crate) fn object(&self) -> &str {
        &self.about.1
    }

    /// Returns whether the Event is about the ShadowPod with this UID.
    pub(crate) fn is_about_shadow_pod(&self, uid: Option<&str>) -> bool {
        let (kind, _, about) = &self.about;
        let is_other = about.as_deref().is_some_and(|about| uid != Some(about));

        kind == SHADOW_POD && !is_other
    }

    /// Returns whether the Event reports that the provider does not create the pod.
    pub(crate) fn is_failed_creation(&self) -> bool {
        self.is_warning && self.reason == FAILED_CREATE
    }

    /// Returns the Events in a namespace of the provider that are about objects of this name.
    pub(crate) fn about<'a>(
        cache: &'a Cache,
        provider: &str,
        object: Key,
    ) -> impl Iterator<Item = &'a Self> + use<'a> {
        let events = cache.objects::<Self>(&Cluster::remote(provider));
        let events = events.indexed(BY_OBJECT, &object.name);

        events.filter_map(move |(key, event)| (key.namespace == object.namespace).then_some(event))
    }

    /// Returns the order of Events by the time when they were observed last.
    pub(crate) fn observed(&self) -> Option<&Time> {
        self.last.as_ref()
    }

    /// Returns the name of the Event about the pod. No name that the provider chooses is used: it could be that of another Event.
    pub(crate) fn name(&self, pod: &Key, uid: &str) -> String {
        let end = pod.name.floor_char_boundary(POD_LEN_MAX);
        // Each part of a name ends with a letter or a digit.
        let start = pod.name[..end].trim_end_matches(['-', '.']);
        let digest = digest(&[uid.as_bytes(), self.id.as_bytes()]);

        format!("{start}.{}", &digest[..16])
    }

    /// Returns the fields of the Event about the pod.
    pub(crate) fn reflected(&self, pod: &Key, uid: &str) -> Value {
        json!({
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": uid,
            },
            "type": if self.is_warning { "Warning" } else { "Normal" },
            "reason": self.reason,
            "message": self.message,
            "source": {"component": format!("{} (remote)", self.component)},
            "count": self.count,
            "firstTimestamp": self.first,
            "lastTimestamp": self.last,
        })
    }
}
