//! When a ForeignCluster exists, and of which objects it consists.

use super::*;

/// Time in which the manager carries out a few requests.
const MOMENT: Duration = Duration::from_millis(50);

/// One object of each kind whose existence keeps the ForeignCluster.
fn each() -> Vec<Value> {
    vec![
        configuration(),
        connection("Connected"),
        server(),
        client(),
        public_key(),
        tenant(),
        identity(),
        slice_identity(),
        secret(),
        slice("Accepted", "Any"),
        renew(),
        namespace_map(),
        quota(),
        virtual_node("milan", json!({})),
        node("milan", true),
    ]
}

#[test]
fn each_object_of_a_peer_keeps_the_foreign_cluster() {
    for object in each() {
        let mut rome = Rome::new();
        rome.put(object.clone());
        rome.settle();
        let summary = rome
            .summary()
            .unwrap_or_else(|| panic!("none for {object}"));
        assert_eq!(summary["spec"], json!({"clusterID": "milan"}));
        let labels = json!({"liqo.io/remote-cluster-id": "milan"});
        assert_eq!(summary["metadata"]["labels"], labels);
        assert_eq!(summary["status"]["tenantNamespace"]["local"], TENANT);

        rome.remove(&object);
        rome.settle();
        assert_eq!(rome.summary(), None, "{object}");
    }
}

#[test]
fn the_foreign_cluster_is_gone_after_the_last_object_only() {
    let all = each();
    for first in 0..all.len() {
        let mut rome = Rome::new();
        all.iter().for_each(|object| rome.put(object.clone()));
        rome.settle();
        for number in 0..all.len() {
            assert!(rome.summary().is_some(), "from {first}, after {number}");
            rome.remove(&all[(first + number) % all.len()]);
            rome.settle();
        }
        assert_eq!(rome.summary(), None, "from {first}");
    }
}

/// `liqoctl uninstall` reads the ForeignCluster directly after the command that has ended the last peering.
#[test]
fn the_end_of_a_module_is_written_at_once() {
    let mut rome = Rome::new();
    for object in [configuration(), tenant()] {
        rome.put(object);
    }
    rome.settle();
    let modules = |rome: &mut Rome| rome.summary().unwrap()["status"]["modules"].clone();
    assert_eq!(modules(&mut rome)["networking"]["enabled"], true);

    rome.remove(&configuration());
    rome.run(MOMENT);
    assert_eq!(modules(&mut rome)["networking"]["enabled"], false);
    rome.remove(&tenant());
    rome.run(MOMENT);
    assert_eq!(rome.summary(), None);
}

#[test]
fn an_object_whose_deletion_waits_keeps_the_foreign_cluster() {
    for mut object in each() {
        object["metadata"]["finalizers"] = json!(["example.com/wait"]);
        let mut rome = Rome::new();
        rome.put(object.clone());
        rome.settle();
        rome.remove(&object);
        rome.settle();
        assert!(rome.summary().is_some(), "{object}");

        rome.edit(&object, json!({"metadata": {"finalizers": null}}));
        rome.settle();
        assert_eq!(rome.summary(), None, "{object}");
    }
}

/// Traffic stops when the deletion is requested.
#[test]
fn networking_ends_with_the_request_to_delete() {
    let mut rome = Rome::new();
    let mut object = configuration();
    object["metadata"]["finalizers"] = json!(["example.com/wait"]);
    rome.put(object.clone());
    rome.remove(&object);
    rome.settle();

    assert_eq!(rome.lines(), ["Unknown"]);
}

#[test]
fn a_deleted_foreign_cluster_is_created_again() {
    let mut rome = Rome::new();
    rome.put(ready_tenant());
    rome.settle();
    let before = rome.lines();
    let summary = rome.summary().unwrap();
    rome.remove(&summary);
    rome.settle();

    assert_eq!(rome.lines(), before);
}

#[test]
fn a_foreign_cluster_without_a_peer_is_deleted() {
    let mut rome = Rome::new();
    let labels = json!({"liqo.io/remote-cluster-id": "milan"});
    rome.put(json!({
        "kind": "ForeignCluster",
        "metadata": {"name": "milan", "labels": labels},
        "spec": {"clusterID": "milan"},
    }));
    rome.settle();

    assert_eq!(rome.summary(), None);
}

#[test]
fn objects_in_other_namespaces_have_no_effect() {
    let mut rome = Rome::new();
    for object in each().into_iter().filter(|it| it["kind"] != "Node") {
        rome.put(in_namespace(object, "developers"));
    }
    rome.settle();

    assert_eq!(rome.summary(), None);
}

#[test]
fn objects_have_an_effect_while_their_namespace_is_labelled() {
    let mut rome = Rome::new();
    rome.put(configuration());
    rome.put(ready_tenant());
    rome.settle();
    assert!(rome.summary().is_some());

    rome.edit(
        &namespace(),
        json!({"metadata": {"labels": {"liqo.io/tenant-namespace": "false"}}}),
    );
    rome.settle();
    assert_eq!(rome.summary(), None);

    rome.put(namespace());
    rome.settle();
    assert!(rome.summary().is_some());
}

#[test]
fn a_namespace_that_the_settings_name_holds_objects_of_networking() {
    let mut rome = Rome::new();
    rome.remove(&namespace());
    rome.put(in_namespace(server(), "named"));
    rome.settle();

    let summary = rome.summary().unwrap();
    assert_eq!(
        summary["status"]["tenantNamespace"],
        json!({"local": "named"})
    );
    assert_eq!(rome.lines()[0], "Unknown");
}

/// Authentication reads no Tenant and no Identity there.
#[test]
fn a_namespace_that_the_settings_name_holds_no_other_objects() {
    let mut rome = Rome::new();
    rome.remove(&namespace());
    rome.put(in_namespace(public_key(), "named"));
    rome.put(in_namespace(role_binding(), "named"));
    for object in [
        ready_tenant(),
        ready_identity(),
        secret(),
        virtual_node("milan", json!({})),
        quota(),
    ] {
        rome.put(in_namespace(object, "named"));
    }
    rome.settle();

    assert_eq!(rome.lines(), ["Unknown"]);
}

#[test]
fn an_object_without_label_is_found_by_its_spec() {
    let mut rome = Rome::new();
    for mut object in [
        ready_identity(),
        virtual_node("milan", json!({})),
        ready_tenant(),
    ] {
        object["metadata"]["labels"] = json!({});
        rome.put(object);
    }
    rome.put(secret());
    rome.settle();

    let lines = rome.lines();
    assert_eq!(lines[0], "ConsumerAndProvider");
    assert_eq!(lines.len(), 5, "{lines:?}");
}

#[test]
fn workers_of_this_cluster_are_no_virtual_nodes() {
    let mut rome = Rome::new();
    let mut worker = node("rome-1", true);
    worker["metadata"]["labels"] = json!({"liqo.io/remote-cluster-id": "milan"});
    rome.put(worker);
    rome.settle();

    assert_eq!(rome.summary(), None);
}

#[test]
fn this_cluster_and_invalid_ids_have_no_foreign_cluster() {
    let mut rome = Rome::new();
    for id in ["rome", "Not.Valid", ""] {
        let name = format!("liqo-tenant-{}", id.to_lowercase());
        let labels = json!({"liqo.io/remote-cluster-id": id, "liqo.io/tenant-namespace": "true"});
        rome.put(json!({"kind": "Namespace", "metadata": {"name": name, "labels": labels}}));
        let mut object = in_namespace(configuration(), &name);
        object["metadata"]["labels"] = json!({"liqo.io/remote-cluster-id": id});
        rome.put(object);
    }
    rome.settle();
    assert!(rome.log().is_empty());

    // The ID belongs to another cluster now.
    rome.put(config_map("turin"));
    rome.settle();
    let own = json!({"kind": "ForeignCluster", "metadata": {"name": "rome"}});
    assert!(rome.get(&own).is_some());
    rome.put(config_map("rome"));
    rome.settle();
    assert_eq!(rome.get(&own), None);
}

#[test]
fn addresses_and_namespaces_are_those_of_the_identity() {
    let mut rome = Rome::new();
    rome.put(secret());
    rome.settle();
    let status = rome.summary().unwrap()["status"].take();
    let namespaces = json!({"local": TENANT, "remote": "liqo-tenant-rome"});
    assert_eq!(status["tenantNamespace"], namespaces);
    assert!(status["apiServerUrl"].is_null());

    rome.put(identity());
    rome.settle();
    let status = rome.summary().unwrap()["status"].take();
    assert_eq!(status["tenantNamespace"], namespaces);
    assert_eq!(status["apiServerUrl"], "https://192.0.2.2:6443");
    assert_eq!(status["foreignProxyUrl"], "http://10.71.0.9:8118");
    assert!(status["conditions"].is_null());

    rome.remove(&secret());
    rome.remove(&identity());
    rome.put(ready_tenant());
    rome.settle();
    let status = rome.summary().unwrap()["status"].take();
    assert_eq!(status["tenantNamespace"], json!({"local": TENANT}));
    assert!(status["apiServerUrl"].is_null() && status["foreignProxyUrl"].is_null());
}

#[test]
fn a_change_of_one_peer_affects_no_other_peer() {
    let mut rome = Rome::new();
    for number in 0..20 {
        let (id, name) = (format!("peer-{number}"), format!("tenant-{number}"));
        let labels = json!({"liqo.io/remote-cluster-id": id, "liqo.io/tenant-namespace": "true"});
        rome.put(json!({"kind": "Namespace", "metadata": {"name": name, "labels": labels}}));
        let mut object = in_namespace(configuration(), &name);
        object["metadata"]["labels"] = json!({"liqo.io/remote-cluster-id": id});
        rome.put(object);
    }
    rome.simulation.pass(SOON);
    rome.settle();
    let before = rome.log().len();

    rome.put(configuration());
    rome.put(ready_tenant());
    rome.settle();

    let requests = &rome.log()[before..];
    assert!(
        requests
            .iter()
            .all(|it| it.request.object().unwrap().key.name == "milan")
    );
    assert!(requests.len() <= 3, "{requests:?}");
}
