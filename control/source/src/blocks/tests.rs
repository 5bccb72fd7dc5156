use super::*;
use serde_json::{Value, from_value, json};

#[test]
fn what_a_cni_says_takes_the_place_of_what_the_node_says() {
    let mut objects = objects();

    assign(
        &mut objects,
        [
            blocks("rome-1", &["10.244.0.64/26", "10.244.9.0/26"]),
            blocks("rome-2", &["10.244.0.0/26"]),
        ]
        .iter(),
    );

    assert_eq!(
        pods(&objects, "rome-1"),
        ["10.244.0.64/26", "10.244.9.0/26"]
    );
    assert_eq!(pods(&objects, "rome-2"), ["10.244.0.0/26"]);
    assert_eq!(pods(&objects, "rome-3"), [""; 0], "its own mean nothing");
}

#[test]
fn what_cannot_be_is_left_out_and_the_node_is_not() {
    let mut objects = objects();

    assign(
        &mut objects,
        [
            blocks("rome-1", &["192.0.2.0/26", "10.244.0.64/26"]),
            blocks("rome-2", &["10.244.0.0/24"]),
            blocks("nobody", &["10.244.8.0/24"]),
        ]
        .iter(),
    );

    assert_eq!(pods(&objects, "rome-1"), [""; 0], "all it has overlaps");
    assert_eq!(pods(&objects, "rome-2"), ["10.244.0.0/24"]);
}

#[test]
fn without_such_a_cni_nodes_keep_what_they_say() {
    let mut objects = objects();

    assign(&mut objects, [blocks("rome-1", &["192.0.2.0/26"])].iter());

    assert_eq!(pods(&objects, "rome-1"), ["10.244.1.0/24"]);
}

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

fn objects() -> Objects {
    let mut objects = Objects::default();
    let network: Network = from_value(json!({
        "metadata": {"name": "pod-cidr", "labels": {"ipam.liqo.io/network-type": "pod-cidr"}},
        "spec": {"cidr": "10.244.0.0/16"},
    }))
    .unwrap();
    objects.extend([Object::from(network)]);
    objects.extend((1..=3).map(|number| {
        let node: Node = from_value(json!({
            "metadata": {"name": format!("rome-{number}")},
            "spec": {"podCIDR": format!("10.244.{number}.0/24")},
        }))
        .unwrap();
        Object::from(node)
    }));

    objects
}

/// Returns the prefixes of a node, as the fabric reads them.
fn pods(objects: &Objects, name: &str) -> Vec<String> {
    let mut nodes = objects.of::<Node>();
    let node = nodes.find(|node| node.metadata.name.as_deref() == Some(name));
    let spec = node.unwrap().spec.clone().unwrap();

    spec.pod_cidrs
        .unwrap_or_else(|| spec.pod_cidr.into_iter().collect())
}
