use super::*;
use crate::testing::{ip, net};

#[test]
fn handles_counts_and_the_order_of_elements_do_not_matter() {
    let listed = Ruleset::listed(&json!({"nftables": [
        {"metainfo": {"version": "1.0.6"}},
        {"table": {"family": "inet", "name": "liqo", "handle": 1}},
        {"set": {"family": "inet", "table": "liqo", "name": "local", "type": "ipv4_addr",
                 "handle": 3, "flags": ["interval"],
                 "elem": [{"prefix": {"addr": "10.1.0.0", "len": 16}}, "10.0.0.1"]}},
        {"counter": {"family": "inet", "table": "liqo", "name": "drops", "handle": 2,
                     "packets": 5, "bytes": 400}},
    ]}));

    let mut asked = Ruleset::default();
    asked.counter("drops");
    asked.prefixes("local", ["10.0.0.1/32", "10.1.0.0/16"].map(net).into_iter());
    assert_eq!(listed, asked);
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
fn changed_elements_and_rules_leave_the_counters_alone() {
    let transaction = ruleset("10.0.0.1").transaction(Some(&ruleset("10.0.0.2")));

    assert!(!transaction.to_string().contains("delete"), "{transaction}");
}

#[test]
fn foreign_objects_in_our_table_go_with_it() {
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
