//! Nodes: routers between pods and underlay, with the nft tables that a CNI and
//! kube-proxy would maintain.

use super::Identity;
use super::address;
use super::link::{End, ip, veth};
use super::netns::Netns;
use super::pod::{Place, Pod};
use super::spec::{ClusterSpec, GATEWAY_PORT, MTU, NODE_PORT};
use anyhow::{Context as _, Result};
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// A node. Its device `eth0` leads to the edge of its cluster.
#[derive(Debug)]
pub struct Node {
    /// The cluster's name and the node's number, counted from 1.
    pub name: String,
    /// Its address on the underlay.
    pub internal_ip: Ipv4Addr,
    /// Its part of each of the cluster's pod CIDRs.
    pub pod_cidrs: Vec<Ipv4Net>,
    /// The namespace of the node.
    pub netns: Netns,
    /// False after [`Lab::kill_node`](super::Lab::kill_node).
    pub alive: bool,
    cluster: String,
    pods: usize,
}

impl Node {
    pub(super) fn build(
        identity: &Arc<Identity>,
        spec: &ClusterSpec,
        cluster: u8,
        number: usize,
        edge: &Netns,
    ) -> Result<Self> {
        let name = format!("{}-{number}", spec.name);
        let netns = Netns::create(identity, &name)?;
        netns.sysctl("net.ipv4.ip_forward", 1)?;
        netns.sysctl(
            "net.ipv4.fib_multipath_hash_policy",
            u8::from(spec.spread_by_port),
        )?;
        let link = address::node_link(cluster, number);
        let pod_cidrs = spec
            .pod_cidrs
            .iter()
            .map(|&cidr| address::node_pod_cidr(cidr, number))
            .collect::<Option<Vec<_>>>()
            .with_context(|| format!("the pod CIDRs of {} are too small", spec.name))?;

        let device = format!("node-{number}");
        let near = End {
            netns: &netns,
            device: "eth0",
        };
        let far = End {
            netns: edge,
            device: &device,
        };
        let mut commands = vec![
            "link set dev lo up".to_owned(),
            veth(near, far, MTU),
            format!("addr add {}/30 dev eth0", link.lower),
            "link set dev eth0 up".to_owned(),
            format!("route add default via {}", link.upper),
        ];
        // As CNIs do: packets for unused pod addresses must not return to the underlay.
        commands.extend(
            pod_cidrs
                .iter()
                .map(|cidr| format!("route add unreachable {cidr}")),
        );
        ip(&netns, &commands)?;

        let mut commands = vec![
            format!("addr add {}/30 dev {device}", link.upper),
            format!("link set dev {device} up"),
        ];
        commands.extend(
            pod_cidrs
                .iter()
                .map(|cidr| format!("route add {cidr} via {}", link.lower)),
        );
        ip(edge, &commands)?;
        netns.exec("nft", &["-f", "-"], &cni_ruleset(&spec.pod_cidrs))?;

        Ok(Self {
            name,
            internal_ip: link.lower,
            pod_cidrs,
            netns,
            alive: true,
            cluster: spec.name.clone(),
            pods: 0,
        })
    }

    /// Adds a pod with this address.
    pub(super) fn add_pod(
        &mut self,
        identity: &Arc<Identity>,
        name: &str,
        address: Ipv4Addr,
    ) -> Result<Pod> {
        self.pods += 1;
        let cidr = self
            .pod_cidrs
            .iter()
            .find(|cidr| cidr.contains(&address))
            .unwrap_or(&self.pod_cidrs[0]);
        let place = Place {
            cluster: &self.cluster,
            node: &self.name,
            netns: &self.netns,
            gateway: address::nth(*cidr, 1),
            device: format!("veth{}", self.pods),
            mtu: MTU,
        };

        Pod::build(identity, name, address, place)
    }

    /// Forwards [`NODE_PORT`] to the gateways at `backends`, as kube-proxy does.
    pub(super) fn expose(&self, backends: &[Ipv4Addr]) -> Result<()> {
        let destination = format!("ip daddr {} udp dport {NODE_PORT}", self.internal_ip);
        let ruleset = dnat_ruleset("kube", &destination, backends);
        self.netns.exec("nft", &["-f", "-"], &ruleset)?;

        Ok(())
    }
}

/// The rules of a CNI without an overlay: traffic between pods keeps its addresses,
/// traffic that leaves the cluster is masqueraded.
fn cni_ruleset(pod_cidrs: &[Ipv4Net]) -> String {
    let pods = set(pod_cidrs);
    format!(
        "table inet cni {{
            chain postrouting {{
                type nat hook postrouting priority 100; policy accept;
                ip saddr {pods} ip daddr != {pods} counter masquerade
            }}
        }}
        "
    )
}

/// Spreads new flows to `destination` over `backends`, and masquerades them so that
/// replies return; without backends, they are rejected.
pub(super) fn dnat_ruleset(table: &str, destination: &str, backends: &[Ipv4Addr]) -> String {
    let verdict = match backends {
        [] => String::new(),
        [one] => format!("{destination} {MARK} counter dnat ip to {one}:{GATEWAY_PORT}"),
        many => {
            let map: Vec<String> = many
                .iter()
                .enumerate()
                .map(|(index, backend)| format!("{index} : {backend}"))
                .collect();
            format!(
                "{destination} {MARK} counter dnat ip to numgen random mod {} map {{ {} }} : {GATEWAY_PORT}",
                many.len(),
                map.join(", "),
            )
        }
    };

    // Declared first, so that the deletion does not fail the first time.
    format!(
        "table inet {table} {{}}
        delete table inet {table}
        table inet {table} {{
            chain prerouting {{
                type nat hook prerouting priority -100; policy accept;
                {verdict}
            }}
            chain output {{
                type nat hook output priority -100; policy accept;
                {verdict}
            }}
            chain postrouting {{
                type nat hook postrouting priority 90; policy accept;
                meta mark & 0x4000 != 0 masquerade
            }}
        }}
        "
    )
}

/// Marks a flow to be masqueraded with kube-proxy's mark bit, and keeps the other bits.
const MARK: &str = "meta mark set meta mark | 0x4000";

fn set(nets: &[Ipv4Net]) -> String {
    let nets: Vec<String> = nets.iter().map(Ipv4Net::to_string).collect();
    format!("{{ {} }}", nets.join(", "))
}
