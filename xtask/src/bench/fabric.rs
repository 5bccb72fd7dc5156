//! The complete path from pod to pod: clusters with equal CIDRs.
//!
//! In most layouts the pods run on nodes without a gateway, so that overlay packets cross the
//! underlay. This is the common case: in a cluster of many nodes, most pods have no gateway on their
//! node.

mod cables;

use super::ends::Ends;
use super::metric::{Tunnel, Underlay};
use super::receives::Receives;
use super::superpackets::Histogram;
use anyhow::{Context as _, Result};
use std::net::Ipv4Addr;
use std::time::Duration;
use tests::lab::Lab;
use tests::lab::pod::Pod;
use tests::lab::spec::{ClusterSpec, Spec};

/// The laboratory with all clusters, which is removed on drop.
#[derive(Debug)]
pub(super) struct Fabric {
    /// The client pod, the server pod, and the gateways of their clusters.
    pub(super) ends: Ends,
    layout: Layout,
    lab: Lab,
}

/// The nodes and gateways of each cluster. The pod runs on the last node, and the gateways on the
/// first ones.
#[derive(Clone, Copy, Debug)]
struct Layout {
    nodes: usize,
    replicas: usize,
}

impl Layout {
    fn of(tunnel: Tunnel) -> Self {
        let (nodes, replicas) = if tunnel == Tunnel::FabricDefaults {
            (3, 2)
        } else if tunnel == Tunnel::FabricEverywhere {
            (2, 2)
        } else {
            (2, 1)
        };

        Self { nodes, replicas }
    }
}

impl Fabric {
    /// Creates the clusters, and waits until the client pod reaches the server pod.
    ///
    /// # Errors
    ///
    /// Returns an error if a process does not start or no packet arrives.
    pub(super) fn start(tunnel: Tunnel, underlay: Underlay) -> Result<Self> {
        let layout = Layout::of(tunnel);
        let cluster = |name| {
            let cluster = ClusterSpec::new(name).nodes(layout.nodes);
            let cluster = cluster.replicas(layout.replicas);
            cluster.node_mtu(underlay.mtu().into())
        };
        let mut spec = Spec::new()
            .cluster(cluster(CLIENT))
            .cluster(cluster(SERVER))
            .cluster(ClusterSpec::new(THIRD))
            .peering(CLIENT, SERVER)
            .peering(THIRD, CLIENT)
            .peering(THIRD, SERVER);
        for peering in &mut spec.peerings {
            peering.mtu = underlay.mtu() - OVERHEAD;
        }
        let mut lab = Lab::up(spec)?;
        let places: Vec<_> = [CLIENT, SERVER]
            .into_iter()
            .flat_map(|name| lab.cluster(name).nodes.iter().map(move |node| (name, node)))
            .collect();
        cables::add(&places, underlay)?;
        let client = add_pod(&mut lab, CLIENT, layout.nodes)?;
        let server = add_pod(&mut lab, SERVER, layout.nodes)?;

        let ends = Ends {
            tunnel,
            underlay,
            server_address: lab.seen_from(CLIENT, SERVER, server.address)?,
            client: client.netns,
            server: server.netns,
            gateways: [
                gateways(&mut lab, CLIENT, layout.replicas)?,
                gateways(&mut lab, SERVER, layout.replicas)?,
            ],
        };
        ends.wait_until_up(UP_DEADLINE)?;
        Ok(Self { ends, layout, lab })
    }

    /// Returns what the stages from the client to the server have received.
    ///
    /// # Errors
    ///
    /// Returns an error if a gateway's status cannot be read.
    pub(super) fn receives(&self) -> Result<Receives> {
        let statuses = |cluster| {
            let replicas = 1..=self.layout.replicas;
            let statuses = replicas.map(|replica| self.lab.gateway_status(cluster, replica));
            statuses.collect::<Result<Vec<_>>>()
        };

        Receives::of(&statuses(CLIENT)?, &statuses(SERVER)?, &self.ends.server)
    }

    /// Returns two histograms of packet sizes: packets that the client's gateways have read from their
    /// TAPs, and packets that the server's gateways have written to theirs.
    ///
    /// # Errors
    ///
    /// Returns an error if a gateway's status cannot be read.
    pub(super) fn super_packets(&self) -> Result<[Histogram; 2]> {
        let mut sums = [Histogram::default(), Histogram::default()];
        for replica in 1..=self.layout.replicas {
            let client = self.lab.gateway_status(CLIENT, replica)?;
            let server = self.lab.gateway_status(SERVER, replica)?;
            sums[0].add(&Histogram::read(&client)?);
            sums[1].add(&Histogram::written(&server)?);
        }

        Ok(sums)
    }
}

/// Difference between the MTU of the nodes' network and the tunnel's with Liqo's defaults, in bytes.
const OVERHEAD: u16 = 160;

const CLIENT: &str = "rome";
const SERVER: &str = "milan";
/// The name of a second peer of both clusters. The bench sends no data to this peer, so the peer's
/// sessions carry only probes.
const THIRD: &str = "turin";

/// The offset of the pod's address in the pod CIDR of its node.
const POD_INDEX: u32 = 10;

const UP_DEADLINE: Duration = Duration::from_secs(10);

/// Adds a pod on a node, which is counted from 1.
fn add_pod(lab: &mut Lab, cluster: &str, node: usize) -> Result<Pod> {
    let cidr = lab.cluster(cluster).node(node).pod_cidrs[0];
    let address = Ipv4Addr::from_bits(cidr.network().to_bits() + POD_INDEX);

    lab.add_pod(cluster, node, address)
        .with_context(|| format!("failed to add a pod to {cluster}"))
}

/// Returns the process ids of the gateways, which are counted from 1.
fn gateways(lab: &mut Lab, cluster: &str, replicas: usize) -> Result<Vec<u32>> {
    let pid = |replica| {
        lab.gateway(cluster, replica)
            .pid()
            .with_context(|| format!("gateway {replica} of {cluster} has ended"))
    };
    (1..=replicas).map(pid).collect()
}
