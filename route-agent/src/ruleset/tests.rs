use super::*;
use crate::testing::{ip, net};

#[test]
fn handles_counts_and_the_order_of_elements_are_ignored() {
    let listed = Ruleset::listed(&json!({"nftables": [
        {"metainfo": {"version": "1.0.6"}},
        {"table": {"family": "inet", "name": "liqo", "handle": 1}},
        {"set": {"family": "inet", "table": "liqo", "name": "local", "type": "ipv4_addr",
                 "handle": 3, "flags": ["interval"],
                 "elem": [{"prefix": {"addr": "10.1.0.0", "len": 16}}, "10.0.0.1"]}},
        {"counter": {"family": "inet", "table": "liqo", "name": "drops", "handle": 2,
                     "packets": 5, "bytes": 400}},
    ]}));

    let mut desired = Ruleset::default();
    desired.counter("drops");
    desired.prefixes("local", ["10.0.0.1/32", "10.1.0.0/16"].map(net).into_iter());
    assert_eq!(listed, desired);
}

#[test]
fn rules_keep_their_order() {
    let rules = |order: [&str; 2]| {
        let mut ruleset = Ruleset::default();
        let rules = order.map(|verdict| json!([{verdict: null}])).to_vec();
        ruleset.chain("input", "filter", "input", 0, rules);
        ruleset
    };

    assert_ne!(rules(["accept", "drop"]), rules(["drop", "accept"]));
}

#[test]
fn changed_elements_and_rules_keep_the_counters() {
    let transaction = ruleset("10.0.0.1").transaction(Some(&ruleset("10.0.0.2")));

    assert!(!transaction.to_string().contains("delete"), "{transaction}");
}

#[test]
fn a_foreign_object_in_our_table_causes_a_new_table() {
    let mut observed = ruleset("10.0.0.1");
    observed.chain("foreign", "filter", "input", 0, Vec::new());

    let transaction = ruleset("10.0.0.1").transaction(Some(&observed));

    assert_eq!(transaction["nftables"][1]["delete"]["table"]["name"], TABLE);
}

fn ruleset(address: &str) -> Ruleset {
    let mut ruleset = Ruleset::default();
    ruleset.counter("drops");
    ruleset.addresses("gateways", [ip(address)].into_iter());
    ruleset.translations("mapped", &BTreeMap::from([(ip(address), ip("10.9.9.9"))]));
    ruleset.chain("input", "filter", "input", 0, vec![json!([{"drop": null}])]);

    ruleset
}
