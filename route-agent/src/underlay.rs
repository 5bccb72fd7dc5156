//! The network that carries the overlay's outer packets, as the node's routes show it.

use control_api::fabric::Fabric;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Most nodes whose route is looked up. A lookup takes about 20 µs, so an observation takes
/// 5 ms at most; the nodes of larger clusters are behind the same interfaces.
const NODES_MAX: usize = 256;

/// The underlay at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Underlay {
    /// Smallest MTU of the devices towards the gateway replicas, in bytes; `None` without a route.
    pub(crate) mtu_bytes: Option<u32>,
    /// The devices towards other nodes and their gateway replicas.
    pub(crate) interfaces: BTreeSet<String>,
}

/// The addresses whose routes describe the underlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destinations {
    /// All gateway replicas.
    pub(crate) replicas: BTreeSet<Ipv4Addr>,
    /// Other nodes and the gateway replicas on them. Local replicas are left out: the device
    /// towards them is a pod's.
    pub(crate) remote: BTreeSet<Ipv4Addr>,
}

impl Destinations {
    /// Those of the node with this name.
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
            control_api::fabric::Replica {
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
