//! The complete path from pod to pod: clusters with equal CIDRs and one gateway each.
//!
//! The pods run on nodes without a gateway, so that overlay packets cross the underlay. This is the
//! common case: in a cluster of many nodes, most pods have no gateway on their node.

mod cables;

use super::ends::Ends;
use super::metric::{Tunnel, Underlay};
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
    lab: Lab,
}

impl Fabric {
    /// Creates the clusters, and waits until the client pod reaches the server pod.
    ///
    /// # Errors
    ///
    /// Returns an error if a process does not start or no packet arrives.
    pub(super) fn start(underlay: Underlay) -> Result<Self> {
        let spec = Spec::new()
            .cluster(ClusterSpec::new(CLIENT).nodes(NODES))
            .cluster(ClusterSpec::new(SERVER).nodes(NODES))
            .cluster(ClusterSpec::new(THIRD))
            .peering(CLIENT, SERVER)
            .peering(THIRD, CLIENT)
            .peering(THIRD, SERVER);
        let mut lab = Lab::up(spec)?;
        let places: Vec<_> = [CLIENT, SERVER]
            .into_iter()
            .flat_map(|name| lab.cluster(name).nodes.iter().map(move |node| (name, node)))
            .collect();
        cables::add(&places, underlay)?;
        let client = add_pod(&mut lab, CLIENT)?;
        let server = add_pod(&mut lab, SERVER)?;

        let ends = Ends {
            tunnel: Tunnel::Fabric,
            underlay,
            server_address: lab.seen_from(CLIENT, SERVER, server.address)?,
            client: client.netns,
            server: server.netns,
            gateways: [gateway(&mut lab, CLIENT)?, gateway(&mut lab, SERVER)?],
        };
        ends.wait_until_up(UP_DEADLINE)?;
        Ok(Self { ends, lab })
    }

    /// Returns two histograms of packet sizes: packets that the client's gateway has read from its
    /// TAP, and packets that the server's gateway has written to its TAP.
    ///
    /// # Errors
    ///
    /// Returns an error if a gateway's status cannot be read.
    pub(super) fn super_packets(&self) -> Result<[Histogram; 2]> {
        let client = self.lab.gateway_status(CLIENT, GATEWAY)?;
        let server = self.lab.gateway_status(SERVER, GATEWAY)?;

        Ok([Histogram::read(&client)?, Histogram::written(&server)?])
    }
}

const CLIENT: &str = "rome";
const SERVER: &str = "milan";
/// The name of a second peer of both clusters. The bench sends no data to this peer, so the peer's
/// sessions carry only probes.
const THIRD: &str = "turin";

// Nodes and gateway replicas are counted from 1.
const NODES: usize = 2;
const POD_NODE: usize = 2;
const GATEWAY: usize = 1;

/// The offset of the pod's address in the pod CIDR of its node.
const POD_INDEX: u32 = 10;

const UP_DEADLINE: Duration = Duration::from_secs(10);

fn add_pod(lab: &mut Lab, cluster: &str) -> Result<Pod> {
    let cidr = lab.cluster(cluster).node(POD_NODE).pod_cidrs[0];
    let address = Ipv4Addr::from_bits(cidr.network().to_bits() + POD_INDEX);

    lab.add_pod(cluster, POD_NODE, address)
        .with_context(|| format!("failed to add a pod to {cluster}"))
}

fn gateway(lab: &mut Lab, cluster: &str) -> Result<u32> {
    lab.gateway(cluster, GATEWAY)
        .pid()
        .with_context(|| format!("the gateway of {cluster} has ended"))
}
