//! Clusters: an edge router, nodes, pods and gateways.

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

/// A cluster of the laboratory.
#[derive(Debug)]
pub struct Cluster {
    /// The specification that it was built from.
    pub spec: ClusterSpec,
    /// The router between its nodes and the core of the underlay: a device
    /// `node-<n>` to each node, and `up` to the core.
    pub edge: Netns,
    /// Its nodes, in the order of their numbers.
    pub nodes: Vec<Node>,
    /// Its gateway pods, in the order of their numbers.
    pub gateways: Vec<Gateway>,
    /// Its other pods, in the order in which they were added.
    pub pods: Vec<Pod>,
    /// The relay in its uplink, if the specification has one.
    pub relay: Option<Relay>,
    number: u8,
    identity: Arc<Identity>,
}

/// A gateway replica's pod.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// The pod in which the gateway runs.
    pub pod: Pod,
    /// Its readiness in the EndpointSlice, and whether the exposed port forwards to it.
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

    /// The cluster ID.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The node of this number, counted from 1.
    ///
    /// # Panics
    ///
    /// Panics if there is no such node.
    pub fn node(&self, number: usize) -> &Node {
        &self.nodes[number - 1]
    }

    /// The gateway of this number, counted from 1.
    ///
    /// # Panics
    ///
    /// Panics if there is no such gateway.
    pub fn gateway(&self, number: usize) -> &Gateway {
        &self.gateways[number - 1]
    }

    /// The endpoint of the gateways for clients: addresses and port.
    pub fn endpoint(&self) -> (Vec<Ipv4Addr>, u16) {
        match self.spec.exposure {
            Exposure::NodePort => {
                let alive = self.nodes.iter().filter(|node| node.alive);
                (alive.map(|node| node.internal_ip).collect(), NODE_PORT)
            }
            Exposure::LoadBalancer => (vec![address::load_balancer(self.number)], GATEWAY_PORT),
        }
    }

    /// Adds a node, and returns its number.
    pub(super) fn add_node(&mut self) -> Result<usize> {
        let number = self.nodes.len() + 1;
        let node = Node::build(&self.identity, &self.spec, self.number, number, &self.edge)?;
        self.nodes.push(node);

        Ok(number)
    }

    /// Adds a pod to a node.
    pub(super) fn add_pod(&mut self, node: usize, address: Ipv4Addr) -> Result<Pod> {
        let name = format!("pod-{address}");
        let node = self
            .nodes
            .get_mut(node - 1)
            .with_context(|| format!("no node {node}"))?;

        let pod = node.add_pod(&self.identity, &name, address)?;
        self.pods.push(pod.clone());

        Ok(pod)
    }

    /// Adds a gateway pod on the next node, and returns its number.
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

    /// Forwards the exposed port to the ready gateways, as kube-proxy or a load balancer
    /// does some time after readiness changes.
    ///
    /// # Errors
    ///
    /// Returns an error if nft refuses the rules.
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

/// Connects the edge to the core, through a relay if the specification has one.
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

/// Index of the first gateway's address in the pod CIDR of a node; other pods have
/// higher ones.
const FIRST_GATEWAY: u32 = 2;
