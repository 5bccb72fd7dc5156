//! Which prefixes of pods a CNI has given to which node, where it does so itself.
//!
//! Calico's own IPAM and Cilium's cluster pool do not follow `Node.spec.podCIDRs`, which is empty or means
//! nothing then. What they say instead takes its place, so that packets go to the right node at once; where
//! nothing is known, any node gets them, and its CNI forwards them.

use crate::select::Updates;
use crate::store::{Item, Update};
use control_api::fabric::{Object, Objects};
use control_api::{Network, labels};
use futures_util::stream::{self, StreamExt as _};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Prefixes that one object of a CNI gives to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Name of the node.
    pub node: String,
    /// The prefixes.
    pub cidrs: Vec<Ipv4Net>,
}

/// How many prefixes count: a quarter of what the gateway's table holds.
const BLOCKS_MAX: usize = 16_384;

/// How long to wait after the first failure; each further one makes that four times as long.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The longest wait: in most clusters these kinds do not exist, and each of many nodes asks for them.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// Watches the kinds in which CNIs tell so. None of them needs to exist.
pub(crate) fn watches(client: &Client) -> Vec<Updates> {
    let calico = kind("crd.projectcalico.org", "v1", "IPAMBlock", "ipamblocks");
    let cilium = kind("cilium.io", "v2", "CiliumNode", "ciliumnodes");

    vec![
        updates(client, &calico, calico_block),
        updates(client, &cilium, cilium_node),
    ]
}

/// Gives nodes the prefixes that their CNI tells, in place of `spec.podCIDRs`.
///
/// If it tells any, `spec.podCIDRs` mean nothing on the other nodes either, and may overlap what it tells.
/// Prefixes outside the cluster's pod CIDRs, and such that overlap another one, are left out: they are no
/// reason to do without the node.
pub(crate) fn assign<'a>(objects: &mut Objects, blocks: impl Iterator<Item = &'a Blocks>) {
    let networks = objects.of::<Network>().filter(|network| {
        let labels = network.metadata.labels.as_ref();
        let found = labels.and_then(|labels| labels.get(labels::NETWORK_TYPE));
        found.is_some_and(|found| found == labels::NETWORK_TYPE_POD)
    });
    let pods: Vec<Ipv4Net> = networks
        .filter_map(|network| network.spec.cidr.parse().ok())
        .collect();
    let given = blocks.flat_map(|blocks| blocks.cidrs.iter().map(|cidr| (*cidr, &*blocks.node)));
    let given = given.filter(|(cidr, _)| pods.iter().any(|pods| pods.contains(cidr)));
    let given: BTreeMap<_, _> = given.take(BLOCKS_MAX).collect();

    let mut of_nodes = BTreeMap::<&str, Vec<String>>::new();
    let mut last: Option<Ipv4Net> = None;
    // In this order, what overlaps a prefix follows it.
    for (cidr, node) in given {
        if last.is_none_or(|last| !last.contains(&cidr)) {
            last = Some(cidr);
            of_nodes.entry(node).or_default().push(cidr.to_string());
        }
    }
    if of_nodes.is_empty() {
        return;
    }
    for object in objects.iter_mut() {
        let Object::Node(node) = object else {
            continue;
        };
        let name = node.metadata.name.clone().unwrap_or_default();
        give(node, of_nodes.remove(&*name).unwrap_or_default());
    }
}

fn give(node: &mut Node, cidrs: Vec<String>) {
    let spec = node.spec.get_or_insert_default();
    spec.pod_cidr = None;
    spec.pod_cidrs = Some(cidrs);
}

/// Reads Calico's `IPAMBlock`: `spec.cidr`, and `spec.affinity`, which is `host:NODE`.
fn calico_block(block: &Value) -> Option<Blocks> {
    let node = block["spec"]["affinity"].as_str()?.strip_prefix("host:")?;
    let cidr = block["spec"]["cidr"].as_str()?.parse().ok()?;
    let is_gone = block["spec"]["deleted"] == true;

    (!is_gone).then(|| Blocks {
        node: node.to_owned(),
        cidrs: vec![cidr],
    })
}

/// Reads Cilium's `CiliumNode`: its name is the node's, and `spec.ipam.podCIDRs` its prefixes.
fn cilium_node(object: &Value) -> Option<Blocks> {
    let node = object["metadata"]["name"].as_str()?;
    let cidrs = object["spec"]["ipam"]["podCIDRs"].as_array()?;
    let cidrs = cidrs
        .iter()
        .filter_map(|cidr| cidr.as_str()?.parse().ok())
        .collect();

    Some(Blocks {
        node: node.to_owned(),
        cidrs,
    })
}

fn kind(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: format!("{group}/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

fn updates(client: &Client, resource: &ApiResource, read: fn(&Value) -> Option<Blocks>) -> Updates {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let events = watcher::watcher(api, watcher::Config::default()).backoff(Pauses(PAUSE_MIN));
    let update = move |object: DynamicObject| {
        let id = crate::select::id(&object);
        let value = serde_json::to_value(&object).unwrap_or_default();
        match read(&value) {
            Some(blocks) => Update::Apply(id, Item::Blocks(blocks)),
            None => Update::Delete(id),
        }
    };
    let updates = events.flat_map(move |event| {
        stream::iter(match event {
            Ok(Event::Init) => vec![Ok(Update::Begin)],
            Ok(Event::InitApply(object) | Event::Apply(object)) => vec![Ok(update(object))],
            Ok(Event::Delete(object)) => vec![Ok(Update::Delete(crate::select::id(&object)))],
            Ok(Event::InitDone) => vec![Ok(Update::End)],
            // There is no such CNI here, or no right to ask it.
            Err(error) if is_refusal(&error) => vec![Ok(Update::Begin), Ok(Update::End)],
            Err(error) => vec![Err(error)],
        })
    });

    updates.boxed()
}

/// The waits between attempts: this one is next.
struct Pauses(Duration);

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let next = (self.0 * 4).min(PAUSE_MAX);
        Some(std::mem::replace(&mut self.0, next))
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.0 = PAUSE_MIN;
    }
}

/// Returns whether the API server has answered, but does not know the kind or not allow it.
fn is_refusal(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };

    status.is_not_found() || status.is_forbidden()
}

#[cfg(test)]
mod tests;
