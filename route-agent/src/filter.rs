//! The content of the agent's nft table, and the generation of its sets, chains and rules.
//!
//! An overlay frame is a VXLAN packet between this node and a gateway replica. Its outer addresses
//! are those of the node and of the replica. The inner packet passes through the node's overlay
//! device.
//!
//! The chains, with hook and priority (`- 1` is the default of the setting `--nft-lead`):
//! - `raw` (prerouting, raw): drops packets from the overlay device whose source is neither in a
//!   remote cluster's CIDR nor in the probe network. Drops overlay frames that fail the reverse
//!   path check described below. Exempts other overlay frames from connection tracking, so that NAT
//!   rules of other tables do not change their outer addresses.
//! - `raw-output` (output, raw): exempts the overlay frames that this node sends from connection
//!   tracking.
//! - `mapped` (prerouting, dstnat - 1): translates the destination of packets from the overlay
//!   device. `status.ip` of an IP object becomes its `spec.ip`. The cluster's echo address becomes
//!   this node's address in the external CIDR. Remote nodes send echo requests to the echo address.
//! - `input` (input, filter - 1): drops packets from the overlay device to a tunnel of this node,
//!   overlay frames whose outer source is not a gateway replica, and overlay frames that NAT has
//!   redirected to this node.
//! - `forward` (forward, filter - 1): drops overlay frames that NAT has redirected to a gateway
//!   replica.
//! - `source` (postrouting, srcnat - 1): sets the source address of packets to and from remote
//!   clusters, so that the CNI does not masquerade them.
//!
//! The chain `source` uses `snat to ip saddr` to keep a source address. The verdict `accept` is not
//! sufficient, because the CNI's chain runs later and could still masquerade the packet. After
//! `snat`, later chains cannot change the source address, even if `snat` has not changed it.
//!
//! # Overlay frames from pods
//!
//! Nodes and gateways authenticate each other only by the outer source address of overlay frames. A
//! pod must therefore not be able to send a frame with the address of a node or gateway replica as
//! source. The chain `raw` checks the reverse path of frames on interfaces of the kinds in
//! [`POD_KINDS`], which connect pods with the node. The route to the source must lead through the
//! interface on which the frame has arrived (strict mode of RFC 3704).
//!
//! Two groups of interfaces are exempt from the check:
//! - Interfaces towards other nodes. Their routing may be asymmetric because of a CNI's tunnel or
//!   several uplinks, and the other node has checked its own pods.
//! - Interfaces in the setting `--trusted-interfaces`. There the CNI checks the sources of pods.
//!
//! The check applies only to packets whose destination is the overlay's UDP port. A pod may send a
//! packet to a Service, and NAT may then change the destination to the overlay's port. Connection
//! tracking has an entry for such a packet. It has no entry for other overlay frames, because `raw`
//! and `raw-output` exempt them. The chains `input` and `forward` therefore drop overlay frames
//! that have an entry.
//!
//! # Packets from remote clusters to tunnels
//!
//! A remote cluster can send packets to each node, because each node has an address in the external
//! CIDR. Such a packet may be addressed to a tunnel on the node, for example to the CNI's VXLAN
//! device, which accepts packets without authentication. If the packet contained an overlay frame,
//! the frame would arrive on the tunnel's interface. The reverse path check does not apply to that
//! interface. The chain `input` therefore drops packets from the overlay device to the UDP ports
//! and IP protocols of tunnels.

use crate::mutant;
use crate::ruleset::{MAPPED, MASQUERADED, REMOTE, Ruleset};
use ipnet::Ipv4Net;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Counter of dropped overlay frames whose outer source is not the address of a gateway replica.
pub(crate) const OUTER_SOURCE: &str = "outer-source";
/// Counter of dropped overlay frames that failed the reverse path check.
pub(crate) const REVERSE_PATH: &str = "outer-reverse-path";
/// Counter of dropped overlay frames whose destination NAT has changed.
pub(crate) const TRANSLATED: &str = "outer-translated";
/// Counter of dropped packets from the overlay device to a tunnel of this node.
pub(crate) const INNER_TUNNEL: &str = "inner-tunnel";
/// Counter of dropped packets from the overlay device whose source is not in [`Filter::remote`].
pub(crate) const INNER_SOURCE: &str = "inner-source";

/// Kinds of interfaces (as in `ip -d link`) on which packets from pods arrive at the node.
///
/// Calico, Cilium, AWS and kindnet use `veth` or `netkit`. Flannel and other CNIs with the plugin
/// `bridge` use `bridge`.
const POD_KINDS: [&str; 3] = ["bridge", "netkit", "veth"];

/// UDP ports of CNIs' tunnels: the registered ports of VXLAN and Geneve, and the default VXLAN port
/// of Linux, Flannel and Cilium.
const TUNNEL_PORTS: [u16; 3] = [4789, 6081, 8472];

/// IP protocols of tunnels: IPv4 in IPv4, IPv6 in IPv4, GRE.
const TUNNEL_PROTOCOLS: [u16; 3] = [4, 41, 47];

// Standard priorities of base chains, from `linux/netfilter_ipv4.h`.
const RAW: i32 = -300;
const DSTNAT: i32 = -100;
const FILTER: i32 = 0;
const SRCNAT: i32 = 100;

/// The node's values from which the table's sets, chains and rules are generated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Name of the overlay device.
    pub(crate) device: String,
    /// Destination UDP port of overlay frames.
    pub(crate) overlay_port: u16,
    /// Number that is subtracted from the standard priorities `dstnat`, `filter` and `srcnat`, so
    /// that the agent's chains run before the chains of other tables.
    pub(crate) priority_lead: u16,
    /// Names of the interfaces towards other nodes.
    pub(crate) underlay: BTreeSet<String>,
    /// Names of the interfaces that are exempt from the reverse path check, because the CNI checks
    /// the sources of pods there. A trailing `*` matches any rest of the name.
    pub(crate) trusted: Vec<String>,
    /// Addresses of all gateway replicas. Overlay frames from other addresses are dropped.
    pub(crate) gateways: BTreeSet<Ipv4Addr>,
    /// Pod CIDRs of this cluster. Pods keep their source address towards remote clusters.
    pub(crate) local: BTreeSet<Ipv4Net>,
    /// Remapped CIDRs of the remote clusters, and the probe network. Packets from the overlay
    /// device with another source are dropped.
    pub(crate) remote: BTreeSet<Ipv4Net>,
    /// This node's address in the external CIDR. Packets to remote clusters get this address as
    /// source unless they come from a pod of this cluster.
    pub(crate) external_ip: Ipv4Addr,
    /// Map from mapped address (`status.ip` of an IP object) to original address (`spec.ip`). The
    /// map also translates the cluster's echo address to [`Filter::external_ip`].
    pub(crate) mapped: BTreeMap<Ipv4Addr, Ipv4Addr>,
    /// Destinations of packets from the overlay device that are masqueraded: the packets get an
    /// address of this node as source, so that replies return through this node. Each of them is a
    /// key of [`Filter::mapped`], or the ClusterIP of an IP object. Gateways translate `status.ip`
    /// to a ClusterIP, because connection tracking translates a destination only once, and
    /// kube-proxy translates the ClusterIP to an endpoint.
    pub(crate) masqueraded: BTreeSet<Ipv4Addr>,
}

impl Filter {
    pub(crate) fn ruleset(&self) -> Ruleset {
        let lead = i32::from(self.priority_lead);
        let mut ruleset = Ruleset::default();
        for counter in [
            INNER_SOURCE,
            INNER_TUNNEL,
            OUTER_SOURCE,
            REVERSE_PATH,
            TRANSLATED,
        ] {
            ruleset.counter(counter);
        }
        let mut tunnel_ports = BTreeSet::from(TUNNEL_PORTS);
        tunnel_ports.insert(self.overlay_port);
        ruleset.numbers("tunnel-ports", "inet_service", tunnel_ports);
        ruleset.numbers("tunnel-protocols", "inet_proto", TUNNEL_PROTOCOLS);
        ruleset.names("pod-kinds", POD_KINDS.map(str::to_owned).into_iter());
        ruleset.names("underlay", self.underlay.iter().cloned());
        ruleset.addresses("gateways", self.gateways.iter().copied());
        ruleset.prefixes("local", self.local.iter().copied());
        ruleset.prefixes(REMOTE, self.remote.iter().copied());
        ruleset.addresses(MASQUERADED, self.masqueraded.iter().copied());
        ruleset.translations(MAPPED, &self.mapped);

        ruleset.chain("raw", "filter", "prerouting", RAW, self.raw());
        ruleset.chain("raw-output", "filter", "output", RAW, self.raw_output());
        ruleset.chain("mapped", "nat", "prerouting", DSTNAT - lead, self.mapped());
        ruleset.chain("input", "filter", "input", FILTER - lead, self.input());
        ruleset.chain(
            "forward",
            "filter",
            "forward",
            FILTER - lead,
            self.forward(),
        );
        ruleset.chain("source", "nat", "postrouting", SRCNAT - lead, self.source());

        ruleset
    }

    fn raw(&self) -> Vec<Value> {
        let arrives = arrives_on(&self.device);
        let mut rules = vec![
            json!([
                arrives,
                is_not(meta("nfproto"), "ipv4"),
                count(INNER_SOURCE),
                drop_it()
            ]),
            json!([
                arrives,
                is_not(ip("saddr"), "@remote"),
                count(INNER_SOURCE),
                drop_it()
            ]),
        ];
        if !mutant::disables("reverse-path") {
            rules.extend(["saddr", "daddr"].map(|end| self.reverse_path(end)));
        }
        for end in ["saddr", "daddr"] {
            rules.push(json!([
                self.is_overlay(),
                is(ip(end), "@gateways"),
                {"notrack": null}
            ]));
        }

        rules
    }

    /// Returns the rule that applies the reverse path check to overlay frames.
    ///
    /// `end` selects the frames to which the rule applies: frames from a gateway (`saddr`) or to a
    /// gateway (`daddr`).
    fn reverse_path(&self, end: &str) -> Value {
        let route = json!({"fib": {"result": "oif", "flags": ["saddr", "iif"]}});
        // The kernel stops evaluating a rule at the first match that fails, so the matches that
        // most packets fail come first.
        let mut rule = vec![
            self.is_overlay(),
            is(ip(end), "@gateways"),
            is(meta("iifkind"), "@pod-kinds"),
            is(route, false),
            is_not(meta("iifname"), "@underlay"),
        ];
        let trusted = self.trusted.iter();
        rule.extend(trusted.map(|it| is_not(meta("iifname"), it.as_str())));
        rule.extend([count(REVERSE_PATH), drop_it()]);

        Value::Array(rule)
    }

    fn raw_output(&self) -> Vec<Value> {
        vec![json!([
            self.is_overlay(),
            is(ip("daddr"), "@gateways"),
            {"notrack": null}
        ])]
    }

    fn mapped(&self) -> Vec<Value> {
        vec![json!([
            arrives_on(&self.device),
            {"dnat": {"family": "ip", "addr": {"map": {"key": ip("daddr"), "data": "@mapped"}}}}
        ])]
    }

    fn input(&self) -> Vec<Value> {
        let mut rules = self.tunnels();
        rules.extend(self.overlay_frames());

        rules
    }

    /// Returns the rules that drop packets from the overlay device to a tunnel of this node.
    fn tunnels(&self) -> Vec<Value> {
        if mutant::disables("tunnel-filter") {
            return Vec::new();
        }
        let to_tunnel = [
            is(meta("l4proto"), "@tunnel-protocols"),
            is(udp_dport(), "@tunnel-ports"),
        ];
        let arrives = arrives_on(&self.device);
        let rules =
            to_tunnel.map(|tunnel| json!([arrives, tunnel, count(INNER_TUNNEL), drop_it()]));

        rules.into()
    }

    /// Returns the rules that drop two kinds of overlay frames to this node: frames whose outer
    /// source is not a gateway replica, and frames that NAT has redirected.
    fn overlay_frames(&self) -> Vec<Value> {
        if mutant::disables("vxlan-filter") {
            return Vec::new();
        }

        let mut rules = vec![
            json!([
                is(meta("nfproto"), "ipv6"),
                self.is_overlay(),
                count(OUTER_SOURCE),
                drop_it()
            ]),
            json!([
                self.is_overlay(),
                is_not(ip("saddr"), "@gateways"),
                count(OUTER_SOURCE),
                drop_it()
            ]),
        ];
        rules.extend(self.translated("saddr"));

        rules
    }

    fn forward(&self) -> Vec<Value> {
        Vec::from_iter(self.translated("daddr"))
    }

    /// Returns the rule that drops overlay frames for which connection tracking has an entry.
    ///
    /// The chain `raw` exempts frames from or to a gateway from connection tracking. If such a
    /// frame has an entry, it had another destination in that chain, and NAT has changed the
    /// destination since. `end` has the same meaning as in [`Filter::reverse_path`].
    fn translated(&self, end: &str) -> Option<Value> {
        if mutant::disables("untracked") {
            return None;
        }
        let state = json!({"ct": {"key": "state"}});

        Some(json!([
            self.is_overlay(),
            is(ip(end), "@gateways"),
            is_not(state, "untracked"),
            count(TRANSLATED),
            drop_it()
        ]))
    }

    fn source(&self) -> Vec<Value> {
        let departs = is(meta("oifname"), self.device.as_str());
        let unchanged = json!({"snat": {"family": "ip", "addr": ip("saddr")}});
        let external_ip = self.external_ip.to_string();
        let of_masqueraded = json!({"ct": {"key": "ip daddr", "dir": "original"}});

        let mut rules = vec![
            json!([departs, is(ip("saddr"), "@local"), unchanged]),
            json!([
                departs,
                is(meta("nfproto"), "ipv4"),
                {"snat": {"family": "ip", "addr": external_ip}}
            ]),
            json!([
                arrives_on(&self.device),
                is(of_masqueraded, "@masqueraded"),
                {"masquerade": null}
            ]),
            // Pods must see the address of the remote pod, even if the CNI masquerades packets from
            // addresses outside the cluster.
            json!([
                arrives_on(&self.device),
                is(ip("saddr"), "@remote"),
                unchanged
            ]),
        ];
        if mutant::disables("no-masquerade") {
            rules.remove(0);
        }

        rules
    }

    fn is_overlay(&self) -> Value {
        is(udp_dport(), self.overlay_port)
    }
}

fn udp_dport() -> Value {
    json!({"payload": {"protocol": "udp", "field": "dport"}})
}

fn arrives_on(device: &str) -> Value {
    is(meta("iifname"), device)
}

fn is(left: Value, right: impl Into<Value>) -> Value {
    json!({"match": {"op": "==", "left": left, "right": right.into()}})
}

fn is_not(left: Value, right: impl Into<Value>) -> Value {
    json!({"match": {"op": "!=", "left": left, "right": right.into()}})
}

fn meta(key: &str) -> Value {
    json!({"meta": {"key": key}})
}

fn ip(field: &str) -> Value {
    json!({"payload": {"protocol": "ip", "field": field}})
}

fn count(counter: &str) -> Value {
    json!({"counter": counter})
}

fn drop_it() -> Value {
    json!({"drop": null})
}
