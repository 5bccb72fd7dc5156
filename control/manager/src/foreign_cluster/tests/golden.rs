//! The ForeignClusters of an upstream installation, from its other objects.

use super::*;
use std::collections::BTreeMap;

/// Upstream's gateways are Deployments in the tenant namespace, of which the objects contain no pods. The API server of
/// the peer is not probed here.
#[test]
fn the_foreign_clusters_of_upstream_are_reproduced() {
    let cases: BTreeMap<String, Value> = serde_json::from_str(include_str!("golden.json")).unwrap();
    assert_eq!(cases.len(), 4);
    for (name, case) in cases {
        let mut expected = case["foreignCluster"].clone();
        let (own, peer) = if name.ends_with("rome") {
            ("rome", "milan")
        } else {
            ("milan", "rome")
        };
        let mut cluster = Rome::empty(3, true);
        cluster.put(config_map(own));
        cluster.put(gateway_pod("a", true));
        cluster.put(in_namespace(role_binding(), &format!("liqo-tenant-{peer}")));
        // With the generation, and with upstream's finalizer.
        let mut bare = expected.clone();
        bare.as_object_mut().unwrap().remove("status");
        cluster.put(bare.clone());
        for object in case["objects"].as_array().unwrap() {
            cluster.put(object.clone());
        }
        cluster.settle();

        let mut found = cluster.get(&bare).unwrap();
        for object in [&mut found, &mut expected] {
            let status = object["status"].as_object_mut().unwrap();
            status.remove("conditions");
            for module in ["networking", "authentication", "offloading"] {
                let conditions = status["modules"][module]["conditions"].as_array_mut();
                for condition in conditions.into_iter().flatten() {
                    assert!(condition["lastTransitionTime"].is_string());
                    condition["lastTransitionTime"] = json!("");
                }
            }
        }
        assert_eq!(found["status"], expected["status"], "{name}");
        assert_eq!(found["spec"], expected["spec"]);
        assert_eq!(found["metadata"]["labels"], expected["metadata"]["labels"]);
        let finalizers = found["metadata"]["finalizers"].as_array();
        assert!(finalizers.is_none_or(Vec::is_empty), "{finalizers:?}");
    }
}
