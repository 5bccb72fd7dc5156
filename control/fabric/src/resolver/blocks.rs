//! Pod prefixes of nodes that a CNI has assigned by its own objects.
//!
//! Calico's IPAM and Cilium's cluster pool do not use `Node.spec.podCIDRs`, which then is empty or has no meaning.
//! Their own assignment replaces it, so that a gateway sends packets directly to the node of the pod. A packet to a
//! pod address in no known prefix is sent to any node, and the CNI of that node forwards the packet.

use super::entity::ObjectKey;
use crate::objects::Object;
use control_api::{Network, labels};
use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Prefixes that one object of a CNI assigns to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Name of the node.
    pub node: String,
    /// The prefixes.
    pub cidrs: Vec<Ipv4Net>,
}

/// Maximum number of prefixes that are used: a quarter of the capacity of the gateway's table.
const BLOCKS_MAX: usize = 16_384;

/// The assignments of a CNI, and the nodes.
#[derive(Debug, Default)]
pub(super) struct Assignment {
    /// By key of the CNI's object.
    blocks: BTreeMap<String, Blocks>,
    /// The prefixes of each node. If it is empty, `spec.podCIDRs` of the nodes apply.
    of_nodes: BTreeMap<String, Vec<String>>,
    /// The Nodes with their own `spec.podCIDRs`.
    nodes: BTreeMap<ObjectKey, Arc<Object>>,
}

impl Assignment {
    /// Applies changes of the CNI's objects. Returns whether there was any.
    pub(super) fn set(&mut self, changes: BTreeMap<String, Option<Blocks>>) -> bool {
        let is_any = !changes.is_empty();
        for (key, blocks) in changes {
            match blocks {
                Some(blocks) => self.blocks.insert(key, blocks),
                None => self.blocks.remove(&key),
            };
        }

        is_any
    }

    /// Stores a Node and replaces its prefixes, or removes it. Ignores objects of other kinds.
    pub(super) fn set_node(&mut self, key: &ObjectKey, node: Option<&mut Arc<Object>>) {
        if !key.is_node() {
            return;
        }
        match node {
            Some(node) => {
                self.nodes.insert(key.clone(), node.clone());
                *node = self.assigned(node);
            }
            None => {
                self.nodes.remove(key);
            }
        }
    }

    /// Computes the assignment again, given the objects of the cluster itself. Returns the Nodes whose prefixes
    /// have changed.
    pub(super) fn assign<'a>(
        &mut self,
        of_cluster: impl Iterator<Item = &'a Object>,
    ) -> Vec<(ObjectKey, Arc<Object>)> {
        let of_nodes = assign(&pod_cidrs(of_cluster), self.blocks.values());
        let old = std::mem::replace(&mut self.of_nodes, of_nodes);
        let is_replaced = old.is_empty() != self.of_nodes.is_empty();
        let is_changed = |node: &Object| {
            let name = node.metadata().name.as_deref().unwrap_or_default();
            is_replaced || old.get(name) != self.of_nodes.get(name)
        };
        let changed = self.nodes.iter().filter(|(_, node)| is_changed(node));

        changed
            .map(|(key, node)| (key.clone(), self.assigned(node)))
            .collect()
    }

    /// Returns the Node with the prefixes of the CNI, if the CNI has assigned any prefix.
    fn assigned(&self, node: &Arc<Object>) -> Arc<Object> {
        let Object::Node(old) = &**node else {
            return node.clone();
        };
        if self.of_nodes.is_empty() {
            return node.clone();
        }
        let mut new = old.clone();
        let name = new.metadata.name.clone().unwrap_or_default();
        let spec = new.spec.get_or_insert_default();
        spec.pod_cidr = None;
        spec.pod_cidrs = Some(self.of_nodes.get(&name).cloned().unwrap_or_default());

        Arc::new(new.into())
    }
}

fn pod_cidrs<'a>(of_cluster: impl Iterator<Item = &'a Object>) -> Vec<Ipv4Net> {
    let networks =
        of_cluster.filter_map(|object| Some((object, <&Network>::try_from(object).ok()?)));
    let of_pods = networks.filter(|(object, _)| {
        object.label_value(labels::NETWORK_TYPE) == Some(labels::NETWORK_TYPE_POD)
    });

    of_pods
        .filter_map(|(_, network)| network.spec.cidr.parse().ok())
        .collect()
}

/// Returns the prefixes of each node.
///
/// A prefix outside the cluster's pod CIDRs, or within another prefix, is ignored, so that the node is served
/// without it.
pub(super) fn assign<'a>(
    pods: &[Ipv4Net],
    blocks: impl Iterator<Item = &'a Blocks>,
) -> BTreeMap<String, Vec<String>> {
    let assigned = blocks.flat_map(|blocks| blocks.cidrs.iter().map(|it| (*it, &*blocks.node)));
    let assigned = assigned.filter(|(cidr, _)| pods.iter().any(|pods| pods.contains(cidr)));
    let assigned: BTreeSet<_> = assigned.collect();

    let mut of_nodes = BTreeMap::<_, Vec<String>>::new();
    let mut last: Option<Ipv4Net> = None;
    // In this order, the prefixes that overlap a prefix follow it.
    for (cidr, node) in assigned.into_iter().take(BLOCKS_MAX) {
        if last.is_none_or(|last| !last.contains(&cidr)) {
            last = Some(cidr);
            let cidrs = of_nodes.entry(node.to_owned()).or_default();
            cidrs.push(cidr.to_string());
        }
    }

    of_nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_outside_the_pod_cidrs_or_within_others_are_ignored() {
        let blocks = [
            ("rome-1", "192.0.2.0/26"),
            ("rome-1", "10.244.0.64/26"),
            ("rome-1", "10.244.9.0/26"),
            ("rome-2", "10.244.0.0/24"),
        ]
        .map(|(node, cidr)| Blocks {
            node: node.to_owned(),
            cidrs: vec![cidr.parse().unwrap()],
        });

        let of_nodes = assign(&["10.244.0.0/16".parse().unwrap()], blocks.iter());

        assert_eq!(of_nodes["rome-1"], ["10.244.9.0/26"]);
        assert_eq!(of_nodes["rome-2"], ["10.244.0.0/24"]);
    }

    #[test]
    fn without_a_valid_assignment_nodes_keep_their_own_prefixes() {
        let outside = Blocks {
            node: "rome-1".to_owned(),
            cidrs: vec!["192.0.2.0/26".parse().unwrap()],
        };

        let of_nodes = assign(&["10.244.0.0/16".parse().unwrap()], [outside].iter());

        assert!(of_nodes.is_empty());
    }
}
