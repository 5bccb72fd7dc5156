//! The object of this cluster that an Event of the provider is about.

use super::settings::EventSettings;
use super::{EventSummary, Subject};
use crate::reflection::kind::Kind;
use crate::reflection::present::Present;
use control_api::{ShadowPod, labels};
use control_runtime::{Cache, Cluster, Key, Ref, Resource};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

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
        let (resource, key) = match event.about.kind? {
            Subject::Pod => {
                let pod = remote_object::<Pod>(cache, settings, &remote)?;
                let is_it = is_own(&pod.metadata, settings) && is_same(event, &pod.metadata);
                is_it.then(|| of_pod(local, &remote))?
            }
            Subject::ShadowPod => {
                let shadow = remote_object::<ShadowPod>(cache, settings, &remote)?;
                let is_it = is_own(&shadow.metadata, settings) && is_same(event, &shadow.metadata);
                is_it.then(|| of_pod(local, &remote))?
            }
            Subject::Reflected(kind) => {
                let peering = &settings.reflection.peering;
                let present = Present::find(cache, peering, (kind, &remote))?;
                // The provider creates the EndpointSlice from a ShadowEndpointSlice.
                let is_same = kind == Kind::EndpointSlice || event.is_about(Some(present.uid));
                let key = kind.local_key(local, &remote.name, &peering.origin);
                (present.is_reflected && is_same).then(|| (kind.local(), key))?
            }
        };
        let uid = &cache
            .entry(&Ref::new(&Cluster::Local, &resource, &key))?
            .uid;

        Some(Self { resource, key, uid })
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
