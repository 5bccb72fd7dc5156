//! Computes the underlay addresses of a laboratory. This module does no IO.
//!
//! ```text
//! 100.64.C.0/24     cluster C: the N-th /30 is the link of the edge and node N
//! 100.64.C.248/32   the load balancer of cluster C, on the edge
//! 100.64.C.252/30   the uplink of cluster C (core .253, edge .254)
//! 100.65.H.0/30     host H: core .1, host .2
//! ```
//!
//! The first host address of a node's /30 is that of the edge, and the second that of the node. The
//! numbers N start at 1.
//!
//! The addresses are in the shared address space of RFC 6598. It does not overlap the pools from
//! which `ipam` allocates remapped CIDRs.

use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// The two addresses of a link, which form a /30.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// Address of the end that is nearer to the core router.
    pub(super) upper: Ipv4Addr,
    /// Address of the other end.
    pub(super) lower: Ipv4Addr,
}

/// Returns the link between a node and the edge router of its cluster. Node numbers start at 1.
pub(super) fn node_link(cluster: u8, node: usize) -> Link {
    let base = u8::try_from(4 * (node - 1)).expect("a cluster has at most `NODES_MAX` nodes");
    Link {
        upper: Ipv4Addr::new(100, 64, cluster, base + 1),
        lower: Ipv4Addr::new(100, 64, cluster, base + 2),
    }
}

/// Returns the link between the edge router of a cluster and the core router.
pub(super) fn uplink(cluster: u8) -> Link {
    Link {
        upper: Ipv4Addr::new(100, 64, cluster, 253),
        lower: Ipv4Addr::new(100, 64, cluster, 254),
    }
}

/// Returns the link between a host and the core router.
pub(super) fn host_link(host: u8) -> Link {
    Link {
        upper: Ipv4Addr::new(100, 65, host, 1),
        lower: Ipv4Addr::new(100, 65, host, 2),
    }
}

/// Returns the CIDR with all underlay addresses of a cluster.
pub(super) fn cluster_net(cluster: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(100, 64, cluster, 0), 24)
}

/// Returns the address of a cluster's load balancer.
pub(super) fn load_balancer(cluster: u8) -> Ipv4Addr {
    Ipv4Addr::new(100, 64, cluster, 248)
}

/// Returns the part of a pod CIDR that belongs to a node, `None` if the CIDR is too small.
///
/// The part is a /24 as in Kubernetes, or a quarter of a CIDR that is smaller than a /22. Node
/// numbers start at 1, and the first part is not used.
pub(super) fn node_pod_cidr(cidr: Ipv4Net, node: usize) -> Option<Ipv4Net> {
    let prefix_len = if cidr.prefix_len() <= 22 {
        24
    } else {
        cidr.prefix_len() + 2
    };

    cidr.subnets(prefix_len).ok()?.nth(node)
}

/// Returns the address at `index` in a prefix. The network address has index 0.
pub(super) fn nth(net: Ipv4Net, index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(net.network().to_bits() + index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_node_of_a_default_cluster_has_10_244_1() {
        let cidr = "10.244.0.0/16".parse().unwrap();

        assert_eq!(
            node_pod_cidr(cidr, 1),
            Some("10.244.1.0/24".parse().unwrap())
        );
    }

    #[test]
    fn a_small_pod_cidr_is_quartered() {
        let cidr = "10.9.9.0/24".parse().unwrap();

        let parts: Vec<_> = (1..5).map(|node| node_pod_cidr(cidr, node)).collect();

        assert_eq!(parts[0], Some("10.9.9.64/26".parse().unwrap()));
        assert_eq!(parts[2], Some("10.9.9.192/26".parse().unwrap()));
        assert_eq!(parts[3], None);
    }

    #[test]
    fn no_node_link_contains_the_load_balancer() {
        let last = node_link(1, crate::lab::spec::NODES_MAX);

        assert!(last.lower < load_balancer(1));
        assert!(load_balancer(1) < uplink(1).upper);
    }
}
