//! Clusters and assertions that several tests share.

use anyhow::Result;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;
use tests::lab::link::{self, End};
use tests::lab::pod::Pod;
use tests::lab::spec::{ClusterSpec, Spec};
use tests::lab::{Lab, wait};
use tests::traffic::counters;

pub(crate) const ROME: &str = "rome";
pub(crate) const MILAN: &str = "milan";
pub(crate) const PARIS: &str = "paris";

/// The address of the pod in each cluster. All clusters use the same pod CIDR.
pub(crate) const SAME: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 10);

/// The limit for conditions that hold almost immediately on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// Two peered clusters, each with a pod. Both pods have the same address, [`SAME`] on the first node. Rome is the client.
pub(crate) struct Pair {
    pub(crate) lab: Lab,
    pub(crate) rome: Pod,
    pub(crate) milan: Pod,
    /// The remapped address of milan's pod in rome.
    pub(crate) milan_seen: Ipv4Addr,
    /// The remapped address of rome's pod in milan.
    pub(crate) rome_seen: Ipv4Addr,
}

impl Pair {
    /// Starts two clusters of one node and one gateway each.
    pub(crate) fn small() -> Self {
        Self::up(two(1, 1))
    }

    /// Starts two clusters of three nodes and two gateways each. The pods run on the nodes without a gateway, so that
    /// flows are spread over all pairs of gateways.
    pub(crate) fn redundant() -> Self {
        Self::at(3, Lab::up(two(3, 2)).unwrap())
    }

    /// Starts two clusters of two nodes and two gateways each. The pods run on the nodes of the first gateways, which
    /// carry all flows.
    pub(crate) fn together() -> Self {
        Self::up(two(2, 2))
    }

    /// Starts the clusters of `spec`, which must include rome and milan.
    pub(crate) fn up(spec: Spec) -> Self {
        Self::of(Lab::up(spec).unwrap())
    }

    /// Adds a pod to rome and to milan in a running laboratory.
    pub(crate) fn of(lab: Lab) -> Self {
        Self::at(1, lab)
    }

    fn at(node: u8, mut lab: Lab) -> Self {
        let address = Ipv4Addr::new(10, 244, node, 10);
        let rome = lab.add_pod(ROME, node.into(), address).unwrap();
        let milan = lab.add_pod(MILAN, node.into(), address).unwrap();

        Self {
            milan_seen: lab.seen_from(ROME, MILAN, address).unwrap(),
            rome_seen: lab.seen_from(MILAN, ROME, address).unwrap(),
            lab,
            rome,
            milan,
        }
    }

    /// Returns a port of milan's pod, at the pod's remapped address in rome.
    pub(crate) fn to_milan(&self, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(self.milan_seen, port)
    }

    /// Returns a port of rome's pod, at the pod's remapped address in milan.
    pub(crate) fn to_rome(&self, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(self.rome_seen, port)
    }
}

/// Specifies a peering of rome and milan. Each cluster has `nodes` nodes and `replicas` gateways.
pub(crate) fn two(nodes: usize, replicas: usize) -> Spec {
    Spec::new()
        .cluster(ClusterSpec::new(ROME).nodes(nodes).replicas(replicas))
        .cluster(ClusterSpec::new(MILAN).nodes(nodes).replicas(replicas))
        .peering(ROME, MILAN)
}

/// Disables the offloads of a pod's link, so that captures have complete checksums and no
/// super-packets.
pub(crate) fn without_offloads(lab: &Lab, pod: &Pod) {
    let node = lab
        .cluster(&pod.cluster)
        .nodes
        .iter()
        .find(|node| node.name == pod.node)
        .unwrap();
    link::without_offloads(End {
        netns: &pod.netns,
        device: "eth0",
    })
    .unwrap();
    link::without_offloads(End {
        netns: &node.netns,
        device: &pod.node_device,
    })
    .unwrap();
}

/// Asserts that no network namespace of the laboratory has counted a malformed packet.
pub(crate) fn assert_nothing_broken(lab: &Lab, pods: &[&Pod]) {
    let nodes = lab.clusters().flat_map(|cluster| &cluster.nodes);
    let gateways = lab.clusters().flat_map(|cluster| &cluster.gateways);
    let all = nodes
        .map(|node| &node.netns)
        .chain(gateways.map(|gateway| &gateway.pod.netns))
        .chain(pods.iter().map(|pod| &pod.netns));

    for netns in all {
        let broken = counters::broken(netns).unwrap();
        assert!(broken.is_empty(), "{}: {broken:?}", netns.name());
    }
}

/// Waits until `condition` holds, at most for [`SOON`].
#[track_caller]
pub(crate) fn eventually(what: &str, condition: impl FnMut() -> Result<bool>) {
    wait::until(SOON, what, condition).unwrap();
}

/// Sums the drops for a reason over all gateways of a cluster.
pub(crate) fn gateway_drops(lab: &Lab, cluster: &str, reason: &str) -> u64 {
    (1..=lab.cluster(cluster).gateways.len())
        .filter_map(|number| lab.gateway_status(cluster, number).ok())
        .map(|status| tests::lab::status::drops(&status, reason))
        .sum()
}
