//! Names of VirtualNodes, which are those of Nodes.

use super::consumer::{milan, prepared};
use super::golden;
use super::side::{MOMENT, key};
use control_api::{ResourceSlice, VirtualNode};
use control_runtime::Key;
use k8s_openapi::api::core::v1::{Namespace, Node};
use serde_json::{Value, json};

/// Returns a slice at the provider `naples` that is younger than that at `milan`, and has the same name.
fn of_naples() -> Value {
    let mut slice = golden::local();
    slice["metadata"]["namespace"] = json!("liqo-tenant-naples");
    slice["metadata"]["creationTimestamp"] = json!("2026-11-21T07:15:28Z");
    slice["spec"]["providerClusterID"] = json!("naples");
    slice["metadata"]["labels"]["liqo.io/remoteID"] = json!("naples");
    slice["metadata"]["labels"]["liqo.io/remote-cluster-id"] = json!("naples");

    slice
}

#[test]
fn a_virtual_node_that_is_not_of_the_slice_is_not_overwritten() {
    for namespace in ["liqo-tenant-milan", "liqo-tenant-naples"] {
        let mut rome = prepared(7);
        rome.put_peer("naples");
        let mut other = golden::virtual_node();
        other["metadata"]["namespace"] = json!(namespace);
        other["metadata"]["ownerReferences"] = json!([]);
        other["spec"]["resourceQuota"]["hard"] = json!({"cpu": "1"});
        rome.put::<VirtualNode>(other.clone());
        rome.put::<ResourceSlice>(golden::local());
        rome.run(MOMENT);

        let other_key = Key::new(namespace, "milan");
        assert_eq!(rome.spec::<VirtualNode>(&other_key), other["spec"]);
        assert_eq!(rome.count::<VirtualNode>(), 1, "{namespace}");
        let events = rome.events();
        assert_eq!(events.len(), 1, "{events:?}");
        let expected =
            format!("ResourceSlice milan VirtualNodeExists: VirtualNode {namespace}/milan exists");
        assert!(events[0].starts_with(&expected), "{events:?}");

        rome.remove::<VirtualNode>(&other_key);
        rome.run(MOMENT);
        assert_eq!(
            rome.spec::<VirtualNode>(&milan()),
            golden::virtual_node()["spec"]
        );
    }
}

#[test]
fn a_node_that_is_not_of_the_provider_prevents_a_virtual_node() {
    for labels in [
        json!({}),
        json!({"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "naples"}),
        json!({"liqo.io/remote-cluster-id": "milan"}),
    ] {
        let mut rome = prepared(7);
        rome.put_node("milan", &labels);
        rome.put::<ResourceSlice>(golden::local());
        rome.run(MOMENT);
        assert_eq!(rome.count::<VirtualNode>(), 0, "{labels}");
        let events = rome.events();
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(events[0].starts_with("ResourceSlice milan NodeExists: Node milan exists"));

        rome.remove::<Node>(&Key::cluster("milan"));
        rome.run(MOMENT);
        assert_eq!(rome.count::<VirtualNode>(), 1, "{labels}");

        rome.put_node("milan", &labels);
        rome.run(MOMENT);
        let events = rome.events();
        assert!(
            events
                .iter()
                .any(|it| it.starts_with("VirtualNode milan NodeExists")),
            "{events:?}"
        );
    }

    let mut rome = prepared(7);
    let own = json!({"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "milan"});
    rome.put_node("milan", &own);
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);
    assert_eq!(
        rome.count::<VirtualNode>(),
        1,
        "the Node is of the provider"
    );
}

#[test]
fn an_older_slice_takes_no_virtual_node_from_another_one() {
    let mut rome = prepared(7);
    rome.put_peer("naples");
    rome.put_identity("naples", "milan", true);
    rome.put::<ResourceSlice>(of_naples());
    rome.run(MOMENT);
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);

    assert_eq!(rome.count::<VirtualNode>(), 1);
    assert!(
        rome.object::<VirtualNode>(&key("naples", "milan"))
            .is_some()
    );
    let events = rome.events();
    assert!(
        events
            .iter()
            .any(|it| it.contains("VirtualNodeExists: VirtualNode liqo-tenant-naples/milan")),
        "{events:?}"
    );
}

#[test]
fn the_oldest_slice_of_a_name_gets_the_virtual_node() {
    for seed in 0..20 {
        let mut rome = prepared(seed);
        rome.put_peer("naples");
        rome.put_identity("naples", "milan", true);
        let younger = of_naples();
        rome.put::<ResourceSlice>(younger);
        rome.put::<ResourceSlice>(golden::local());
        rome.run_with_faults();
        assert_eq!(rome.count::<VirtualNode>(), 1, "seed {seed}");
        assert!(rome.object::<VirtualNode>(&milan()).is_some());
        let events = rome.events();
        assert!(
            events
                .iter()
                .any(|it| it.contains("DuplicateName") || it.contains("VirtualNodeExists"))
        );

        rome.remove::<ResourceSlice>(&milan());
        rome.run_with_faults();
        assert_eq!(rome.count::<VirtualNode>(), 1);
        assert!(
            rome.object::<VirtualNode>(&key("naples", "milan"))
                .is_some()
        );
    }
}

/// Users of other namespaces, and consumers of this cluster, cannot keep a slice from its VirtualNode.
#[test]
fn objects_of_others_claim_no_name() {
    let mut rome = prepared(7);
    rome.put_peer("naples");
    rome.put::<Namespace>(json!({"metadata": {"name": "other"}}));
    let mut slice = golden::local();
    slice["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    slice["metadata"]["namespace"] = json!("other");
    rome.put::<ResourceSlice>(slice.clone());
    slice["metadata"]["namespace"] = json!("liqo-tenant-naples");
    slice["metadata"]["labels"]["liqo.io/replicated"] = json!("true");
    rome.put::<ResourceSlice>(slice);
    let mut node = golden::virtual_node();
    node["metadata"]["namespace"] = json!("other");
    rome.put::<VirtualNode>(node);
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);

    assert!(rome.object::<VirtualNode>(&milan()).is_some());
}

#[test]
fn a_slice_gets_its_virtual_node_when_an_older_one_of_its_name_goes() {
    let mut rome = prepared(7);
    rome.put_peer("naples");
    rome.put_identity("naples", "milan", true);
    let mut older = golden::local();
    older["status"] = json!({});
    rome.put::<ResourceSlice>(older);
    rome.put::<ResourceSlice>(of_naples());
    rome.run(MOMENT);
    assert_eq!(rome.count::<VirtualNode>(), 0);
    let events = rome.events();
    let expected =
        "ResourceSlice milan DuplicateName: ResourceSlice liqo-tenant-milan/milan is older";
    assert!(
        events.len() == 1 && events[0].starts_with(expected),
        "{events:?}"
    );

    rome.remove::<ResourceSlice>(&milan());
    rome.run(MOMENT);
    assert!(
        rome.object::<VirtualNode>(&key("naples", "milan"))
            .is_some()
    );
}
