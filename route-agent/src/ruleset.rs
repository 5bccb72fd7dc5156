//! The objects of the agent's nft table as JSON (libnftables-json(5)), in a canonical form.
//!
//! The canonical form has no handles and no packet counts, and its elements are sorted. A ruleset
//! that `nft` lists thus equals the ruleset that was set.

use ipnet::Ipv4Net;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Family of the agent's table.
pub(crate) const FAMILY: &str = "inet";
/// Name of the agent's table. The agent owns any table with this name and family.
pub(crate) const TABLE: &str = "liqo";

/// The kinds of nft objects in the order of their creation. Rules refer to all other kinds.
const KINDS: [&str; 5] = ["counter", "set", "map", "chain", "rule"];

/// The objects of the table, each as a JSON object `{kind: {..}}`.
///
/// Invariant: objects are ordered by kind and name, and rules by chain and position in the chain.
/// The elements of sets and maps are sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ruleset(Vec<Value>);

impl Ruleset {
    pub(crate) fn counter(&mut self, name: &str) {
        self.push("counter", json!({"name": name}));
    }

    /// Adds a set of IPv4 addresses.
    pub(crate) fn addresses(&mut self, name: &str, elements: impl Iterator<Item = Ipv4Addr>) {
        let elements = elements.map(|address| json!(address.to_string())).collect();
        self.collection("set", json!({"name": name, "type": "ipv4_addr"}), elements);
    }

    /// Adds a set of prefixes. No prefix may contain another prefix of the set.
    pub(crate) fn prefixes(&mut self, name: &str, elements: impl Iterator<Item = Ipv4Net>) {
        let elements = elements.map(prefix).collect();
        let set = json!({"name": name, "type": "ipv4_addr", "flags": ["interval"]});
        self.collection("set", set, elements);
    }

    /// Adds a set of interface names or of interface kinds. Both have the nft type `ifname`.
    pub(crate) fn names(&mut self, name: &str, elements: impl Iterator<Item = String>) {
        let elements = elements.map(Value::String).collect();
        self.collection("set", json!({"name": name, "type": "ifname"}), elements);
    }

    /// Adds a set of ports or protocol numbers. `kind` is the nft data type of the elements.
    pub(crate) fn numbers(
        &mut self,
        name: &str,
        kind: &str,
        elements: impl IntoIterator<Item = u16>,
    ) {
        let elements = elements.into_iter().map(Value::from).collect();
        self.collection("set", json!({"name": name, "type": kind}), elements);
    }

    /// Adds a map from IPv4 address to IPv4 address.
    pub(crate) fn translations(&mut self, name: &str, elements: &BTreeMap<Ipv4Addr, Ipv4Addr>) {
        let elements = elements
            .iter()
            .map(|(from, to)| json!([from.to_string(), to.to_string()]))
            .collect();
        let map = json!({"name": name, "type": "ipv4_addr", "map": "ipv4_addr"});
        self.collection("map", map, elements);
    }

    /// Adds a base chain with the verdict `accept` as policy, and its rules. A rule is a list of
    /// expressions.
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

    /// Converts the output of `nft -j list table`.
    ///
    /// Unknown objects stay in the ruleset, so that it differs from every desired ruleset.
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

    /// Returns the transaction that replaces the content of the table by this ruleset.
    ///
    /// If `observed` has objects that must be deleted or recreated, the transaction recreates the
    /// whole table, and the counters restart at zero. Otherwise counters keep their values. In both
    /// cases, either all old or all new rules apply to a packet.
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

    /// Returns whether `other` has all counters, sets, maps and chains of `self`, ignoring elements
    /// and rules.
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
        // The sort is stable, so the rules of a chain keep their order.
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

/// Returns the fields that identify the named object `body`.
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
        .expect("`push` adds objects as {kind: body}");
    let place = KINDS
        .iter()
        .position(|known| known == kind)
        .unwrap_or(KINDS.len());
    let owner = if kind == "rule" { "chain" } else { "name" };

    (place, body[owner].as_str().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests;
