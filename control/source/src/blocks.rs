//! Which prefixes of pods a CNI has given to which node, where it does so itself.
//!
//! Calico's own IPAM and Cilium's cluster pool do not follow `Node.spec.podCIDRs`, which is empty or means
//! nothing then. What they say instead takes its place, so that packets go to the right node at once; where
//! nothing is known, any node gets them, and its CNI forwards them.

use control_api::{Network, labels};
use control_fabric::{Object, Objects};
use control_runtime::{Cache, Cluster, Kept, Registration, Resource, Scope};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use kube::api::DynamicObject;
use std::collections::BTreeMap;

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

/// What the cache keeps of Calico's `IPAMBlock`: `None` if it gives a node nothing.
#[derive(PartialEq)]
struct CalicoBlock(Option<Blocks>);

impl Kept for CalicoBlock {
    fn resource() -> Resource {
        resource("crd.projectcalico.org", "v1", "IPAMBlock", "ipamblocks")
    }
}

/// What the cache keeps of Cilium's `CiliumNode`: `None` if it gives a node nothing.
#[derive(PartialEq)]
struct CiliumNode(Option<Blocks>);

impl Kept for CiliumNode {
    fn resource() -> Resource {
        resource("cilium.io", "v2", "CiliumNode", "ciliumnodes")
    }
}

/// Registers the resources in which CNIs tell so. None of them needs to exist.
pub(crate) fn registrations() -> Vec<Registration> {
    let calico = |object: DynamicObject| CalicoBlock(calico_block(&object));
    let cilium = |object: DynamicObject| CiliumNode(cilium_node(&object));

    vec![
        Registration::of(Scope::All, calico).optional(),
        Registration::of(Scope::All, cilium).optional(),
    ]
}

/// Returns what the objects of CNIs tell.
pub(crate) fn of(cache: &Cache) -> impl Iterator<Item = &Blocks> {
    let calico = cache.objects::<CalicoBlock>(&Cluster::Local);
    let cilium = cache.objects::<CiliumNode>(&Cluster::Local);
    let calico = calico.iter().filter_map(|(_, block)| block.0.as_ref());
    let cilium = cilium.iter().filter_map(|(_, node)| node.0.as_ref());

    calico.chain(cilium)
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
fn calico_block(block: &DynamicObject) -> Option<Blocks> {
    let spec = block.data.get("spec")?;
    let node = spec["affinity"].as_str()?.strip_prefix("host:")?;
    let cidr = spec["cidr"].as_str()?.parse().ok()?;
    let is_gone = spec["deleted"] == true;

    (!is_gone).then(|| Blocks {
        node: node.to_owned(),
        cidrs: vec![cidr],
    })
}

/// Reads Cilium's `CiliumNode`: its name is the node's, and `spec.ipam.podCIDRs` its prefixes.
fn cilium_node(object: &DynamicObject) -> Option<Blocks> {
    let node = object.metadata.name.as_ref()?;
    let spec = object.data.get("spec")?;
    let cidrs = spec["ipam"]["podCIDRs"].as_array()?;
    let cidrs = cidrs
        .iter()
        .filter_map(|cidr| cidr.as_str()?.parse().ok())
        .collect();

    Some(Blocks {
        node: node.clone(),
        cidrs,
    })
}

fn resource(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Resource {
    Resource {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        plural: plural.into(),
    }
}

#[cfg(test)]
mod tests;
