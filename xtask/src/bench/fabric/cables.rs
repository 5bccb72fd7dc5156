//! Direct links between the nodes, which bypass the laboratory's routers.
//!
//! Real routers use no processor time of a node. The laboratory's routers are network namespaces,
//! so the measured cores also forward their packets. Therefore a veth pair connects each pair of
//! nodes directly, as it connects the ends of all other tunnels:
//!
//! ```text
//! rome-2 --- rome-1 --- milan-1 --- milan-2       and rome-1 --- milan-2, and so on
//! ```
//!
//! Each end of a link has the internal address of its node.

use super::super::metric::Underlay;
use anyhow::Result;
use tests::lab::link::{End, connect, ip, without_segmentation};
use tests::lab::node::Node;

/// The name of a cluster, and one of its nodes.
pub(super) type Place<'a> = (&'a str, &'a Node);

/// Creates a link between each pair of nodes. The links carry the traffic between nodes, and the
/// traffic between pods of the same cluster.
///
/// # Errors
///
/// Returns an error if the kernel refuses a device or a route.
pub(super) fn add(places: &[Place<'_>], underlay: Underlay) -> Result<()> {
    for (number, one) in places.iter().enumerate() {
        for other in &places[number + 1..] {
            connect_two(*one, *other, underlay)?;
        }
    }

    Ok(())
}

fn connect_two(one: Place<'_>, other: Place<'_>, underlay: Underlay) -> Result<()> {
    let [to_one, to_other] = [one, other].map(|(_, node)| format!("to-{}", node.name));
    let one_end = End {
        netns: &one.1.netns,
        device: &to_other,
    };
    let other_end = End {
        netns: &other.1.netns,
        device: &to_one,
    };
    connect(one_end, other_end, underlay.mtu().into())?;

    for (end, own, peer) in [(one_end, one, other), (other_end, other, one)] {
        if underlay.is_segmented() {
            without_segmentation(end)?;
        }
        let device = end.device;
        let (own_address, peer_address) = (own.1.internal_ip, peer.1.internal_ip);
        let mut commands = vec![
            format!("addr add {own_address}/32 dev {device}"),
            format!("link set dev {device} up"),
            format!("route add {peer_address}/32 dev {device} src {own_address}"),
        ];
        // The clusters have equal pod CIDRs, so only a route to pods of the own cluster is
        // unambiguous.
        if own.0 == peer.0 {
            let cidrs = peer.1.pod_cidrs.iter();
            commands
                .extend(cidrs.map(|cidr| {
                    format!("route add {cidr} via {peer_address} dev {device} onlink")
                }));
        }
        ip(end.netns, &commands)?;
    }

    Ok(())
}
