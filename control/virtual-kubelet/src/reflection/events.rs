//! Events about objects of this cluster.

use super::desired::Exclusion;
use super::kind::Kind;
use super::namespaces::FOLLOWED_MAX;
use control_api::annotations::{ALLOW_REFLECTION, SKIP_REFLECTION};
use control_api::offloading::policy::{ContradictionError, Policy};
use control_api::{NamespaceOffloading, labels};
use control_runtime::{Cluster, Event, Key, Ref, Resource, WatchId};
use std::borrow::Cow;

/// Name of each NamespaceOffloading.
const OFFLOADING: &str = "offloading";

/// An Event about the object of a kind.
pub(super) struct About<'a> {
    pub(super) kind: Kind,
    pub(super) key: &'a Key,
    /// Cluster ID of the provider.
    pub(super) destination: &'a str,
    /// Kind of the object; empty if it is not known.
    pub(super) name: Cow<'static, str>,
}

impl About<'_> {
    fn event(&self, reason: &'static str, is_warning: bool, note: String) -> Event {
        let resource = Resource {
            kind: self.name.clone(),
            ..self.kind.local()
        };
        Event {
            object: Ref::new(&Cluster::Local, &resource, self.key),
            is_warning,
            reason,
            note,
            is_repeated: false,
        }
    }

    /// Returns the Event about an object that was written after a failure. Without one, most objects need none: each would cost a
    /// request.
    pub(super) fn recovered(&self) -> Event {
        let note = format!("reflected to cluster {}", self.destination);
        self.event("SuccessfulReflection", false, note)
    }

    pub(super) fn refused(&self, message: &str) -> Event {
        let note = format!(
            "cluster {} refuses the reflected object: {message}",
            self.destination
        );
        self.event("FailedReflection", true, note)
    }

    pub(super) fn not_deleted(&self, message: &str) -> Event {
        let note = format!(
            "cluster {} refuses the deletion of the reflected object: {message}",
            self.destination
        );
        self.event("FailedDeletion", true, note)
    }

    pub(super) fn foreign(&self, remote: &Key) -> Event {
        let note = format!(
            "{} {remote} of cluster {} already exists and is not a reflected object: rename or delete one of them",
            self.remote_kind(),
            self.destination
        );
        self.event("FailedReflection", true, note)
    }

    /// Returns the Event about an object that the field manager `other_manager` of the provider changes again and again.
    pub(super) fn contested(&self, remote: &Key, other_manager: &str) -> Event {
        let note = format!(
            "{other_manager} of cluster {} changes reflected fields of {} {remote} again and again, so they are written once a minute: \
             let one of them own the fields",
            self.destination,
            self.remote_kind(),
        );
        self.event("FailedReflection", true, note)
    }

    /// Returns the Event about an object whose status another field manager of this cluster changes again and again.
    pub(super) fn contested_status(&self, other_manager: &str) -> Event {
        let note = format!(
            "{other_manager} of this cluster changes the status again and again, so that of cluster {} is written once a minute: \
             let one of them own it",
            self.destination
        );
        self.event("FailedReflection", true, note)
    }

    /// Returns the Event about an object of this cluster whose status cannot be written.
    pub(super) fn status_refused(&self, message: &str) -> Event {
        let note = format!(
            "the status of cluster {} is not written: {message}",
            self.destination
        );
        self.event("FailedReflection", true, note)
    }

    /// Returns the kind of the reflected object.
    fn remote_kind(&self) -> String {
        if self.kind.is_other() {
            return self.kind.to_string();
        }
        self.kind.remote().kind.into_owned()
    }

    /// Returns the Event about an object that is not reflected; `None` if there is no action for the user.
    pub(super) fn excluded(&self, exclusion: Exclusion, policy: Policy) -> Option<Event> {
        let destination = self.destination;
        match exclusion {
            // EndpointSlices follow their Services.
            Exclusion::Replica if self.kind == Kind::EndpointSlice => None,
            Exclusion::Never => None,
            Exclusion::Replica => {
                let note = format!(
                    "not reflected to cluster {destination}: it is reflected from another cluster"
                );
                Some(self.event("ReflectionDisabled", false, note))
            }
            Exclusion::Policy => {
                let cause = match policy {
                    Policy::DenyList => format!("the annotation {SKIP_REFLECTION} is set"),
                    Policy::AllowList => format!("the annotation {ALLOW_REFLECTION} is missing"),
                };
                let note = format!("not reflected to cluster {destination}: {cause}");
                Some(self.event("ReflectionDisabled", false, note))
            }
            Exclusion::Namespace => {
                let annotation = match policy {
                    Policy::DenyList => SKIP_REFLECTION,
                    Policy::AllowList => ALLOW_REFLECTION,
                };
                let note = format!(
                    "not reflected to cluster {destination}, by the annotation {annotation} of the namespace"
                );
                Some(self.event("ReflectionDisabled", false, note))
            }
            Exclusion::Contradiction => {
                let note = format!("not reflected to cluster {destination}: {ContradictionError}");
                Some(self.event("FailedReflection", true, note))
            }
            Exclusion::ReservedName => {
                let note = format!(
                    "not reflected to cluster {destination}: the reflected root CA has the name {}: use another name",
                    self.key.name
                );
                Some(self.event("FailedReflection", true, note))
            }
        }
    }
}

/// Returns the Event about a kind that a flag names, of which a cluster refuses the watch in an offloaded namespace.
pub(super) fn kind_refused(
    (namespace, kind): (&str, Kind),
    (destination, id): (&str, &WatchId),
    message: &str,
) -> Event {
    let (refuser, grantor, label) = match id.cluster {
        Cluster::Local => (
            "this cluster".to_owned(),
            "grant",
            labels::AGGREGATE_TO_LOCAL,
        ),
        Cluster::Remote(_) => (
            format!("cluster {destination}"),
            "have its administrator grant",
            labels::AGGREGATE_TO_REMOTE,
        ),
    };
    let note = format!(
        "{kind} is not reflected to cluster {destination}, because {refuser} refuses it: {message}: install its \
         CustomResourceDefinition, or {grantor} it by a ClusterRole with the label {label}=true"
    );
    Event {
        // Several kinds may be refused.
        is_repeated: true,
        ..of_namespace(namespace, note)
    }
}

/// Returns the Event about an offloaded namespace whose objects are not reflected, because the limit is reached.
pub(super) fn namespace_omitted(namespace: &str, destination: &str) -> Event {
    let note = format!(
        "the objects of the namespace are not reflected to cluster {destination}, because {FOLLOWED_MAX} other namespaces are: they follow \
         within a minute after another namespace is no longer offloaded to it: unoffload one"
    );

    of_namespace(namespace, note)
}

/// Returns a warning about the reflection of a namespace's objects.
fn of_namespace(namespace: &str, note: String) -> Event {
    let key = Key::new(namespace, OFFLOADING);
    Event {
        object: Ref::of::<NamespaceOffloading>(&Cluster::Local, &key),
        is_warning: true,
        reason: "FailedReflection",
        note,
        is_repeated: false,
    }
}
