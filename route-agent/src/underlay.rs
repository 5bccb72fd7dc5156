//! The properties of the underlay, which is the network that carries overlay frames.

use control_fabric::Fabric;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Maximum number of nodes to which routes are looked up. A lookup takes about 20 µs, so all
/// lookups take about 5 ms. The agent assumes that the remaining nodes are behind the same
/// interfaces.
const NODES_MAX: usize = 256;

/// The devices that carry overlay frames, according to the node's current routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Underlay {
    /// Smallest MTU in bytes of the devices towards gateway replicas. `None` if no replica has a
    /// route.
    pub(crate) mtu_bytes: Option<u32>,
    /// Names of the devices towards other nodes and the gateway replicas on other nodes.
    pub(crate) interfaces: BTreeSet<String>,
}

/// The addresses whose routes are looked up to find the underlay's devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destinations {
    /// Addresses of all gateway replicas.
    pub(crate) replicas: BTreeSet<Ipv4Addr>,
    /// Addresses of other nodes and of the gateway replicas on other nodes. Replicas on this node
    /// are left out, because the device towards such a replica belongs to its pod.
    pub(crate) remote: BTreeSet<Ipv4Addr>,
}

impl Destinations {
    /// Returns the destinations for the node with this name.
    pub(crate) fn of(fabric: &Fabric, node: &str) -> Self {
        let others = fabric.nodes.iter().filter(|it| it.name != node);
        let remote = fabric.replicas.iter().filter(|it| it.node != node);

        Self {
            replicas: fabric.replicas.iter().map(|it| it.address).collect(),
            remote: (others.take(NODES_MAX).map(|it| it.internal_ip))
                .chain(remote.map(|it| it.address))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fabric, ip, replica};

    #[test]
    fn a_local_replica_is_not_on_the_underlay() {
        let mut fabric = fabric();
        fabric.replicas = vec![
            replica("gw-1", "10.244.1.11"),
            control_fabric::Replica {
                node: "rome-2".into(),
                ..replica("gw-2", "10.244.2.12")
            },
        ];

        let destinations = Destinations::of(&fabric, "rome-1");

        let [local, remote, other_node] = ["10.244.1.11", "10.244.2.12", "172.16.0.2"].map(ip);
        assert_eq!(destinations.replicas, BTreeSet::from([local, remote]));
        assert_eq!(destinations.remote, BTreeSet::from([remote, other_node]));
    }
}
