//! The nft table of one node: what it is to do, as a value, and the objects that do it.
//!
//! | chain | hook, priority | does |
//! |---|---|---|
//! | `raw` | prerouting, raw | drops inner packets whose source does not belong on the overlay, and overlay frames of pods with a foreign outer source; exempts overlay frames from connection tracking, so that no other table's NAT changes their outer source |
//! | `raw-output` | output, raw | the same exemption for the frames this node sends |
//! | `mapped` | prerouting, dstnat - 1 | turns mapped addresses into those they stand for |
//! | `input` | input, filter - 1 | drops overlay frames of strangers, and those that NAT has led here |
//! | `forward` | forward, filter - 1 | drops overlay frames that NAT has led to a gateway |
//! | `source` | postrouting, srcnat - 1 | binds the source address before a CNI's masquerade can |
//!
//! `accept` in `source` would not keep a later chain from masquerading; a binding
//! does, also one that changes nothing (`snat to ip saddr`).
//!
//! Nodes and gateways know each other by their outer addresses only, so no pod may send
//! with one of them. A pod is behind an interface of a kind in [`POD_KINDS`]: there the route
//! to the source must lead back through the interface (strict RFC 3704). It is not checked on
//! the interfaces towards other nodes, where routing may be asymmetric (a CNI's tunnel, several
//! uplinks) and whose packets the other node has checked, nor on those that the settings trust.
//! A Service could still change the destination of a forged packet later. Its connection is
//! tracked then, which that of no genuine overlay frame is.

use crate::mutant;
use crate::ruleset::Ruleset;
use ipnet::Ipv4Net;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Counter of overlay frames from addresses that are no gateway replica's.
pub(crate) const OUTER_STRANGERS: &str = "outer-source";
/// Counter of overlay frames whose source is not routed through their interface.
pub(crate) const REVERSE_PATH: &str = "outer-reverse-path";
/// Counter of overlay frames that passed NAT.
pub(crate) const TRANSLATED: &str = "outer-translated";
/// Counter of packets on the overlay device whose source is no remote cluster's.
pub(crate) const INNER_STRANGERS: &str = "inner-source";

/// The kinds of links (`ip -d link`) that CNIs make for pods, on the node's side: Calico's, Cilium's, AWS's and
/// kindnet's are `veth` or `netkit`, Flannel's and other uses of the plugin `bridge` are `bridge`.
const POD_KINDS: [&str; 3] = ["bridge", "netkit", "veth"];

/// Standard priorities of the hooks, from `linux/netfilter_ipv4.h`.
const RAW: i32 = -300;
const DSTNAT: i32 = -100;
const FILTER: i32 = 0;
const SRCNAT: i32 = 100;

/// What the table is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    /// The overlay device.
    pub(crate) device: String,
    /// UDP port of the overlay.
    pub(crate) overlay_port: u16,
    /// How far before the standard priorities our chains run; others' chains come after.
    pub(crate) priority_lead: u16,
    /// Interfaces that lead to other nodes.
    pub(crate) underlay: BTreeSet<String>,
    /// Interfaces, or beginnings of their names and a `*`, whose sources the CNI checks.
    pub(crate) trusted: Vec<String>,
    /// Outer addresses from which overlay frames are accepted.
    pub(crate) gateways: BTreeSet<Ipv4Addr>,
    /// Sources that remote clusters see as they are: this cluster's pods.
    pub(crate) local: BTreeSet<Ipv4Net>,
    /// Sources that may arrive on the overlay.
    pub(crate) remote: BTreeSet<Ipv4Net>,
    /// The source address of everything else that leaves through the overlay.
    pub(crate) external_ip: Ipv4Addr,
    /// Mapped addresses and what they stand for; the one that stands for any node among them.
    pub(crate) mapped: BTreeMap<Ipv4Addr, Ipv4Addr>,
    /// Mapped addresses behind which a node's address is the source.
    pub(crate) masqueraded: BTreeSet<Ipv4Addr>,
}

impl Filter {
    /// Returns the objects of the table.
    pub(crate) fn ruleset(&self) -> Ruleset {
        let lead = i32::from(self.priority_lead);
        let mut ruleset = Ruleset::default();
        for counter in [INNER_STRANGERS, OUTER_STRANGERS, REVERSE_PATH, TRANSLATED] {
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
                count(INNER_STRANGERS),
                drop_it()
            ]),
            json!([
                arrives,
                is_not(ip("saddr"), "@remote"),
                count(INNER_STRANGERS),
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

    /// Drops an overlay frame from (`saddr`) or to (`daddr`) a gateway that a pod has forged.
    fn reverse_path(&self, end: &str) -> Value {
        let mut rule = vec![
            self.is_overlay(),
            is(ip(end), "@gateways"),
            is(meta("iifkind"), "@pod-kinds"),
            is_not(meta("iifname"), "@underlay"),
        ];
        let trusted = self.trusted.iter();
        rule.extend(trusted.map(|it| is_not(meta("iifname"), it.as_str())));
        let route = json!({"fib": {"result": "oif", "flags": ["saddr", "iif"]}});
        rule.extend([is(route, false), count(REVERSE_PATH), drop_it()]);

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
                count(OUTER_STRANGERS),
                drop_it()
            ]),
            json!([
                self.is_overlay(),
                is_not(ip("saddr"), "@gateways"),
                count(OUTER_STRANGERS),
                drop_it()
            ]),
        ];
        rules.extend(self.translated("saddr"));

        rules
    }

    fn forward(&self) -> Vec<Value> {
        Vec::from_iter(self.translated("daddr"))
    }

    /// Drops an overlay frame from or to a gateway that `raw` has not exempted from connection
    /// tracking, hence had another destination before.
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
        let leaves = is(meta("oifname"), self.device.as_str());
        let unchanged = json!({"snat": {"family": "ip", "addr": ip("saddr")}});
        let external_ip = self.external_ip.to_string();
        let of_masqueraded = json!({"ct": {"key": "ip daddr", "dir": "original"}});

        let mut rules = vec![
            json!([leaves, is(ip("saddr"), "@local"), unchanged]),
            json!([
                leaves,
                is(meta("nfproto"), "ipv4"),
                {"snat": {"family": "ip", "addr": external_ip}}
            ]),
            json!([
                arrives_on(&self.device),
                is(of_masqueraded, "@masqueraded"),
                {"masquerade": null}
            ]),
            // A pod sees the remote pod's address, whatever the CNI hides of others.
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
