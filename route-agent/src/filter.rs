//! The nft table of one node: what it is to do, as a value, and the objects that do it.
//!
//! | chain | hook, priority | does |
//! |---|---|---|
//! | `raw` | prerouting, raw | drops inner packets whose source does not belong on the overlay; exempts overlay frames from connection tracking, so that no other table's NAT changes their outer source |
//! | `raw-output` | output, raw | the same exemption for the frames this node sends |
//! | `mapped` | prerouting, dstnat - 1 | turns mapped addresses into those they stand for |
//! | `input` | input, filter - 1 | drops overlay frames of strangers |
//! | `source` | postrouting, srcnat - 1 | binds the source address before a CNI's masquerade can |
//!
//! `accept` in `source` would not keep a later chain from masquerading; a binding
//! does, also one that changes nothing (`snat to ip saddr`).

use crate::mutant;
use crate::ruleset::Ruleset;
use ipnet::Ipv4Net;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Counter of overlay frames from addresses that are no gateway replica's.
pub(crate) const OUTER_STRANGERS: &str = "outer-source";
/// Counter of packets on the overlay device whose source is no remote cluster's.
pub(crate) const INNER_STRANGERS: &str = "inner-source";

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
        for counter in [INNER_STRANGERS, OUTER_STRANGERS] {
            ruleset.counter(counter);
        }
        ruleset.addresses("gateways", self.gateways.iter().copied());
        ruleset.prefixes("local", self.local.iter().copied());
        ruleset.prefixes("remote", self.remote.iter().copied());
        ruleset.addresses("masqueraded", self.masqueraded.iter().copied());
        ruleset.translations("mapped", &self.mapped);

        ruleset.chain("raw", "filter", "prerouting", RAW, self.raw());
        ruleset.chain("raw-output", "filter", "output", RAW, self.raw_output());
        ruleset.chain("mapped", "nat", "prerouting", DSTNAT - lead, self.mapped());
        ruleset.chain("input", "filter", "input", FILTER - lead, self.input());
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
        for end in ["saddr", "daddr"] {
            rules.push(json!([
                self.is_overlay(),
                is(ip(end), "@gateways"),
                {"notrack": null}
            ]));
        }

        rules
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

        vec![
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
        ]
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
