//! Connects the planners of offloading to the runtime.

use super::item::WorkItem;
use super::objects::{BY_NAME, Local, owner_key};
use super::registrations::registrations;
use super::{quota, status, virtual_node};
use crate::authentication::label;
use control_api::offloading::quota::LimitsEnforcement;
use control_api::{Identity, Quota, ResourceSlice, VirtualNode, labels};
use control_runtime::{Cache, Change, Controller, Env, Key, Plan, Queue, Registration};
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use std::collections::BTreeSet;

/// Values of the flags.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How limits of containers count against Quotas.
    pub(crate) limits_enforcement: LimitsEnforcement,
    /// Keys of reserved domains that providers may set as labels of Nodes.
    pub(crate) allowed_node_labels: Vec<String>,
}

/// Plans Quotas and VirtualNodes.
pub(crate) struct OffloadingController {
    settings: Settings,
}

impl OffloadingController {
    /// Creates the controller.
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Controller for OffloadingController {
    type Item = WorkItem;
    const NAME: &'static str = "offloading";
    const FIELD_MANAGER: &'static str = "offloading.liqo.io";

    fn resources(&self) -> Vec<Registration> {
        registrations()
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<WorkItem> {
        Vec::from_iter(items_of(&Local::new(cache), change))
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        let local = Local::new(cache);
        match item {
            WorkItem::Quota(key) => quota::plan(&local, self.settings.limits_enforcement, key),
            WorkItem::VirtualNode(key) => {
                virtual_node::plan(&local, &self.settings.allowed_node_labels, key)
            }
            WorkItem::Status(key) => status::plan(&local, key, env),
        }
    }

    /// The objects of a peer are in its tenant namespace.
    fn queue(item: &WorkItem) -> Queue {
        Queue(item.key().namespace.clone())
    }

    fn item_kind(item: &WorkItem) -> &'static str {
        item.kind()
    }
}

/// Returns the work items that a change concerns.
fn items_of(local: &Local<'_>, change: &Change<'_>) -> BTreeSet<WorkItem> {
    let key = &change.object.key;
    if change.is::<ResourceSlice>() {
        let mut items = of_slices_named(local, &key.name);
        items.extend(of_slice(key));
        items
    } else if change.is::<Quota>() {
        let owners = metadata::<Quota>(change).filter_map(owner_key);
        let mut items: BTreeSet<_> = owners.map(WorkItem::Quota).collect();
        items.extend(quota::slice_of(key).map(WorkItem::Quota));
        items
    } else if change.is::<VirtualNode>() {
        let owners = metadata::<VirtualNode>(change).filter_map(owner_key);
        let mut items: BTreeSet<_> = owners.map(WorkItem::VirtualNode).collect();
        items.extend(of_slices_named(local, &key.name));
        items.insert(WorkItem::Status(key.clone()));
        items
    } else if change.is::<Identity>() {
        let slices = metadata::<Identity>(change)
            .filter_map(|metadata| label(metadata, labels::RESOURCE_SLICE_NAME));
        let slices = slices.map(|slice| Key::new(&*key.namespace, slice));
        slices.map(WorkItem::VirtualNode).collect()
    } else if change.is::<Namespace>() {
        let slices = local.slices.within(&key.name);
        slices.flat_map(|(key, _)| of_slice(key)).collect()
    } else if change.is::<Node>() && labels_of(change.before()) != labels_of(change.after()) {
        let nodes = local.virtual_nodes.indexed(BY_NAME, &key.name);
        let mut items = of_slices_named(local, &key.name);
        items.extend(nodes.map(|(key, _)| WorkItem::Status(key.clone())));
        items
    } else {
        BTreeSet::new()
    }
}

/// Returns the metadata of an object before and after a change.
fn metadata<'a, K: Resource<DynamicType = ()> + Send + Sync + 'static>(
    change: &Change<'a>,
) -> impl Iterator<Item = &'a ObjectMeta> {
    let states = [change.before::<K>(), change.after::<K>()];
    states.into_iter().flatten().map(Resource::meta)
}

/// Returns the labels of a Node; `None` if it does not exist.
fn labels_of(node: Option<&Node>) -> Option<Option<&std::collections::BTreeMap<String, String>>> {
    node.map(|node| node.metadata.labels.as_ref())
}

fn of_slice(key: &Key) -> [WorkItem; 2] {
    [
        WorkItem::Quota(key.clone()),
        WorkItem::VirtualNode(key.clone()),
    ]
}

/// Returns the items of the slices that claim a name of a VirtualNode.
fn of_slices_named(local: &Local<'_>, name: &str) -> BTreeSet<WorkItem> {
    let slices = local.slices.indexed(BY_NAME, name);
    slices
        .map(|(key, _)| WorkItem::VirtualNode(key.clone()))
        .collect()
}
