use super::*;
use serde_json::{Value, from_value, json};

#[test]
fn calicos_blocks_and_ciliums_nodes_are_read() {
    let object = |object: Value| from_value::<DynamicObject>(object).unwrap();
    let block =
        |spec: Value| calico_block(&object(json!({"metadata": {"name": "x"}, "spec": spec})));
    let cilium = object(json!({
        "metadata": {"name": "rome-1"},
        "spec": {"ipam": {"podCIDRs": ["10.244.1.0/24", "fd00::/64"]}},
    }));

    assert_eq!(
        block(json!({"cidr": "10.244.0.64/26", "affinity": "host:rome-1"})),
        Some(blocks("rome-1", &["10.244.0.64/26"]))
    );
    for wrong in [
        json!({"cidr": "10.244.0.64/26"}),
        json!({"cidr": "10.244.0.64/26", "affinity": "virtual:load-balancer"}),
        json!({"cidr": "10.244.0.64/26", "affinity": "host:rome-1", "deleted": true}),
        json!({"cidr": "fd00::/122", "affinity": "host:rome-1"}),
    ] {
        assert_eq!(block(wrong.clone()), None, "{wrong}");
    }
    assert_eq!(
        cilium_node(&cilium),
        Some(blocks("rome-1", &["10.244.1.0/24"]))
    );
}

fn blocks(node: &str, cidrs: &[&str]) -> Blocks {
    Blocks {
        node: node.to_owned(),
        cidrs: cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect(),
    }
}
