//! A cluster of a laboratory, which has an edge router, nodes, pods and gateways.

use super::Identity;
use super::address::{self, Link};
use super::link::{End, ip, veth};
use super::netns::Netns;
use super::node::{self, Node};
use super::pod::Pod;
use super::spec::{ClusterSpec, Exposure, GATEWAY_PORT, NODE_PORT, NODES_MAX};
use super::underlay::Underlay;
use crate::fault::relay::Relay;
use anyhow::{Context as _, Result, ensure};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// A running cluster of a laboratory.
#[derive(Debug)]
pub struct Cluster {
    /// The specification from which the cluster was built.
    pub spec: ClusterSpec,
    /// The router between the nodes and the core of the underlay. It has a device `node-<n>` to
    /// each node, and the device `up` to the core.
    pub edge: Netns,
    /// The nodes. Node number N is at index N - 1.
    pub nodes: Vec<Node>,
    /// The gateway replicas. Replica number N is at index N - 1.
    pub gateways: Vec<Gateway>,
    /// The pods that run no gateway, in the order in which they were added.
    pub pods: Vec<Pod>,
    /// The relay between edge and core, if the specification requests a relay.
    pub relay: Option<Relay>,
    number: u8,
    identity: Arc<Identity>,
}

/// A gateway replica of a cluster.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// The pod in which the replica runs.
    pub pod: Pod,
    /// Whether the replica is ready in the EndpointSlice, and a backend of the exposed port.
    pub ready: bool,
}

impl Cluster {
    pub(super) fn build(
        identity: &Arc<Identity>,
        spec: ClusterSpec,
        number: u8,
        underlay: &Underlay,
    ) -> Result<Self> {
        ensure!(
            (1..=NODES_MAX).contains(&spec.nodes),
            "cluster {} must have 1 to {NODES_MAX} nodes",
            spec.name
        );
        let edge = Netns::create(identity, &format!("{}-edge", spec.name))?;
        edge.sysctl("net.ipv4.ip_forward", 1)?;
        let relay = connect_uplink(identity, &spec, number, &edge, underlay)?;

        let mut cluster = Self {
            spec,
            edge,
            nodes: Vec::new(),
            gateways: Vec::new(),
            pods: Vec::new(),
            relay,
            number,
            identity: Arc::clone(identity),
        };
        for _ in 0..cluster.spec.nodes {
            cluster.add_node()?;
        }
        for _ in 0..cluster.spec.replicas {
            cluster.add_gateway()?;
        }
        cluster.expose()?;

        Ok(cluster)
    }

    /// Returns the cluster ID, which is also the prefix of node names.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Returns the node with this number. Numbers start at 1.
    ///
    /// # Panics
    ///
    /// Panics if there is no such node.
    pub fn node(&self, number: usize) -> &Node {
        &self.nodes[number - 1]
    }

    /// Returns the gateway replica with this number. Numbers start at 1.
    ///
    /// # Panics
    ///
    /// Panics if there is no such gateway.
    pub fn gateway(&self, number: usize) -> &Gateway {
        &self.gateways[number - 1]
    }

    /// Returns the addresses and the UDP port at which peers in the client role reach the gateways.
    pub fn endpoint(&self) -> (Vec<Ipv4Addr>, u16) {
        match self.spec.exposure {
            Exposure::NodePort => {
                let alive = self.nodes.iter().filter(|node| node.alive);
                (alive.map(|node| node.internal_ip).collect(), NODE_PORT)
            }
            Exposure::LoadBalancer => (vec![address::load_balancer(self.number)], GATEWAY_PORT),
        }
    }

    /// Adds a node without a route agent, and returns the node's number.
    pub(super) fn add_node(&mut self) -> Result<usize> {
        let number = self.nodes.len() + 1;
        let node = Node::build(&self.identity, &self.spec, self.number, number, &self.edge)?;
        self.nodes.push(node);

        Ok(number)
    }

    /// Adds a pod with this address to the node with this number.
    pub(super) fn add_pod(&mut self, node: usize, address: Ipv4Addr) -> Result<Pod> {
        let name = format!("pod-{address}");
        let node = self
            .nodes
            .get_mut(node - 1)
            .with_context(|| format!("there is no node {node}"))?;

        let pod = node.add_pod(&self.identity, &name, address)?;
        self.pods.push(pod.clone());

        Ok(pod)
    }

    /// Adds a gateway pod, and returns the replica's number. Replicas are distributed over the
    /// nodes round-robin.
    pub(super) fn add_gateway(&mut self) -> Result<usize> {
        let number = self.gateways.len() + 1;
        let index = (number - 1) % self.nodes.len();
        let round = u32::try_from((number - 1) / self.nodes.len()).context("too many gateways")?;
        let node = &mut self.nodes[index];
        let address = address::nth(node.pod_cidrs[0], FIRST_GATEWAY + round);
        let pod = node.add_pod(&self.identity, &format!("gateway-{number}"), address)?;
        self.gateways.push(Gateway { pod, ready: true });

        Ok(number)
    }

    /// Updates the nft rules that forward the exposed port to the ready gateways.
    ///
    /// In a real cluster, kube-proxy or a load balancer updates such rules when readiness changes.
    ///
    /// # Errors
    ///
    /// Returns an error if `nft` rejects the rules.
    pub fn expose(&self) -> Result<()> {
        let backends: Vec<Ipv4Addr> = self
            .gateways
            .iter()
            .filter(|gateway| gateway.ready)
            .map(|gateway| gateway.pod.address)
            .collect();

        match self.spec.exposure {
            Exposure::NodePort => self
                .nodes
                .iter()
                .filter(|node| node.alive)
                .try_for_each(|node| node.expose(&backends)),
            Exposure::LoadBalancer => {
                let address = address::load_balancer(self.number);
                let destination = format!("ip daddr {address} udp dport {GATEWAY_PORT}");
                let ruleset = node::dnat_ruleset("balancer", &destination, &backends);
                self.edge.exec("nft", &["-f", "-"], &ruleset)?;
                Ok(())
            }
        }
    }
}

/// Connects the edge router to the core router, through a relay if the specification requests it.
fn connect_uplink(
    identity: &Arc<Identity>,
    spec: &ClusterSpec,
    number: u8,
    edge: &Netns,
    underlay: &Underlay,
) -> Result<Option<Relay>> {
    let Link { upper, lower } = address::uplink(number);
    let core = underlay.core();
    let device = format!("to-{}", spec.name);
    let mtu = spec.uplink_mtu;
    let near = End {
        netns: edge,
        device: "up",
    };
    let far = End {
        netns: core,
        device: &device,
    };

    let relay = if spec.relayed {
        let name = format!("{}-relay", spec.name);
        Some(Relay::between(identity, &name, near, far, mtu)?)
    } else {
        ip(edge, &[veth(near, far, mtu)])?;
        None
    };

    ip(
        edge,
        &[
            "link set dev lo up".to_owned(),
            format!("addr add {}/32 dev lo", address::load_balancer(number)),
            format!("addr add {lower}/30 dev up"),
            "link set dev up up".to_owned(),
            format!("route add default via {upper}"),
        ],
    )?;
    let mut commands = vec![
        format!("addr add {upper}/30 dev {device}"),
        format!("link set dev {device} up"),
    ];
    match spec.nat {
        Some(timeout) => crate::fault::nat::hide(edge, "up", timeout)?,
        None => commands.push(format!(
            "route add {} via {lower}",
            address::cluster_net(number)
        )),
    }
    ip(core, &commands)?;

    Ok(relay)
}

/// Index of the first gateway's address in the pod CIDR of a node. Tests use higher indices for
/// other pods.
const FIRST_GATEWAY: u32 = 2;
