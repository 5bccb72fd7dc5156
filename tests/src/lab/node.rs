//! A node, which routes between its pods and the underlay. It has the nft rules that a CNI and
//! kube-proxy would create.

use super::Identity;
use super::address;
use super::link::{End, ip, veth};
use super::netns::Netns;
use super::pod::{Place, Pod};
use super::spec::{ClusterSpec, GATEWAY_PORT, NODE_PORT};
use anyhow::{Context as _, Result};
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// A node of a cluster. The device `eth0` connects the node with the edge router of the cluster.
#[derive(Debug)]
pub struct Node {
    /// Name in the form `<cluster>-<number>`. Numbers start at 1.
    pub name: String,
    /// Address of the node on the underlay.
    pub internal_ip: Ipv4Addr,
    /// The node's part of each pod CIDR of the cluster, in the same order.
    pub pod_cidrs: Vec<Ipv4Net>,
    /// The network namespace of the node.
    pub netns: Netns,
    /// `false` after [`Lab::kill_node`](super::Lab::kill_node).
    pub alive: bool,
    cluster: String,
    /// MTU in bytes of the node and its pods.
    mtu: u32,
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
            veth(near, far, spec.node_mtu),
            format!("addr add {}/30 dev eth0", link.lower),
            "link set dev eth0 up".to_owned(),
            format!("route add default via {}", link.upper),
        ];
        // An unreachable route keeps packets for unused pod addresses from returning to the
        // underlay. CNIs add the same routes.
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
            mtu: spec.node_mtu,
            pods: 0,
        })
    }

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
            mtu: self.mtu,
        };

        Pod::build(identity, name, address, place)
    }

    /// Adds nft rules that forward [`NODE_PORT`] to the gateways at `backends`, as kube-proxy does.
    pub(super) fn expose(&self, backends: &[Ipv4Addr]) -> Result<()> {
        let destination = format!("ip daddr {} udp dport {NODE_PORT}", self.internal_ip);
        let ruleset = dnat_ruleset("kube", &destination, backends);
        self.netns.exec("nft", &["-f", "-"], &ruleset)?;

        Ok(())
    }
}

/// Returns the nft rules of a CNI without an overlay network. Traffic between pods keeps its
/// addresses. Traffic from pods to other destinations is masqueraded.
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

/// Returns nft rules that distribute new flows to `destination` over `backends`.
///
/// The flows are masqueraded, so that replies return through this node. Without backends the rules
/// forward nothing, and the kernel rejects packets to the unused port.
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

    // Deleting a missing table would fail, so declare the table first.
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

/// Statement that sets kube-proxy's mark bit, by which the rules select packets to masquerade. It
/// keeps the other bits of the mark.
const MARK: &str = "meta mark set meta mark | 0x4000";

fn set(nets: &[Ipv4Net]) -> String {
    let nets: Vec<String> = nets.iter().map(Ipv4Net::to_string).collect();
    format!("{{ {} }}", nets.join(", "))
}
