//! The nft table of one node, as a value, and its conversion to nft objects.
//!
//! | chain | hook, priority | does |
//! |---|---|---|
//! | `raw` | prerouting, raw | drops inner packets whose source is no remote cluster's, and overlay frames of pods with a spoofed outer source; exempts overlay frames from connection tracking, so that the NAT of other tables does not change their outer source |
//! | `raw-output` | output, raw | the same exemption for the frames that this node sends |
//! | `mapped` | prerouting, dstnat - 1 | translates mapped addresses to the original ones |
//! | `input` | input, filter - 1 | drops overlay frames from unknown sources, and those that NAT has redirected to this node |
//! | `forward` | forward, filter - 1 | drops overlay frames that NAT has redirected to a gateway |
//! | `source` | postrouting, srcnat - 1 | sets the source address of overlay traffic, so that the CNI does not masquerade it |
//!
//! After `accept` in `source`, a later chain could still masquerade. After `snat` it cannot, even if
//! `snat to ip saddr` changes nothing.
//!
//! Nodes and gateways identify each other by outer addresses only, so a pod must not send with one
//! of them. A pod is behind an interface of a kind in [`POD_KINDS`], where the reverse path is checked:
//! the route to the source must lead through the interface (strict mode of RFC 3704). Two groups of
//! interfaces are exempt. On those towards other nodes routing may be asymmetric (a CNI's tunnel,
//! several uplinks), and the other node has checked its own pods. On those that the settings trust the
//! CNI checks the sources itself.
//! NAT for a Service may redirect a spoofed packet to the overlay's port after this check. Such a
//! packet is tracked, while genuine overlay frames never are.

use crate::mutant;
use crate::ruleset::Ruleset;
use ipnet::Ipv4Net;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Counter of overlay frames whose outer source is no gateway replica.
pub(crate) const OUTER_SOURCE: &str = "outer-source";
/// Counter of overlay frames whose source is not routed through their interface.
pub(crate) const REVERSE_PATH: &str = "outer-reverse-path";
/// Counter of overlay frames that NAT has redirected.
pub(crate) const TRANSLATED: &str = "outer-translated";
/// Counter of packets from the overlay device whose source is no remote cluster's.
pub(crate) const INNER_SOURCE: &str = "inner-source";

/// The kinds of links (`ip -d link`) through which CNIs connect pods with the node: `veth` or `netkit`
/// for Calico, Cilium, AWS and kindnet, `bridge` for Flannel and other uses of the plugin `bridge`.
const POD_KINDS: [&str; 3] = ["bridge", "netkit", "veth"];

/// Standard priorities of the hooks, from `linux/netfilter_ipv4.h`.
const RAW: i32 = -300;
const DSTNAT: i32 = -100;
const FILTER: i32 = 0;
const SRCNAT: i32 = 100;

/// The content of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Name of the overlay device.
    pub(crate) device: String,
    /// UDP port of the overlay.
    pub(crate) overlay_port: u16,
    /// Subtracted from the standard priorities, so that chains of other tables run later.
    pub(crate) priority_lead: u16,
    /// Interfaces towards other nodes.
    pub(crate) underlay: BTreeSet<String>,
    /// Names or prefixes with `*` of the interfaces whose sources the CNI checks.
    pub(crate) trusted: Vec<String>,
    /// Outer sources of accepted overlay frames.
    pub(crate) gateways: BTreeSet<Ipv4Addr>,
    /// Sources that keep their address towards remote clusters: this cluster's pods.
    pub(crate) local: BTreeSet<Ipv4Net>,
    /// Permitted inner sources.
    pub(crate) remote: BTreeSet<Ipv4Net>,
    /// Source address of all other packets to remote clusters.
    pub(crate) external_ip: Ipv4Addr,
    /// Mapped addresses and their originals, including the echo address.
    pub(crate) mapped: BTreeMap<Ipv4Addr, Ipv4Addr>,
    /// Mapped addresses whose traffic gets the node's address as source.
    pub(crate) masqueraded: BTreeSet<Ipv4Addr>,
}

impl Filter {
    /// Converts the content to nft objects.
    pub(crate) fn ruleset(&self) -> Ruleset {
        let lead = i32::from(self.priority_lead);
        let mut ruleset = Ruleset::default();
        for counter in [INNER_SOURCE, OUTER_SOURCE, REVERSE_PATH, TRANSLATED] {
            ruleset.counter(counter);
        }
        ruleset.names("pod-kinds", POD_KINDS.map(str::to_owned).into_iter());
        ruleset.names("underlay", self.underlay.iter().cloned());
        ruleset.addresses("gateways", self.gateways.iter().copied());
        ruleset.prefixes("local", self.local.iter().copied());
        ruleset.prefixes("remote", self.remote.iter().copied());
        ruleset.addresses("masqueraded", self.masqueraded.iter().copied());
        ruleset.translations("mapped", &self.mapped);

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

    /// Drops an overlay frame from (`saddr`) or to (`daddr`) a gateway if its source is spoofed.
    fn reverse_path(&self, end: &str) -> Value {
        let route = json!({"fib": {"result": "oif", "flags": ["saddr", "iif"]}});
        // The matches that fail for most genuine frames come first.
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

    /// Drops an overlay frame from (`saddr`) or to (`daddr`) a gateway that is tracked: the chain `raw`
    /// did not exempt it, because it had another destination.
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
            // A pod sees the remote pod's address, even if the CNI masquerades external sources.
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
        is(
            json!({"payload": {"protocol": "udp", "field": "dport"}}),
            self.overlay_port,
        )
    }
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
