//! Objects with arbitrary invalid fields neither stop the manager nor affect another peer.

use super::*;
use proptest::prelude::*;

/// Values of any type, as users and programs put them into fields of another type.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        prop::sample::select(vec![
            "",
            "milan",
            "rome",
            "10.0.0.0/8",
            "0.0.0.0/0",
            "255.255.255.255/32",
            "fd00::/8",
            "10.70.0.0",
            "ExternalName",
            "AAAA",
            "true",
            "2026-11-21T08:15:18Z",
            "../..",
            "x.y/z",
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(field(), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn field() -> impl Strategy<Value = String> {
    let known = vec![
        "spec",
        "status",
        "cidr",
        "pod",
        "external",
        "remote",
        "local",
        "ip",
        "endpoint",
        "port",
        "ports",
        "nodePort",
        "addresses",
        "serviceType",
        "secretRef",
        "name",
        "publicKey",
        "privateKey",
        "data",
        "conditions",
        "type",
        "value",
        "preAllocated",
        "networkRef",
        "namespace",
        "serviceTemplate",
        "clusterID",
        "podCIDRs",
        "gatewayRef",
        "loadBalancer",
        "labels",
        "liqo.io/remote-cluster-id",
        "clusterIPs",
        "podIP",
        "ownerReferences",
    ];
    prop::sample::select(known).prop_map(str::to_owned)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn invalid_fields_affect_no_other_peer(
        edits in prop::collection::vec((any::<prop::sample::Index>(), field(), anything(), any::<bool>()), 1..8),
    ) {
        let mut rome = rome();
        with_milan(&mut rome);
        rome.put(Kind::GatewayServer, server("milan", &json!({"serviceType": "NodePort"})));
        rome.put(Kind::PublicKey, public_key("milan", 9));
        rome.settle();

        for (index, field, value, is_deep) in edits {
            let names: Vec<_> = rome.objects.keys().cloned().collect();
            let (kind, key) = names[index.index(names.len())].clone();
            let place = if is_deep { json!({"spec": {(field.clone()): value}, "status": {(field): value}}) } else { json!({(field): value}) };
            if place["metadata"].is_null() && place.get("name").is_none() {
                rome.edit(kind, &key, place);
            }
        }
        rome.settle();
        rome.restart();
        rome.settle();

        // A new peer is served if the cluster itself is in order.
        rome.put(Kind::GatewayClient, client("naples"));
        rome.settle();
        let naples = rome.get(Kind::GatewayClient, &Key::new("liqo-tenant-naples", "naples"));
        let reported = condition(naples, "Ready");
        prop_assert!(reported.contains("WaitingForPublicKey") || reported.contains("OwnClusterID") || reported.contains("Conflict"), "{}", reported);
    }
}
