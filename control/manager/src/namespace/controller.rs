//! Connects the planners of namespaces to the runtime.

use super::item::WorkItem;
use super::objects::{BY_NAME, BY_REMOTE, Local, NAME, entries, map_of, mapping};
use super::registrations::registrations;
use super::settings::Settings;
use super::withdrawal::Withdrawals;
use super::{mapping, offloading, remote};
use crate::authentication::is_replica;
use control_api::tenant_namespace::peer_of;
use control_api::{ForeignCluster, NamespaceMap, NamespaceOffloading, TenantPolicy, VirtualNode};
use control_runtime::{
    Cache, Change, Controller, Env, Key, Outcome, Plan, Queue, Registration, Request,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, ResourceQuota};
use k8s_openapi::api::rbac::v1::RoleBinding;
use std::collections::{BTreeMap, BTreeSet};

/// Plans the namespaces of both sides.
pub(crate) struct NamespaceController {
    settings: Settings,
    withdrawals: Withdrawals,
}

impl NamespaceController {
    /// Creates the controller.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            withdrawals: Withdrawals::default(),
        }
    }
}

impl Controller for NamespaceController {
    type Item = WorkItem;
    const NAME: &'static str = "namespace";
    const FIELD_MANAGER: &'static str = "namespace.liqo.io";

    fn resources(&self) -> Vec<Registration> {
        registrations(&self.settings.namespace)
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<WorkItem> {
        let local = Local::new(cache, &self.settings.namespace);
        let mut items = items_of(&local, change);
        items.extend(self.withdrawals.item_of(change));

        Vec::from_iter(items)
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        let local = Local::new(cache, &self.settings.namespace);
        match item {
            WorkItem::Offloading(namespace) => {
                offloading::plan(&local, &self.settings, namespace, env)
            }
            WorkItem::Entry { tenant, namespace } => {
                mapping::plan_entry(&local, &self.settings, (tenant, namespace), env)
            }
            WorkItem::Map(tenant) => mapping::plan_map(&local, tenant),
            WorkItem::Remote(key) => remote::plan(&local, &mut self.withdrawals, key, env),
        }
    }

    fn done(
        &mut self,
        _item: &WorkItem,
        request: &Request,
        outcome: &Outcome,
        _cache: &Cache,
    ) -> Vec<WorkItem> {
        match request {
            Request::Read(object) => Vec::from_iter(self.withdrawals.read(object, outcome)),
            Request::Write(_) | Request::Probe(_) => Vec::new(),
        }
    }

    /// Peers take turns; so do the namespaces of this cluster.
    fn queue(item: &WorkItem) -> Queue {
        match item {
            WorkItem::Offloading(_) => Queue::default(),
            WorkItem::Entry { tenant, .. } | WorkItem::Map(tenant) => Queue(tenant.clone()),
            WorkItem::Remote(key) => Queue(key.namespace.clone()),
        }
    }

    fn item_kind(item: &WorkItem) -> &'static str {
        item.kind()
    }
}

type Items = BTreeSet<WorkItem>;

/// Returns the work items that a change concerns.
fn items_of(local: &Local<'_>, change: &Change<'_>) -> Items {
    let key = &change.object.key;
    if change.is::<NamespaceOffloading>() {
        if key.name == NAME {
            of_namespace(local, &key.namespace)
        } else {
            Items::new()
        }
    } else if change.is::<NamespaceMap>() {
        of_map(change)
    } else if change.is::<VirtualNode>() {
        if selected(change.before()) == selected(change.after()) {
            return Items::new();
        }
        of_tenant(local, &key.namespace)
    } else if change.is::<Node>() {
        if labels_of(change.before()) == labels_of(change.after()) {
            return Items::new();
        }
        let nodes = local.virtual_nodes.indexed(BY_NAME, &key.name);
        nodes
            .flat_map(|(key, _)| of_tenant(local, &key.namespace))
            .collect()
    } else if change.is::<Namespace>() {
        of_namespace_object(local, change)
    } else if change.is::<RoleBinding>() {
        let namespace = local.namespaces.get(&Key::cluster(&*key.namespace));
        let mut items = of_remote_namespace(namespace);
        items.insert(WorkItem::Offloading(key.namespace.clone()));
        items
    } else if change.is::<ResourceQuota>() {
        of_remote_namespace(local.namespaces.get(&Key::cluster(&*key.namespace)))
    } else if change.is::<TenantPolicy>() {
        let replicas = local
            .maps
            .iter()
            .filter(|(_, map)| is_replica(&map.metadata));
        replicas
            .map(|(key, _)| WorkItem::Remote(key.clone()))
            .collect()
    } else if change.is::<ForeignCluster>() {
        // Whether the peer is dead decides how long a deletion waits.
        let maps = local
            .maps
            .iter()
            .filter(|(it, map)| it.name == key.name && !is_replica(&map.metadata));
        let namespaces = maps.flat_map(|(_, map)| entries(map));
        namespaces.cloned().map(WorkItem::Offloading).collect()
    } else if change.is::<ConfigMap>() {
        let all = local.offloadings.iter().filter(|(key, _)| key.name == NAME);
        all.flat_map(|(key, _)| of_namespace(local, &key.namespace))
            .collect()
    } else {
        Items::new()
    }
}

/// Returns the items of a namespace of this cluster: its NamespaceOffloading, and its entry at each provider.
fn of_namespace(local: &Local<'_>, namespace: &str) -> Items {
    let nodes = local.virtual_nodes.iter().map(|(key, _)| &key.namespace);
    let maps = local
        .maps
        .iter()
        .filter(|(_, map)| !is_replica(&map.metadata));
    let tenants: BTreeSet<_> = nodes.chain(maps.map(|(key, _)| &key.namespace)).collect();
    let entries = tenants.into_iter().map(|tenant| WorkItem::Entry {
        tenant: tenant.clone(),
        namespace: namespace.to_owned(),
    });

    entries
        .chain([WorkItem::Offloading(namespace.to_owned())])
        .collect()
}

/// Returns the items of a provider: its NamespaceMap, and the entries of all namespaces.
fn of_tenant(local: &Local<'_>, tenant: &str) -> Items {
    let offloadings = local.offloadings.iter().filter(|(key, _)| key.name == NAME);
    let offloadings = offloadings.map(|(key, _)| &key.namespace);
    let namespaces: BTreeSet<_> = offloadings
        .chain(local.map(tenant).into_iter().flat_map(entries))
        .collect();
    let items = namespaces.into_iter().flat_map(|namespace| {
        let entry = WorkItem::Entry {
            tenant: tenant.to_owned(),
            namespace: namespace.clone(),
        };
        [entry, WorkItem::Offloading(namespace.clone())]
    });

    items.chain([WorkItem::Map(tenant.to_owned())]).collect()
}

/// Returns the items of a NamespaceMap: those of its entries that have changed.
fn of_map(change: &Change<'_>) -> Items {
    let key = &change.object.key;
    let (before, after) = (
        change.before::<NamespaceMap>(),
        change.after::<NamespaceMap>(),
    );
    let states = [before, after];
    let mut items = Items::new();
    if states.iter().flatten().any(|map| is_replica(&map.metadata)) {
        items.insert(WorkItem::Remote(key.clone()));
    }
    if states.iter().flatten().all(|map| is_replica(&map.metadata)) {
        return items;
    }
    let entry = |map: Option<&NamespaceMap>, namespace: &String| {
        let desired = map.and_then(|it| it.spec.desired_mapping.get(namespace).cloned());
        (desired, mapping(map, namespace).cloned())
    };
    let names: BTreeSet<_> = states.into_iter().flatten().flat_map(entries).collect();
    for namespace in names {
        if entry(before, namespace) != entry(after, namespace) {
            items.insert(WorkItem::Offloading(namespace.clone()));
            items.insert(WorkItem::Entry {
                tenant: key.namespace.clone(),
                namespace: namespace.clone(),
            });
        }
    }
    items.insert(WorkItem::Map(key.namespace.clone()));

    items
}

/// Returns the items of a namespace object: as one that is offloaded, of a consumer, or of a peering.
fn of_namespace_object(local: &Local<'_>, change: &Change<'_>) -> Items {
    let name = &change.object.key.name;
    let states = [change.before::<Namespace>(), change.after::<Namespace>()];
    let mut items = Items::new();
    for namespace in states {
        items.extend(of_remote_namespace(namespace));
    }
    let requesting = local.maps.indexed(BY_REMOTE, name);
    items.extend(requesting.map(|(key, _)| WorkItem::Remote(key.clone())));
    if local.offloading(name).is_some() {
        items.extend(of_namespace(local, name));
    } else {
        items.insert(WorkItem::Offloading(name.clone()));
    }
    let peers = states.map(|it| it.and_then(|it| peer_of(&it.metadata)));
    let deleted = states.map(|it| it.is_none_or(|it| it.metadata.deletion_timestamp.is_some()));
    if peers[0] != peers[1] || deleted[0] != deleted[1] {
        items.extend(of_tenant(local, name));
        let replicas = local
            .maps
            .within(name)
            .filter(|(_, map)| is_replica(&map.metadata));
        items.extend(replicas.map(|(key, _)| WorkItem::Remote(key.clone())));
    }

    items
}

/// Returns the item of the NamespaceMap that a namespace was created for.
fn of_remote_namespace(namespace: Option<&Namespace>) -> Items {
    let map = namespace.and_then(|it| map_of(&it.metadata));
    let key = map.and_then(|map| map.split_once('/'));

    key.map(|(namespace, name)| WorkItem::Remote(Key::new(namespace, name)))
        .into_iter()
        .collect()
}

/// The fields of a VirtualNode that selection depends on.
type Selected<'a> = (Option<&'a str>, &'a BTreeMap<String, String>, bool, bool);

/// Returns the fields of a VirtualNode that selection depends on.
fn selected(node: Option<&VirtualNode>) -> Option<Selected<'_>> {
    node.map(|node| {
        (
            node.spec.cluster_id.as_deref(),
            &node.spec.labels,
            node.spec.storage_classes.is_empty(),
            node.metadata.deletion_timestamp.is_some(),
        )
    })
}

/// Returns the labels of a Node; `None` if it does not exist.
fn labels_of(node: Option<&Node>) -> Option<Option<&BTreeMap<String, String>>> {
    node.map(|node| node.metadata.labels.as_ref())
}
