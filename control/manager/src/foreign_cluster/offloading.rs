//! Conditions of the offloading module.

use super::condition::{Line, Status, Type};
use super::objects::{BY_PEER, Local, is_ready, label};
use super::peer::Peer;
use control_api::{VirtualNode, labels};
use control_runtime::Key;
use k8s_openapi::api::core::v1::{Node, Pod};

/// Returns the conditions of the VirtualNodes and of their Nodes; none if there is no VirtualNode.
pub(super) fn lines(peer: &Peer<'_>, local: Local<'_>) -> Vec<Line<'static>> {
    let all = peer.virtual_nodes.iter();
    if peer.virtual_nodes.is_empty() {
        return Vec::new();
    }
    let ready = all
        .clone()
        .filter(|(key, _)| is_served(local, peer.id, key));
    let virtual_nodes = (ready.count(), peer.virtual_nodes.len());
    let expected = all.filter(|(_, it)| creates_node(it));
    let ready = expected
        .clone()
        .filter(|(key, _)| has_ready_node(local, peer.id, key));
    let nodes = (ready.count(), expected.count());

    vec![
        line(
            Type::OffloadingVirtualNodeStatus,
            virtual_nodes,
            [
                ("VirtualNodesReady", "All virtual nodes are ready"),
                (
                    "VirtualNodesSomeNotReady",
                    "Some virtual nodes are not ready",
                ),
                ("VirtualNodesNotReady", "All virtual nodes are not ready"),
            ],
        ),
        line(
            Type::OffloadingNodeStatus,
            nodes,
            [
                ("NodesReady", "All nodes are ready"),
                ("NodesSomeNotReady", "Some nodes are not ready"),
                ("NodesNotReady", "All nodes are not ready"),
            ],
        ),
    ]
}

/// Returns the condition of a part of which `ready` of `all` objects are ready. `texts` are reason and message if
/// all, some or none are.
fn line(
    part: Type,
    (ready, all): (usize, usize),
    texts: [(&'static str, &'static str); 3],
) -> Line<'static> {
    let [of_all, of_some, of_none] = texts;
    let (status, (reason, message)) = if ready == all {
        (Status::Ready, of_all)
    } else if ready == 0 {
        (Status::NotReady, of_none)
    } else {
        (Status::SomeNotReady, of_some)
    };

    (part, status, reason, message)
}

/// Returns whether all pods of a VirtualNode's virtual kubelet are ready; also if there is none.
fn is_served(local: Local<'_>, peer: &str, key: &Key) -> bool {
    let mut pods = local.placed::<Pod>(peer, &key.namespace);
    pods.all(|(_, pod)| {
        let node = label(&pod.metadata, labels::VIRTUAL_NODE);
        node != Some(key.name.as_str()) || is_ready(pod)
    })
}

/// Returns whether a VirtualNode gets a Node, which is the default.
fn creates_node(virtual_node: &VirtualNode) -> bool {
    virtual_node.spec.create_node != Some(false)
}

/// Returns whether the Node of a VirtualNode, which has its name, is ready.
fn has_ready_node(local: Local<'_>, peer: &str, key: &Key) -> bool {
    let nodes = &mut local.objects::<Node>().indexed(BY_PEER, peer);
    nodes.any(|(node, it)| {
        let conditions = it.status.as_ref().and_then(|it| it.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        node.name == key.name && conditions.any(|it| it.type_ == "Ready" && it.status == "True")
    })
}
