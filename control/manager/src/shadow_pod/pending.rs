//! The ShadowPods that have no pod. Only they depend on other objects than those of their own name, so a change of such an
//! object concerns no existing pod.

use super::kept::KeptShadowPod;
use super::objects::Local;
use crate::authentication::label;
use crate::network::id_of;
use crate::shadow_endpoint_slice::Peers;
use control_api::authentication::tenant_policy;
use control_api::tenant_namespace::peer_of;
use control_api::{Configuration, TenantPolicy, annotations, labels};
use control_runtime::{Change, Key};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::node::v1::RuntimeClass;
use std::collections::BTreeSet;

/// Names of ShadowPods without a pod.
#[derive(Debug, Default)]
pub(super) struct Pending(BTreeSet<Key>);

impl Pending {
    /// Adds or removes a name.
    pub(super) fn update(&mut self, local: &Local<'_>, key: &Key) {
        if local.is_pending(key) {
            self.0.insert(key.clone());
        } else {
            self.0.remove(key);
        }
    }

    /// Returns the names that the change of another object concerns. The pods in the namespaces of a changed Namespace are
    /// among them, because it determines the Quota that they count against.
    pub(super) fn names_of(&self, change: &Change<'_>, local: &Local<'_>) -> BTreeSet<Key> {
        let name = change.object.key.name.as_str();
        if change.is::<Namespace>() {
            of_namespace(change, local)
        } else if change.is::<TenantPolicy>() && name == tenant_policy::DEFAULT {
            self.0.clone()
        } else if change.is::<TenantPolicy>() {
            self.within(local.peers.namespaces_of(name))
        } else if change.is::<Configuration>() {
            let peers = Peers::remapped(change).into_iter();
            let namespaces = peers.flat_map(|peer| local.peers.namespaces_of(peer));
            let mut names = self.within(namespaces);
            let needs_mapping = |it: &KeptShadowPod| it.needs_mapping;
            names.retain(|name| local.shadow_pods.get(name).is_some_and(needs_mapping));
            names
        } else if change.is::<RuntimeClass>() {
            let names = self.0.iter().filter(|key| {
                let shadow_pod = local.shadow_pods.get(key);
                shadow_pod.and_then(|it| it.profile.runtime_class()) == Some(name)
            });
            names.cloned().collect()
        } else if change.is::<ConfigMap>() {
            let is_same = change.before().and_then(id_of) == change.after().and_then(id_of);
            if is_same {
                BTreeSet::new()
            } else {
                self.0.clone()
            }
        } else {
            BTreeSet::new()
        }
    }

    fn within<'a>(&self, namespaces: impl Iterator<Item = &'a str>) -> BTreeSet<Key> {
        let names = namespaces.flat_map(|namespace| {
            let names = self.0.range(Key::new(namespace, "")..);
            names.take_while(move |key| key.namespace == namespace)
        });

        names.cloned().collect()
    }
}

/// Returns the ShadowPods and pods in a namespace of a consumer, or all of the consumer with this tenant namespace.
fn of_namespace(change: &Change<'_>, local: &Local<'_>) -> BTreeSet<Key> {
    let states = [change.before::<Namespace>(), change.after()];
    let facts = states.map(|namespace| {
        let metadata = &namespace?.metadata;
        let annotations = metadata.annotations.as_ref();
        Some((
            peer_of(metadata),
            label(metadata, labels::REMOTE_CLUSTER_ID),
            label(metadata, labels::TENANT_NAMESPACE),
            annotations.and_then(|it| it.get(annotations::NAMESPACE_MAP)),
            metadata.deletion_timestamp.is_some(),
        ))
    });
    if facts[0] == facts[1] {
        return BTreeSet::new();
    }
    let mut names = local.within(&change.object.key.name);
    let peers = facts.into_iter().flatten().filter_map(|it| it.0);
    names.extend(peers.flat_map(|peer| local.of_consumer(peer)));

    names
}
