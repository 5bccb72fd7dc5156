//! The work items that a change concerns.

use super::item::WorkItem;
use super::kind::Kind;
use super::namespaces::{Namespaces, State, names};
use super::present::has_others;
use super::registrations::{BY_ADDRESS, BY_NODE, BY_SERVICE};
use super::settings::Settings;
use super::summary::Summary;
use control_api::annotations::REMOTE_POD_CIDRS;
use control_api::offloading::policy::Marks;
use control_api::root_ca::ROOT_CA;
use control_api::{IP, NamespaceMap};
use control_runtime::{Cache, Change, Cluster, Key, Ref};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::DynamicObject;
use std::collections::BTreeSet;

type Items = BTreeSet<WorkItem>;

/// The objects of both clusters.
pub(super) struct Observer<'a> {
    pub(super) cache: &'a Cache,
    pub(super) settings: &'a Settings,
    pub(super) namespaces: &'a Namespaces,
}

impl Observer<'_> {
    /// Returns the items of a change.
    pub(super) fn items_of(&self, change: &Change<'_>) -> Items {
        let Ref { cluster, key, .. } = change.object;
        if *cluster != Cluster::Local {
            let items = self.of_remote(change.object).into_iter();
            let mut items: Items = items.flat_map(with_status).collect();
            if change.entry().is_none() {
                items.extend(self.root_ca(change.object));
            }
            return items;
        }
        if change.is::<NamespaceMap>() {
            self.of_map(change)
        } else if change.is::<Namespace>() {
            self.of_namespace(change)
        } else if change.is::<Node>() {
            self.of_node(change)
        } else if change.is::<IP>() {
            let states = [change.before::<IP>(), change.after::<IP>()];
            let addresses = states.into_iter().flatten().map(|it| &*it.spec.ip);
            addresses
                .flat_map(|it| self.slices(BY_ADDRESS, it))
                .filter(|it| it.namespace() == key.namespace)
                .collect()
        } else {
            self.of_local(change)
        }
    }

    /// Returns the items of all objects of a namespace of this cluster.
    pub(super) fn items_in(&self, namespace: &str) -> Items {
        let kinds = self.settings.policies.keys();
        let local = kinds.clone().flat_map(|kind| {
            let keys = self.keys_in(*kind, &Cluster::Local, namespace);
            keys.into_iter().map(|key| WorkItem::Object(*kind, key))
        });
        let mut items: Items = local.flat_map(with_status).collect();
        let remote = self.namespaces.remote(namespace);
        let cluster = self.settings.peering.cluster();
        for (kind, remote) in kinds.flat_map(|kind| remote.map(|it| (*kind, it))) {
            let keys = self.keys_in(kind, &cluster, remote);
            items.extend(keys.iter().map(|it| self.item(kind, namespace, &it.name)));
        }

        items
    }

    fn keys_in(&self, kind: Kind, cluster: &Cluster, namespace: &str) -> Vec<Key> {
        fn keys<'a, T>(objects: impl Iterator<Item = (&'a Key, T)>) -> Vec<Key> {
            objects.map(|(key, _)| key.clone()).collect()
        }
        let cache = self.cache;
        match (kind, cluster) {
            (Kind::Service, _) => {
                keys(cache.objects::<Summary<Service>>(cluster).within(namespace))
            }
            (Kind::Ingress, _) => {
                keys(cache.objects::<Summary<Ingress>>(cluster).within(namespace))
            }
            (Kind::ConfigMap, _) => keys(
                cache
                    .objects::<Summary<ConfigMap>>(cluster)
                    .within(namespace),
            ),
            (Kind::Secret, _) => keys(cache.objects::<Summary<Secret>>(cluster).within(namespace)),
            (Kind::EndpointSlice, Cluster::Local) => {
                keys(cache.objects::<EndpointSlice>(cluster).within(namespace))
            }
            (Kind::EndpointSlice, Cluster::Remote(_)) => {
                let slices = cache.objects::<Summary<control_api::ShadowEndpointSlice>>(cluster);
                keys(slices.within(namespace))
            }
            (Kind::Other(_), _) => {
                let objects = cache.dynamic::<Summary<DynamicObject>>(cluster, &kind.local());
                keys(objects.within(namespace))
            }
        }
    }

    /// Returns the item of an object of the provider.
    fn of_remote(&self, object: &Ref) -> Option<WorkItem> {
        let kind = self.settings.kind_of_remote(&object.resource)?;
        let is_ours = object.cluster == self.settings.peering.cluster();
        let local = self.namespaces.local(&object.key.namespace)?;

        is_ours.then(|| self.item(kind, local, &object.key.name))
    }

    /// Returns the root CA of a withdrawn namespace if the last one of its other objects is gone.
    fn root_ca(&self, object: &Ref) -> Option<WorkItem> {
        let namespace = self.namespaces.local(&object.key.namespace)?;
        let state = State::in_cache(self.cache, &self.settings.map(), namespace);
        let is_last = matches!(state, State::Withdrawn(_))
            && !has_others(self.cache, self.settings, &object.key.namespace);

        is_last.then(|| root_ca(namespace))
    }

    fn item(&self, kind: Kind, namespace: &str, remote_name: &str) -> WorkItem {
        let origin = &self.settings.peering.origin;
        WorkItem::Object(kind, kind.local_key(namespace, remote_name, origin))
    }

    fn of_local(&self, change: &Change<'_>) -> Items {
        let key = &change.object.key;
        let kind = self.settings.kind_of_local(&change.object.resource);
        let followed = kind.filter(|_| self.namespaces.remote(&key.namespace).is_some());
        let mut items: Items = followed
            .map(|kind| WorkItem::Object(kind, key.clone()))
            .into_iter()
            .flat_map(with_status)
            .collect();
        if change.is::<Service>() {
            let state =
                |service: Option<&Summary<Service>>| service.map(|it| (it.marks, it.is_direct));
            if state(change.before()) != state(change.after()) {
                let slices = self.slices(BY_SERVICE, &key.name);
                items.extend(slices.filter(|it| it.namespace() == key.namespace));
            }
        }

        items
    }

    /// Returns the items of the namespaces whose state has changed.
    fn of_map(&self, change: &Change<'_>) -> Items {
        if change.object.key != self.settings.map() {
            return Items::new();
        }
        let (before, after) = (change.before(), change.after());
        let states: [Option<&NamespaceMap>; 2] = [before, after];
        let names: BTreeSet<_> = states.into_iter().flatten().flat_map(names).collect();
        let changed = names
            .into_iter()
            .filter(|name| State::of(before, name) != State::of(after, name));
        let mut items = Items::new();
        for name in changed {
            items.insert(WorkItem::Namespace(name.to_owned()));
            items.extend(self.items_in(name));
        }

        items
    }

    /// Returns the items of a namespace whose annotations about reflection have changed.
    fn of_namespace(&self, change: &Change<'_>) -> Items {
        let marks = |it: Option<&Namespace>| {
            it.map_or_else(Marks::default, |it| {
                Marks::of(it.metadata.annotations.as_ref())
            })
        };
        if marks(change.before()) == marks(change.after()) {
            return Items::new();
        }
        self.items_in(&change.object.key.name)
    }

    fn of_node(&self, change: &Change<'_>) -> Items {
        let key = &change.object.key;
        let facts = |node: Option<&Node>| {
            let metadata = &node?.metadata;
            let annotations = metadata.annotations.as_ref();
            let cidrs = annotations.and_then(|it| it.get(REMOTE_POD_CIDRS));
            Some((metadata.labels.clone(), cidrs.cloned()))
        };
        if facts(change.before()) == facts(change.after()) {
            return Items::new();
        }
        self.slices(BY_NODE, &key.name).collect()
    }

    fn slices(&self, index: &'static str, value: &str) -> impl Iterator<Item = WorkItem> + use<> {
        let slices = self.cache.objects::<EndpointSlice>(&Cluster::Local);
        let is_enabled = self.settings.is_enabled(Kind::EndpointSlice);
        let keys = slices.indexed(index, value).filter(|_| is_enabled);
        let items = keys.map(|(key, _)| WorkItem::Object(Kind::EndpointSlice, key.clone()));
        Vec::from_iter(items).into_iter()
    }
}

/// Returns the item of the root CA of a namespace of this cluster.
pub(super) fn root_ca(namespace: &str) -> WorkItem {
    WorkItem::Object(Kind::ConfigMap, Key::new(namespace, ROOT_CA))
}

/// Returns the item of an object, and that of its status.
fn with_status(item: WorkItem) -> impl Iterator<Item = WorkItem> {
    let status = match &item {
        WorkItem::Object(kind, key) if kind.has_status() => {
            Some(WorkItem::Status(*kind, key.clone()))
        }
        WorkItem::Object(..) | WorkItem::Status(..) | WorkItem::Namespace(_) => None,
    };

    [item].into_iter().chain(status)
}
