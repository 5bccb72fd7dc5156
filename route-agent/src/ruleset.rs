//! The objects of our nft table in the JSON that `nft` reads and lists, in one canonical form.
//!
//! What is listed is compared with what was asked for: handles and counted packets
//! are left out, elements are sorted. The format: libnftables-json(5).

use ipnet::Ipv4Net;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Family of our table.
pub(crate) const FAMILY: &str = "inet";
/// Name of our table: its mark.
pub(crate) const TABLE: &str = "liqo";

/// The kinds of objects in the order in which they can be made.
const KINDS: [&str; 5] = ["counter", "set", "map", "chain", "rule"];

/// The objects of the table, each as `{kind: {..}}`.
///
/// Invariant: ordered by kind and name, rules by chain and place in the chain; elements sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ruleset(Vec<Value>);

impl Ruleset {
    /// Adds a named counter.
    pub(crate) fn counter(&mut self, name: &str) {
        self.push("counter", json!({"name": name}));
    }

    /// Adds a set of addresses.
    pub(crate) fn addresses(&mut self, name: &str, elements: impl Iterator<Item = Ipv4Addr>) {
        let elements = elements.map(|address| json!(address.to_string())).collect();
        self.collection("set", json!({"name": name, "type": "ipv4_addr"}), elements);
    }

    /// Adds a set of prefixes, none of which contains another.
    pub(crate) fn prefixes(&mut self, name: &str, elements: impl Iterator<Item = Ipv4Net>) {
        let elements = elements.map(prefix).collect();
        let set = json!({"name": name, "type": "ipv4_addr", "flags": ["interval"]});
        self.collection("set", set, elements);
    }

    /// Adds a set of names of interfaces, or of their kinds.
    pub(crate) fn names(&mut self, name: &str, elements: impl Iterator<Item = String>) {
        let elements = elements.map(Value::String).collect();
        self.collection("set", json!({"name": name, "type": "ifname"}), elements);
    }

    /// Adds a map from address to address.
    pub(crate) fn translations(&mut self, name: &str, elements: &BTreeMap<Ipv4Addr, Ipv4Addr>) {
        let elements = elements
            .iter()
            .map(|(from, to)| json!([from.to_string(), to.to_string()]))
            .collect();
        let map = json!({"name": name, "type": "ipv4_addr", "map": "ipv4_addr"});
        self.collection("map", map, elements);
    }

    /// Adds a base chain with its rules.
    pub(crate) fn chain(
        &mut self,
        name: &str,
        kind: &str,
        hook: &str,
        priority: i32,
        rules: Vec<Value>,
    ) {
        self.push(
            "chain",
            json!({"name": name, "type": kind, "hook": hook, "prio": priority, "policy": "accept"}),
        );
        for expr in rules {
            self.push("rule", json!({"chain": name, "expr": expr}));
        }
    }

    /// Returns the ruleset that `nft -j list table` printed.
    ///
    /// Objects of an unknown form are kept: they make the ruleset differ from any of ours.
    pub(crate) fn listed(listing: &Value) -> Self {
        let mut ruleset = Self::default();
        let objects = listing["nftables"].as_array().into_iter().flatten();
        for (kind, object) in objects.filter_map(Value::as_object).flatten() {
            if !matches!(kind.as_str(), "metainfo" | "table") {
                ruleset.push(kind, object.clone());
            }
        }

        ruleset
    }

    /// Returns the transaction that turns the table into this ruleset.
    ///
    /// Counters go on counting, unless `observed` has objects that must be deleted
    /// or made anew: then the whole table is. Either way packets meet the old
    /// rules or the new ones, never none.
    pub(crate) fn transaction(&self, observed: Option<&Self>) -> Value {
        let table = json!({"family": FAMILY, "name": TABLE});
        let mut commands = vec![json!({"add": {"table": table}})];
        if observed.is_some_and(|observed| !observed.fits_in(self)) {
            commands.push(json!({"delete": {"table": table}}));
            commands.push(json!({"add": {"table": table}}));
        }
        for (kind, body) in self.0.iter().filter_map(Value::as_object).flatten() {
            commands.push(json!({"add": {kind: without_elements(body)}}));
            if matches!(kind.as_str(), "chain" | "set" | "map") {
                commands.push(json!({"flush": {kind: name(body)}}));
            }
            if let Some(elements) = body.get("elem") {
                let mut element = name(body);
                element["elem"] = elements.clone();
                commands.push(json!({"add": {"element": element}}));
            }
        }

        json!({"nftables": commands})
    }

    /// Whether every object but rules and elements exists alike in `other`.
    fn fits_in(&self, other: &Self) -> bool {
        let skeleton = other.skeleton();
        self.skeleton()
            .iter()
            .all(|object| skeleton.contains(object))
    }

    fn skeleton(&self) -> Vec<Value> {
        let objects = self.0.iter().filter_map(Value::as_object).flatten();
        objects
            .filter(|(kind, _)| *kind != "rule")
            .map(|(kind, body)| json!({kind: without_elements(body)}))
            .collect()
    }

    fn collection(&mut self, kind: &str, mut body: Value, elements: Vec<Value>) {
        if !elements.is_empty() {
            body["elem"] = Value::Array(elements);
        }
        self.push(kind, body);
    }

    fn push(&mut self, kind: &str, mut body: Value) {
        if let Some(body) = body.as_object_mut() {
            for unstable in ["handle", "index", "packets", "bytes"] {
                body.remove(unstable);
            }
            body.insert("family".into(), FAMILY.into());
            body.insert("table".into(), TABLE.into());
            if let Some(elements) = body.get_mut("elem").and_then(Value::as_array_mut) {
                elements.sort_by_cached_key(Value::to_string);
            }
        }
        self.0.push(json!({kind: body}));
        // Stable, so that the rules of a chain keep their order.
        self.0.sort_by_cached_key(rank);
    }
}

fn without_elements(body: &Value) -> Value {
    let mut body = body.clone();
    if let Some(body) = body.as_object_mut() {
        body.remove("elem");
    }

    body
}

/// What identifies a named object.
fn name(body: &Value) -> Value {
    json!({"family": FAMILY, "table": TABLE, "name": body["name"]})
}

fn prefix(net: Ipv4Net) -> Value {
    match net.prefix_len() {
        32 => json!(net.addr().to_string()),
        len => json!({"prefix": {"addr": net.network().to_string(), "len": len}}),
    }
}

fn rank(object: &Value) -> (usize, String) {
    let (kind, body) = object
        .as_object()
        .and_then(|object| object.iter().next())
        .expect("an object is pushed under its kind");
    let place = KINDS
        .iter()
        .position(|known| known == kind)
        .unwrap_or(KINDS.len());
    let owner = if kind == "rule" { "chain" } else { "name" };

    (place, body[owner].as_str().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests;
