//! The objects of the agent's nft table as JSON (libnftables-json(5)), in a canonical form.
//!
//! The canonical form has no handles and no packet counts, and its elements are sorted. A ruleset
//! that `nft` lists thus equals the ruleset that was set.

use ipnet::Ipv4Net;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Family of the agent's table.
pub(crate) const FAMILY: &str = "inet";
/// Name of the agent's table. The agent owns any table with this name and family.
pub(crate) const TABLE: &str = "liqo";

/// Name of the set of remote prefixes.
pub(crate) const REMOTE: &str = "remote";
/// Name of the map from mapped to original addresses.
pub(crate) const MAPPED: &str = "mapped";
/// Name of the set of destinations whose packets are masqueraded.
pub(crate) const MASQUERADED: &str = "masqueraded";

/// The kinds of nft objects in the order of their creation. Rules refer to all other kinds.
const KINDS: [&str; 5] = ["counter", "set", "map", "chain", "rule"];

/// The objects of the table, each as a JSON object `{kind: {..}}`.
///
/// Invariant: objects are ordered by kind and name, and rules by chain and position in the chain.
/// The elements of sets and maps are sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ruleset(Vec<Value>);

/// Changes of the elements of sets and maps, by the set's name and the element's text: the element, and
/// whether it is added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ElementChanges(BTreeMap<(&'static str, String), (Value, bool)>);

/// A mapped address, and the address to which it is translated.
pub(crate) type Translation = (Ipv4Addr, Ipv4Addr);

/// An element of a set or map.
pub(crate) trait Element {
    /// Returns the element in the canonical form.
    fn json(self) -> Value;
}

impl Element for Ipv4Addr {
    fn json(self) -> Value {
        json!(self.to_string())
    }
}

impl Element for Ipv4Net {
    fn json(self) -> Value {
        match self.prefix_len() {
            32 => self.addr().json(),
            len => json!({"prefix": {"addr": self.network().to_string(), "len": len}}),
        }
    }
}

impl Element for (Ipv4Addr, Ipv4Addr) {
    fn json(self) -> Value {
        json!([self.0.json(), self.1.json()])
    }
}

impl ElementChanges {
    /// Removes an element, unless it was added.
    pub(crate) fn remove(&mut self, set: &'static str, element: Option<impl Element>) {
        self.change(set, element, false);
    }

    /// Adds an element, unless it was removed.
    pub(crate) fn add(&mut self, set: &'static str, element: Option<impl Element>) {
        self.change(set, element, true);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the transaction that makes the changes. It removes elements before it adds others.
    pub(crate) fn transaction(&self) -> Value {
        let mut commands: BTreeMap<(bool, &str), Vec<&Value>> = BTreeMap::new();
        for ((set, _), (element, is_added)) in &self.0 {
            let elements = commands.entry((*is_added, *set)).or_default();
            elements.push(element);
        }
        let commands = commands.into_iter().map(|((is_added, set), elements)| {
            let verb = if is_added { "add" } else { "delete" };
            json!({verb: {"element": {"family": FAMILY, "table": TABLE, "name": set, "elem": elements}}})
        });

        json!({"nftables": commands.collect::<Vec<_>>()})
    }

    /// Returns the added or the removed translations of [`MAPPED`].
    pub(crate) fn mapped(&self, is_added: bool) -> BTreeSet<Translation> {
        let changes = self.0.iter().filter(|((set, _), _)| *set == MAPPED);
        let changes = changes.filter(|(_, (_, added))| *added == is_added);

        changes
            .filter_map(|(_, (element, _))| translation(element))
            .collect()
    }

    fn change(&mut self, set: &'static str, element: Option<impl Element>, is_added: bool) {
        let Some(element) = element.map(Element::json) else {
            return;
        };
        let key = (set, element.to_string());
        match self.0.get(&key) {
            Some((_, was_added)) if *was_added != is_added => drop(self.0.remove(&key)),
            _ => drop(self.0.insert(key, (element, is_added))),
        }
    }
}

impl Ruleset {
    /// Returns whether the set or map contains the element.
    pub(crate) fn has(&self, set: &str, element: impl Element) -> bool {
        let elements = self.set(set).and_then(|it| it["elem"].as_array());

        elements.is_some_and(|it| position(it, &element.json()).is_ok())
    }

    /// Changes the elements of sets and maps.
    pub(crate) fn change(&mut self, changes: &ElementChanges) {
        for ((set, _), (element, is_added)) in &changes.0 {
            let Some(body) = self.set_mut(set) else {
                continue;
            };
            let elements = body.entry("elem").or_insert_with(|| json!([]));
            let Some(elements) = elements.as_array_mut() else {
                continue;
            };
            match (position(elements, element), is_added) {
                (Err(at), true) => elements.insert(at, element.clone()),
                (Ok(at), false) => drop(elements.remove(at)),
                (Ok(_), true) | (Err(_), false) => {}
            }
            if elements.is_empty() {
                body.remove("elem");
            }
        }
    }

    /// Returns the translations of [`MAPPED`].
    pub(crate) fn mapped(&self) -> BTreeSet<Translation> {
        let elements = self.set(MAPPED).and_then(|it| it["elem"].as_array());
        let elements = elements.into_iter().flatten();

        elements.filter_map(translation).collect()
    }

    fn set(&self, name: &str) -> Option<&Value> {
        let bodies = self.0.iter().filter_map(Value::as_object).flatten();
        let mut sets = bodies.filter(|(kind, _)| matches!(kind.as_str(), "set" | "map"));

        sets.find(|(_, body)| body["name"] == name)
            .map(|(_, body)| body)
    }

    fn set_mut(&mut self, name: &str) -> Option<&mut Map<String, Value>> {
        let bodies = self.0.iter_mut().filter_map(Value::as_object_mut).flatten();
        let mut sets = bodies.filter(|(kind, _)| matches!(kind.as_str(), "set" | "map"));
        let (_, body) = sets.find(|(_, body)| body["name"] == name)?;

        body.as_object_mut()
    }

    pub(crate) fn counter(&mut self, name: &str) {
        self.push("counter", json!({"name": name}));
    }

    /// Adds a set of IPv4 addresses.
    pub(crate) fn addresses(&mut self, name: &str, elements: impl Iterator<Item = Ipv4Addr>) {
        let elements = elements.map(Element::json).collect();
        self.collection("set", json!({"name": name, "type": "ipv4_addr"}), elements);
    }

    /// Adds a set of prefixes. No prefix may contain another prefix of the set.
    pub(crate) fn prefixes(&mut self, name: &str, elements: impl Iterator<Item = Ipv4Net>) {
        let elements = elements.map(Element::json).collect();
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
            .map(|(from, to)| (*from, *to).json())
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

fn translation(element: &Value) -> Option<Translation> {
    let address = |at: usize| element.get(at)?.as_str()?.parse().ok();

    address(0).zip(address(1))
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

/// Returns the position of an element in sorted elements, or the one to insert it at.
fn position(elements: &[Value], element: &Value) -> Result<usize, usize> {
    elements.binary_search_by_key(&element.to_string(), Value::to_string)
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
