//! The object of this cluster that an Event of the provider is about.

use super::settings::EventSettings;
use super::{EventSummary, Subject};
use crate::pod::kept::KeptShadowPod;
use crate::reflection::kind::Kind;
use crate::reflection::present::Present;
use crate::reflection::summary::Summary;
use control_api::labels;
use control_runtime::{Cache, Cluster, Key, Ref, Resource};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use std::borrow::Cow;

/// An object of this cluster.
pub(super) struct Involved<'a> {
    resource: Resource,
    pub(super) key: Key,
    uid: &'a str,
}

impl<'a> Involved<'a> {
    /// Returns the object that an Event is about; `None` unless the provider's object is the counterpart of one of this
    /// cluster. `namespaces` are those of this cluster and of the provider.
    pub(super) fn of(
        event: &EventSummary,
        cache: &'a Cache,
        settings: &EventSettings,
        (local, remote): (&str, &str),
    ) -> Option<Self> {
        let remote = Key::new(remote, event.object());
        let (resource, key) = match &event.about.kind {
            Subject::Pod => {
                let pod = remote_object::<Pod>(cache, settings, &remote)?;
                let is_it = is_own(&pod.metadata, settings) && is_same(event, &pod.metadata);
                is_it.then(|| of_pod(local, &remote))?
            }
            Subject::ShadowPod => {
                let shadow = remote_object::<KeptShadowPod>(cache, settings, &remote)?;
                let is_it = is_own(&shadow.metadata, settings) && is_same(event, &shadow.metadata);
                is_it.then(|| of_pod(local, &remote))?
            }
            Subject::Reflected(kind) => {
                of_reflected((*kind, event), cache, settings, (local, &remote))?
            }
            Subject::Other { group, kind } => {
                let kinds = other_kinds((group, kind), cache, settings, &remote);
                let mut objects = kinds.into_iter().filter_map(|kind| {
                    of_reflected((kind, event), cache, settings, (local, &remote))
                });
                objects.next()?
            }
        };
        let uid = &cache
            .entry(&Ref::new(&Cluster::Local, &resource, &key))?
            .uid;

        let mut involved = Self { resource, key, uid };
        if let Subject::Other { kind, .. } = &event.about.kind {
            // The flag does not name it.
            involved.resource.kind = Cow::Owned(kind.to_string());
        }

        Some(involved)
    }

    /// Adds the reference to the object to the fields of an Event.
    pub(super) fn refer(&self, fields: &mut Value) {
        let reference = json!({
            "apiVersion": self.resource.api_version(),
            "kind": self.resource.kind,
            "namespace": self.key.namespace,
            "name": self.key.name,
            "uid": self.uid,
            "fieldPath": fields["involvedObject"]["fieldPath"],
        });
        fields["involvedObject"] = reference;
    }
}

/// Returns the kinds of a group that flags name, of which the provider has an object of this name. The name of the kind is one that
/// Kubernetes accepts.
fn other_kinds(
    (group, name): (&str, &str),
    cache: &Cache,
    settings: &EventSettings,
    remote: &Key,
) -> Vec<Kind> {
    let provider = settings.reflection.peering.cluster();
    let is_name = name.chars().all(|it| it.is_ascii_alphanumeric());
    let kinds = settings.reflection.others().filter(|_| is_name);
    let kinds = kinds.filter(|kind| {
        let resource = kind.remote();
        let objects = cache.dynamic(&provider, &resource);
        let object: Option<&Summary<DynamicObject>> = objects.get(remote);
        let state = object.and_then(|it| it.other.as_deref());
        // Lists of kinds that are built in leave out the kind of their objects.
        let is_kind = state.is_some_and(|it| it.kind.is_empty() || *it.kind == *name);
        is_kind && resource.group == group
    });

    kinds.collect()
}

/// Returns the object of this cluster whose reflected object an Event is about.
fn of_reflected(
    (kind, event): (Kind, &EventSummary),
    cache: &Cache,
    settings: &EventSettings,
    (local, remote): (&str, &Key),
) -> Option<(Resource, Key)> {
    let peering = &settings.reflection.peering;
    let is_enabled = settings.reflection.is_enabled(kind);
    let present = Present::find(cache, peering, (kind, remote)).filter(|_| is_enabled)?;
    // The provider creates the EndpointSlice from a ShadowEndpointSlice.
    let is_same = kind == Kind::EndpointSlice || event.is_about(Some(present.uid));
    let key = kind.local_key(local, &remote.name, &peering.origin);

    (present.is_reflected && is_same).then(|| (kind.local(), key))
}

/// Returns the name at the provider of an object that Events may be about.
pub(super) fn remote_name(resource: &Resource, name: &str, settings: &EventSettings) -> String {
    let kind = settings.reflection.kind_of_local(resource);
    let origin = &settings.reflection.peering.origin;

    kind.map_or_else(
        || name.to_owned(),
        |it| it.remote_key("", name, origin).name,
    )
}

fn of_pod(namespace: &str, remote: &Key) -> (Resource, Key) {
    (Resource::of::<Pod>(), Key::new(namespace, &*remote.name))
}

fn remote_object<'a, K>(cache: &'a Cache, settings: &EventSettings, key: &Key) -> Option<&'a K>
where
    K: control_runtime::Kept,
{
    let provider = settings.reflection.peering.cluster();
    cache.objects::<K>(&provider).get(key)
}

/// Returns whether an object of the provider is of a pod of the Node.
fn is_own(object: &ObjectMeta, settings: &EventSettings) -> bool {
    let labels = object.labels.clone().unwrap_or_default();
    let node = labels.get(labels::NODE_NAME);

    settings.node.is_some()
        && node == settings.node.as_ref()
        && settings.reflection.peering.is_reflected(&labels)
}

fn is_same(event: &EventSummary, object: &ObjectMeta) -> bool {
    event.is_about(object.uid.as_deref())
}
