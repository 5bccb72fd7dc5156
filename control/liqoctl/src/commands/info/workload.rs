//! Pods of a virtual node, their requests, and the offloaded namespaces. PURE.

use super::boxes::Item;
use super::node;
use crate::printable::printable;
use control_api::offloading::namespace_map::MappingPhase;
use control_api::quantity::{Amount, amount};
use control_api::requests::{self, Amounts};
use control_api::{NamespaceMap, VirtualNode};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Resources whose requests are shown. The amounts of the second one are bytes.
const SHOWN: [&str; 2] = ["cpu", "memory"];

/// Objects of a virtual node; `None` if the user may not read them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Objects<'a> {
    pub(super) virtual_node: &'a VirtualNode,
    /// The Node, or none if it does not exist.
    pub(super) node: Option<Option<&'a Node>>,
    /// The pods that are bound to it.
    pub(super) pods: Option<&'a [Pod]>,
    /// The NamespaceMap of the provider, or none if it does not exist.
    pub(super) map: Option<Option<&'a NamespaceMap>>,
}

/// Pods and namespaces of a virtual node. Parts that the user may not read are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Workload {
    /// Whether the Node is ready, or why not.
    node: Option<Result<(), String>>,
    pods: Option<Pods>,
    requested: Vec<Requested>,
    namespaces: Vec<Namespace>,
}

/// Number of pods by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pods {
    running: usize,
    pending: usize,
    failed: usize,
}

/// The amount of a resource that pods request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requested {
    resource: &'static str,
    requested: String,
    /// As the Node reports it.
    capacity: String,
    percent: Option<u128>,
}

/// A namespace that is offloaded to the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Namespace {
    name: String,
    remote: String,
    phase: &'static str,
}

impl Workload {
    /// Summarises the objects of a virtual node.
    pub(super) fn of(objects: Objects<'_>) -> Self {
        let node = objects.node.map(|node| match node {
            Some(node) => node::problem(node).map_or(Ok(()), |it| Err(printable(&it))),
            None => Err("it does not exist".to_owned()),
        });
        let capacity = capacity(objects.virtual_node, objects.node.flatten());
        let requested = objects.pods.map(|pods| requested(pods, &capacity));
        Self {
            node,
            pods: objects.pods.map(count),
            requested: requested.unwrap_or_default(),
            namespaces: objects.map.flatten().map(namespaces).unwrap_or_default(),
        }
    }

    /// Adds the fields of the summary to a value for `-o` and `--get`.
    pub(super) fn add_to(&self, value: &mut Value) {
        if let Some(node) = &self.node {
            value["node"] = match node {
                Ok(()) => json!({"ready": true}),
                Err(problem) => json!({"ready": false, "problem": problem}),
            };
        }
        if let Some(pods) = &self.pods {
            value["pods"] = json!({
                "running": pods.running, "pending": pods.pending, "failed": pods.failed,
            });
        }
        for it in &self.requested {
            value["requested"][it.resource] = json!({
                "requested": it.requested, "capacity": it.capacity, "percent": it.percent,
            });
        }
        if !self.namespaces.is_empty() {
            let namespaces = self
                .namespaces
                .iter()
                .map(|it| json!({"name": it.name, "remoteName": it.remote, "phase": it.phase}));
            value["namespaces"] = namespaces.collect();
        }
    }

    /// Returns the summary for boxes.
    pub(super) fn items(&self) -> Vec<Item> {
        let mut items = Vec::new();
        if let Some(node) = &self.node {
            let text = match node {
                Ok(()) => "ready".to_owned(),
                Err(problem) => format!("not ready: {problem}"),
            };
            items.push(Item::entry("Node", text));
        }
        if let Some(pods) = &self.pods {
            let Pods {
                running,
                pending,
                failed,
            } = pods;
            let text = format!("{running} running, {pending} pending, {failed} failed");
            items.push(Item::entry("Pods", text));
        }
        items.extend(self.requested.iter().map(Requested::item));
        if !self.namespaces.is_empty() {
            let namespaces = self.namespaces.iter().map(Namespace::item);
            items.push(Item::section("Offloaded namespaces", namespaces.collect()));
        }
        items
    }
}

impl Requested {
    fn item(&self) -> Item {
        let Self {
            requested,
            capacity,
            ..
        } = self;
        let percent = self.percent.map(|it| format!(" ({it}%)"));
        let of = match capacity.is_empty() {
            true => String::new(),
            false => format!(" of {capacity}"),
        };
        let text = format!("{requested}{of}{}", percent.unwrap_or_default());
        Item::entry(&format!("Requested {}", self.resource), text)
    }
}

impl Namespace {
    fn item(&self) -> Item {
        let remote = match self.remote.is_empty() {
            true => String::new(),
            false => format!(" → {}", self.remote),
        };
        Item::Line(format!("{}{remote}: {}", self.name, self.phase))
    }
}

fn phase(pod: &Pod) -> &str {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    phase.unwrap_or("Pending")
}

fn count(pods: &[Pod]) -> Pods {
    let of = |name: &str| pods.iter().filter(|pod| phase(pod) == name).count();
    Pods {
        running: of("Running"),
        pending: of("Pending"),
        failed: of("Failed"),
    }
}

/// Returns the capacity of the Node, which is the quota of the VirtualNode.
fn capacity(virtual_node: &VirtualNode, node: Option<&Node>) -> BTreeMap<String, Quantity> {
    let of_node = node.and_then(|it| it.status.as_ref()?.capacity.clone());
    let quota = virtual_node.spec.resource_quota.as_ref();
    of_node
        .or_else(|| quota.and_then(|it| it.hard.clone()))
        .unwrap_or_default()
}

/// Returns what the pods request that have not ended.
fn requested(pods: &[Pod], capacity: &BTreeMap<String, Quantity>) -> Vec<Requested> {
    let mut sum = Amounts::new();
    let active = pods
        .iter()
        .filter(|pod| !matches!(phase(pod), "Succeeded" | "Failed"));
    for spec in active.filter_map(|pod| pod.spec.as_ref()) {
        // The API server has checked the syntax.
        requests::add(&mut sum, &requests::of_pod(spec).unwrap_or_default());
    }
    let of = |resource: &'static str| {
        let requested = sum.get(resource).copied().unwrap_or_default();
        let capacity = capacity.get(resource).map(|it| it.0.clone());
        let whole = capacity.as_deref().and_then(amount);
        Requested {
            resource,
            requested: show(resource, requested),
            percent: whole.and_then(|whole| requested.percent_of(whole)),
            capacity: capacity.unwrap_or_default(),
        }
    };
    SHOWN.map(of).into()
}

fn show(resource: &str, amount: Amount) -> String {
    match resource == SHOWN[1] {
        true => amount.binary(),
        false => amount.to_string(),
    }
}

/// Returns the namespaces that are requested, and those that the provider still has.
fn namespaces(map: &NamespaceMap) -> Vec<Namespace> {
    let desired = &map.spec.desired_mapping;
    let current = map.status.as_ref().map(|it| &it.current_mapping);
    let mut names: Vec<&String> = desired.keys().collect();
    names.extend(current.into_iter().flat_map(BTreeMap::keys));
    names.sort();
    names.dedup();
    let of = |name: &String| {
        let mapping = current.and_then(|it| it.get(name));
        let reported = mapping.and_then(|it| it.remote_namespace.as_ref());
        let remote = desired.get(name).or(reported);
        Namespace {
            name: name.clone(),
            remote: remote.map(|it| printable(it)).unwrap_or_default(),
            phase: match mapping.and_then(|it| it.phase) {
                Some(MappingPhase::Accepted) => "Accepted",
                Some(MappingPhase::CreationLoopBackOff) => "CreationLoopBackOff",
                Some(MappingPhase::Terminating) => "Terminating",
                None => "Pending",
            },
        }
    };
    names.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests;
