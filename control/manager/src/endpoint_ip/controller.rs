//! Connects the plan of IP objects to the runtime.

use super::objects::{BY_NODE, Local, addresses, cidr, pod_address};
use super::plan::{self, is_own};
use super::reflection::{marks, policy};
use super::registrations::{registrations, watches};
use crate::authentication::label;
use control_api::{IP, NamespaceOffloading, Network, VirtualNode, annotations, labels};
use control_runtime::{
    Cache, Change, Controller, Env, Plan, Queue, Registration, WatchChange, WatchId,
};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Plans the IP objects of endpoints.
pub(crate) struct EndpointIpController {
    /// Namespace of Liqo.
    liqo: String,
    /// The watches in each offloaded namespace.
    followed: BTreeMap<String, BTreeSet<WatchId>>,
}

/// Part that is compared with its desired state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// The watch of the EndpointSlices of a namespace.
    Namespace(String),
    /// The IP object of an address of a namespace.
    Address(String, Ipv4Addr),
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
            Self::Address(namespace, address) => write!(f, "address {address} of {namespace}"),
        }
    }
}

impl EndpointIpController {
    /// Creates the controller, with Liqo in namespace `liqo`.
    pub(crate) fn new(liqo: String) -> Self {
        Self {
            liqo,
            followed: BTreeMap::new(),
        }
    }

    /// Returns the items of all addresses and IP objects of a namespace.
    fn items_in(&self, namespace: &str, cache: &Cache) -> BTreeSet<WorkItem> {
        let local = Local::new(cache, &self.liqo);
        let slices = local.slices.within(namespace);
        let slices = slices.filter(|_| self.followed.contains_key(namespace));
        let of_slices = slices.flat_map(|(_, slice)| addresses(slice));
        let of_slices = of_slices.filter(|it| !local.is_of_pod(*it));
        let ips = local.ips.within(namespace).filter(|(_, ip)| is_own(ip));
        let of_ips = ips.filter_map(|(_, ip)| ip.spec.ip.parse().ok());
        let pods = local.pods.within(namespace);
        let of_pods = pods.filter_map(|(_, pod)| pod_address(pod));
        let all = of_slices.chain(of_ips).chain(of_pods);

        all.map(|it| WorkItem::Address(namespace.to_owned(), it))
            .collect()
    }

    fn all_items(&self, cache: &Cache) -> BTreeSet<WorkItem> {
        let namespaces = self.followed.keys();
        namespaces.flat_map(|it| self.items_in(it, cache)).collect()
    }

    /// Returns the items of an EndpointSlice, before and after its change.
    fn of_slice(&self, change: &Change<'_>, cache: &Cache) -> BTreeSet<WorkItem> {
        let local = Local::new(cache, &self.liqo);
        let namespace = &change.object.key.namespace;
        let states: [Option<&EndpointSlice>; 2] = [change.before(), change.after()];
        let states = states.into_iter().flatten();
        let states = states.filter(|_| self.followed.contains_key(namespace));
        let addresses = states.flat_map(addresses);
        let addresses = addresses.filter(|it| !local.is_of_pod(*it));

        addresses
            .map(|it| WorkItem::Address(namespace.clone(), it))
            .collect()
    }

    /// Returns the items of the endpoints of a Node whose cluster or addresses have changed.
    fn of_node(&self, change: &Change<'_>, cache: &Cache) -> BTreeSet<WorkItem> {
        let facts = |node: Option<&Node>| {
            let node = node?;
            let label = |key| label(&node.metadata, key).map(str::to_owned);
            let labels = [labels::NODE_TYPE, labels::REMOTE_CLUSTER_ID].map(label);
            let annotations = node.metadata.annotations.as_ref();
            let cidrs = annotations.and_then(|it| it.get(annotations::REMOTE_POD_CIDRS));
            let status = node.status.as_ref();
            let addresses = status.and_then(|it| it.addresses.clone());
            Some((addresses, labels, cidrs.cloned()))
        };
        let [before, after] = [change.before(), change.after()].map(facts);
        if before == after {
            return BTreeSet::new();
        }
        let local = Local::new(cache, &self.liqo);
        let slices = local.slices.indexed(BY_NODE, &change.object.key.name);
        let slices = slices.filter(|(key, _)| self.followed.contains_key(&key.namespace));
        let of_slices = slices.flat_map(|(key, slice)| {
            let addresses = addresses(slice).into_iter();
            addresses.map(|it| WorkItem::Address(key.namespace.clone(), it))
        });
        let mut items: BTreeSet<_> = of_slices.collect();
        let node = change.object.key.name.as_str();
        let pods = self.followed.keys().flat_map(|it| local.pods.within(it));
        let pods = pods.filter(|(_, pod)| {
            let spec = pod.spec.as_ref();
            spec.and_then(|it| it.node_name.as_deref()) == Some(node)
        });
        items.extend(pods.filter_map(|(key, pod)| {
            Some(WorkItem::Address(key.namespace.clone(), pod_address(pod)?))
        }));
        let of_nodes = [before, after].into_iter().flatten();
        let of_nodes = of_nodes.flat_map(|(addresses, ..)| addresses.unwrap_or_default());
        let of_nodes = of_nodes.filter_map(|it| it.address.parse().ok());
        for address in of_nodes {
            let namespaces = self.followed.keys();
            items.extend(namespaces.map(|it| WorkItem::Address(it.clone(), address)));
        }

        items
    }

    /// Returns the watches that the IP objects of a namespace depend on.
    fn watches(&self, namespace: &str, cache: &Cache) -> BTreeSet<WatchId> {
        let providers = Local::new(cache, &self.liqo).providers(namespace);
        watches(namespace, providers.len())
    }

    fn plan_namespace(&mut self, namespace: &str, cache: &Cache) -> Plan<WorkItem> {
        let mut plan = Plan::default();
        let desired = self.watches(namespace, cache);
        let present = self.followed.remove(namespace).unwrap_or_default();
        let missing = desired.difference(&present).cloned();
        plan.watches.extend(missing.map(WatchChange::Add));
        let surplus = present.difference(&desired).cloned();
        plan.watches.extend(surplus.map(WatchChange::Remove));
        if !desired.is_empty() {
            self.followed.insert(namespace.to_owned(), desired);
        }
        let items = self.items_in(namespace, cache).into_iter();
        plan.requeue = items.map(|it| (Duration::ZERO, it)).collect();

        plan
    }
}

impl Controller for EndpointIpController {
    type Item = WorkItem;
    const NAME: &'static str = "endpoint-ip";
    const FIELD_MANAGER: &'static str = "liqo-controller-manager";

    fn resources(&self) -> Vec<Registration> {
        registrations()
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<WorkItem> {
        let key = &change.object.key;
        let items = if change.is::<NamespaceOffloading>() {
            [WorkItem::Namespace(key.namespace.clone())].into()
        } else if change.is::<EndpointSlice>() {
            self.of_slice(change, cache)
        } else if change.is::<IP>() {
            let states: [Option<&IP>; 2] = [change.before(), change.after()];
            let states = states.into_iter().flatten();
            let is_followed = self.followed.contains_key(&key.namespace);
            let states = states.filter(|it| is_followed || is_own(it));
            let addresses = states.filter_map(|it| it.spec.ip.parse().ok());
            addresses
                .map(|it| WorkItem::Address(key.namespace.clone(), it))
                .collect()
        } else if change.is::<Network>() {
            let of = |it: Option<&Network>| it.and_then(cidr);
            let is_changed =
                key.namespace == self.liqo && of(change.before()) != of(change.after());
            let items = is_changed.then(|| self.all_items(cache));
            items.unwrap_or_default()
        } else if change.is::<Node>() {
            self.of_node(change, cache)
        } else if change.is::<Namespace>() && self.followed.contains_key(&key.name) {
            let value = |it: Option<&Namespace>| {
                let metadata = &it?.metadata;
                let label = label(metadata, labels::ALLOW_INTERNAL_ADDRESSES);
                Some((label.map(str::to_owned), marks(metadata)))
            };
            let is_changed = value(change.before()) != value(change.after());
            let items = is_changed.then(|| self.items_in(&key.name, cache));
            items.unwrap_or_default()
        } else if change.is::<Service>() {
            let of = |it: Option<&Service>| it.map(|it| marks(&it.metadata)).unwrap_or_default();
            let is_changed = of(change.before()) != of(change.after());
            let items = is_changed.then(|| self.items_in(&key.namespace, cache));
            items.unwrap_or_default()
        } else if change.is::<Pod>() {
            let states: [Option<&Pod>; 2] = [change.before(), change.after()];
            let states = states.into_iter().flatten();
            let states = states.filter(|_| self.followed.contains_key(&key.namespace));
            let addresses = states.filter_map(pod_address);
            addresses
                .map(|it| WorkItem::Address(key.namespace.clone(), it))
                .collect()
        } else if change.is::<VirtualNode>() {
            let of =
                |it: Option<&VirtualNode>| it.map(|it| (it.spec.cluster_id.clone(), policy(it)));
            let states = [of(change.before()), of(change.after())];
            if states[0] == states[1] {
                return Vec::new();
            }
            let local = Local::new(cache, &self.liqo);
            let clusters = states
                .into_iter()
                .flatten()
                .filter_map(|(cluster, _)| cluster);
            let clusters: BTreeSet<_> = clusters.collect();
            let namespaces = self.followed.keys().filter(|namespace| {
                let mut providers = local.providers(namespace).into_iter();
                providers.any(|it| clusters.contains(it))
            });
            namespaces.flat_map(|it| self.items_in(it, cache)).collect()
        } else {
            BTreeSet::new()
        };

        Vec::from_iter(items)
    }

    /// The watches of a former leader have ended.
    fn started(&mut self, cache: &Cache) -> Vec<WorkItem> {
        self.followed.clear();
        let offloadings = cache.objects::<NamespaceOffloading>(&control_runtime::Cluster::Local);
        let ips = Local::new(cache, &self.liqo).ips;
        let of_ips = ips.iter().filter(|(_, ip)| is_own(ip));
        let namespaces = offloadings.iter().map(|(key, _)| key);
        let namespaces = namespaces.chain(of_ips.map(|(key, _)| key));
        let namespaces: BTreeSet<_> = namespaces.map(|it| it.namespace.clone()).collect();

        namespaces.into_iter().map(WorkItem::Namespace).collect()
    }

    fn listed(&mut self, id: &WatchId, cache: &Cache) -> Vec<WorkItem> {
        let namespace = id.namespace.as_deref().unwrap_or_default();
        let followed = self.followed.get(namespace);
        let is_own = followed.is_some_and(|it| it.contains(id));
        let items = is_own.then(|| self.items_in(namespace, cache));

        Vec::from_iter(items.unwrap_or_default())
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, _: &mut Env<'_>) -> Plan<WorkItem> {
        match item {
            WorkItem::Namespace(namespace) => self.plan_namespace(namespace, cache),
            WorkItem::Address(namespace, address) => {
                let local = Local::new(cache, &self.liqo);
                // Without the lists of its objects, an IP object that is needed would be deleted.
                let watches = self.watches(namespace, cache);
                if !watches.iter().all(|it| cache.is_synced(it)) {
                    return Plan::default();
                }
                plan::plan(&local, namespace, *address)
            }
        }
    }

    /// Namespaces take turns.
    fn queue(item: &WorkItem) -> Queue {
        let (WorkItem::Namespace(namespace) | WorkItem::Address(namespace, _)) = item;
        Queue(namespace.clone())
    }

    fn item_kind(item: &WorkItem) -> &'static str {
        match item {
            WorkItem::Namespace(_) => "namespace",
            WorkItem::Address(..) => "address",
        }
    }
}
