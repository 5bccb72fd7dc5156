//! Which prefixes of pods a CNI has given to which node, where it does so itself.
//!
//! Calico's own IPAM and Cilium's cluster pool do not follow `Node.spec.podCIDRs`, which is empty or means
//! nothing then. What they say instead takes its place, so that packets go to the right node at once; where
//! nothing is known, any node gets them, and its CNI forwards them.

use crate::pauses::{Pauses, spread};
use crate::select::Updates;
use crate::store::{Item, Update};
use control_api::{Network, labels};
use control_fabric::{Object, Objects};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt as _;
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

/// How long nobody asks after a refusal: in most clusters these kinds do not exist, and each of many nodes
/// asks for them.
const REST: Duration = Duration::from_secs(600);

/// Not found, and forbidden.
const REFUSALS: [u16; 2] = [404, 403];

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

/// A watch of a kind, or a rest from it.
enum Attempt {
    Watch(BoxStream<'static, Result<Event<DynamicObject>, watcher::Error>>),
    Rest,
}

fn updates(client: &Client, resource: &ApiResource, read: fn(&Value) -> Option<Blocks>) -> Updates {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let watch = move || {
        let events = watcher::watcher(api.clone(), watcher::Config::default());
        events.backoff(Pauses::new()).boxed()
    };
    let update = move |object: DynamicObject| {
        let id = crate::select::id(&object);
        let value = serde_json::to_value(&object).unwrap_or_default();
        match read(&value) {
            Some(blocks) => Update::Apply(id, Item::Blocks(blocks)),
            None => Update::Delete(id),
        }
    };
    let updates = stream::unfold(Attempt::Watch(watch()), move |attempt| {
        let watch = watch.clone();
        async move {
            let mut events = match attempt {
                Attempt::Watch(events) => events,
                Attempt::Rest => {
                    tokio::time::sleep(spread(REST)).await;
                    watch()
                }
            };
            let (updates, next) = match events.next().await? {
                Ok(event) => (vec![Ok(translate(event, update))], Attempt::Watch(events)),
                // There is no such CNI here, or no right to ask it.
                Err(error) if is_refusal(&error) => {
                    tracing::debug!(%error, "no prefixes of a CNI's own");
                    (vec![Ok(Update::Begin), Ok(Update::End)], Attempt::Rest)
                }
                Err(error) => (vec![Err(error)], Attempt::Watch(events)),
            };
            Some((stream::iter(updates), next))
        }
    });

    updates.flatten().boxed()
}

fn translate(event: Event<DynamicObject>, update: impl FnOnce(DynamicObject) -> Update) -> Update {
    match event {
        Event::Init => Update::Begin,
        Event::InitApply(object) | Event::Apply(object) => update(object),
        Event::Delete(object) => Update::Delete(crate::select::id(&object)),
        Event::InitDone => Update::End,
    }
}

/// Returns whether the API server has answered, but does not know the kind or not allow it.
fn is_refusal(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };

    // By the code: of a group that it does not know, the API server gives no reason.
    REFUSALS.contains(&status.code)
}

#[cfg(test)]
mod tests;
