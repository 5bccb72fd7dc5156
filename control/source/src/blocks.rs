//! Reads the objects in which Calico and Cilium assign pod prefixes to nodes.

use control_fabric::Blocks;
use control_runtime::{Kept, Registration, Resource, Scope};
use kube::api::DynamicObject;

/// The assignment of a Calico `IPAMBlock`; `None` if it assigns no prefix.
#[derive(PartialEq)]
pub(crate) struct CalicoBlock(pub(crate) Option<Blocks>);

impl Kept for CalicoBlock {
    fn resource() -> Resource {
        resource("crd.projectcalico.org", "v1", "IPAMBlock", "ipamblocks")
    }
}

/// The assignment of a `CiliumNode` of Cilium; `None` if it assigns no prefix.
#[derive(PartialEq)]
pub(crate) struct CiliumNode(pub(crate) Option<Blocks>);

impl Kept for CiliumNode {
    fn resource() -> Resource {
        resource("cilium.io", "v2", "CiliumNode", "ciliumnodes")
    }
}

/// Registers the resources of the CNIs. None of them needs to exist.
pub(crate) fn registrations() -> Vec<Registration> {
    let calico = |object: DynamicObject| CalicoBlock(calico_block(&object));
    let cilium = |object: DynamicObject| CiliumNode(cilium_node(&object));

    vec![
        Registration::of(Scope::All, calico).optional(),
        Registration::of(Scope::All, cilium).optional(),
    ]
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
