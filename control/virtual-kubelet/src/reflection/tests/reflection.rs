//! The controller with two clusters.

use super::shop::{addresses, map, put_node, shop, slice};
use super::side::{Sides, milan, remote, settings};
use control_api::{IP, ShadowEndpointSlice};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use std::time::Duration;

/// Name of the root CA of `rome` at the provider.
const ROOT_CA: &str = "kube-root-ca.crt.rome";

#[test]
fn each_object_is_created_once_with_the_markers() {
    for seed in 0..20 {
        let mut sides = shop(seed);
        sides.pass();

        let mut writes = sides.writes();
        writes.sort();
        assert_eq!(
            writes,
            [
                "create ConfigMap/kube-root-ca.crt.rome",
                "create ConfigMap/web",
                "create Secret/web",
                "create Service/web",
                "create ShadowEndpointSlice/web-1",
            ]
        );
        let map = sides.remote::<ConfigMap>("web");
        assert_eq!(map["data"], json!({"color": "blue"}));
        assert_eq!(
            map["metadata"]["labels"],
            json!({"offloading.liqo.io/origin": "rome", "offloading.liqo.io/destination": "milan"})
        );
        assert_eq!(
            sides.remote::<Service>("web")["spec"]["clusterIP"],
            Value::Null
        );
        assert_eq!(addresses(&mut sides), ["10.244.0.5"]);
        assert_eq!(sides.events(), [""; 0], "each Event would be a request");
        sides.assert_settled();
    }
}

#[test]
fn a_change_causes_one_write_and_a_deletion_removes_the_reflected_object() {
    let mut sides = shop(1);
    sides.pass();
    let before = sides.writes().len();

    sides.put_in_shop::<ConfigMap>("web", map("red"));
    sides.put_in_shop::<Secret>("web", json!({"data": {"key": "AAI="}, "type": "Opaque"}));
    sides.pass();
    assert_eq!(sides.remote::<ConfigMap>("web")["data"]["color"], "red");
    assert_eq!(sides.remote::<Secret>("web")["data"]["key"], "AAI=");
    let mut writes = sides.writes().split_off(before);
    writes.sort();
    assert_eq!(writes, ["apply ConfigMap/web", "apply Secret/web"]);

    sides.remove::<ConfigMap>("web");
    sides.remove::<Secret>("web");
    sides.remove::<Service>("web");
    sides.remove::<EndpointSlice>("web-1");
    sides.pass();
    let kinds = [
        sides.remote::<ConfigMap>("web"),
        sides.remote::<Secret>("web"),
        sides.remote::<Service>("web"),
        sides.remote::<ShadowEndpointSlice>("web-1"),
    ];
    assert_eq!(kinds, [Value::Null, Value::Null, Value::Null, Value::Null]);
    assert!(
        sides
            .remote::<ConfigMap>("kube-root-ca.crt.rome")
            .is_object()
    );
    sides.assert_settled();
}

/// The simulation assigns no fields of a Create to the Apply after it, so the second change removes the label.
#[test]
fn a_label_that_is_removed_here_is_removed_at_the_provider() {
    let mut sides = shop(1);
    sides.pass();
    let labelled =
        |labels: Value| json!({"metadata": {"labels": labels}, "data": {"color": "blue"}});
    sides.put_in_shop::<ConfigMap>("web", labelled(json!({"app": "web"})));
    sides.pass();
    assert_eq!(
        sides.remote::<ConfigMap>("web")["metadata"]["labels"]["app"],
        "web"
    );

    sides.put_in_shop::<ConfigMap>("web", labelled(json!({})));
    sides.pass();

    assert_eq!(
        sides.remote::<ConfigMap>("web")["metadata"]["labels"]["app"],
        Value::Null
    );
    sides.assert_settled();
}

#[test]
fn a_changed_or_deleted_reflected_object_is_restored() {
    let mut sides = shop(1);
    sides.pass();
    let mut changed = sides.remote::<ConfigMap>("web");
    changed["data"]["color"] = "green".into();
    sides.put_remote::<ConfigMap>("web", changed);
    let key = remote("web");
    sides.simulation.cluster(&milan()).remove::<Secret>(&key);
    sides.pass();

    assert_eq!(sides.remote::<ConfigMap>("web")["data"]["color"], "blue");
    assert!(sides.remote::<Secret>("web").is_object());
    sides.assert_settled();
}

#[test]
fn an_object_of_the_provider_is_never_changed() {
    let mut sides = shop(1);
    let foreign = json!({"data": {"color": "theirs"}});
    sides.put_remote::<ConfigMap>("web", foreign);
    let tokens = json!({"metadata": {"labels": {
        "offloading.liqo.io/origin": "rome", "offloading.liqo.io/destination": "milan",
        "offloading.liqo.io/nodename": "milan"}}});
    sides.put_remote::<Secret>("web", tokens);
    let (map, secret) = (
        sides.remote::<ConfigMap>("web"),
        sides.remote::<Secret>("web"),
    );
    sides.simulation.pass(Duration::from_secs(300));

    assert_eq!(sides.remote::<ConfigMap>("web"), map);
    assert_eq!(sides.remote::<Secret>("web"), secret);
    let events = sides.events();
    for object in ["ConfigMap", "Secret"] {
        let expected = format!(
            "FailedReflection {object}/web: {object} shop-rome/web of cluster milan already exists and is not a \
             reflected object: rename or delete one of them"
        );
        assert!(events.contains(&expected), "{events:?}");
    }
    // It is read at intervals, not written.
    let creates = sides
        .writes()
        .into_iter()
        .filter(|it| it == "create ConfigMap/web")
        .count();
    assert_eq!(creates, 1);

    sides.remove::<ConfigMap>("web");
    sides.remove::<Secret>("web");
    sides.pass();
    assert_eq!(sides.remote::<ConfigMap>("web"), map);
    assert_eq!(sides.remote::<Secret>("web"), secret);
}

#[test]
fn an_object_is_created_when_its_name_is_free_again() {
    let mut sides = shop(1);
    sides.put_remote::<ConfigMap>("web", json!({"data": {"color": "theirs"}}));
    sides.pass();
    sides
        .simulation
        .cluster(&milan())
        .remove::<ConfigMap>(&remote("web"));

    sides.simulation.pass(Duration::from_secs(130));

    assert_eq!(sides.remote::<ConfigMap>("web")["data"]["color"], "blue");
    sides.assert_stable();
}

#[test]
fn reflected_objects_are_removed_when_the_namespace_is_no_longer_offloaded() {
    let mut sides = shop(1);
    sides.put_remote::<ConfigMap>("theirs", json!({}));
    sides.pass();
    assert_eq!(sides.writes().len(), 5);

    // The provider has not removed its namespace yet.
    sides.put_map(&json!({}), &json!({"shop": "Accepted"}));
    sides.pass();

    let mut writes = sides.writes().split_off(5);
    writes.sort();
    assert_eq!(
        writes,
        [
            "delete ConfigMap/kube-root-ca.crt.rome",
            "delete ConfigMap/web",
            "delete Secret/web",
            "delete Service/web",
            "delete ShadowEndpointSlice/web-1",
        ]
    );
    assert!(sides.remote::<ConfigMap>("theirs").is_object());
    sides.put_map(&json!({}), &json!({}));
    sides.put_in_shop::<ConfigMap>("later", json!({}));
    sides.pass();
    assert_eq!(sides.writes().len(), 10);
    sides.assert_stable();

    sides.put_map(&json!({"shop": "shop-rome"}), &json!({"shop": "Accepted"}));
    sides.pass();
    assert_eq!(sides.remote::<ConfigMap>("web")["data"]["color"], "blue");
    assert!(sides.remote::<ConfigMap>("later").is_object());
    sides.assert_stable();
}

#[test]
fn the_root_ca_of_a_withdrawn_namespace_is_removed_last() {
    for seed in 0..20 {
        let mut sides = shop(seed);
        sides.pass();
        let mut secret = sides.remote::<Secret>("web");
        secret["metadata"]["finalizers"] = json!(["example.com/wait"]);
        sides.put_remote::<Secret>("web", secret.clone());
        sides.put_map(&json!({}), &json!({"shop": "Accepted"}));
        sides.pass();
        assert_eq!(sides.remote::<ConfigMap>("web"), Value::Null);
        assert!(
            sides.remote::<ConfigMap>(ROOT_CA).is_object(),
            "seed {seed}"
        );

        secret["metadata"]["finalizers"] = json!([]);
        sides.put_remote::<Secret>("web", secret);
        sides.pass();
        assert_eq!(sides.remote::<Secret>("web"), Value::Null);
        assert_eq!(
            sides.remote::<ConfigMap>(ROOT_CA),
            Value::Null,
            "seed {seed}"
        );
        sides.assert_stable();
    }
}

#[test]
fn a_new_leader_removes_all_objects_of_a_withdrawn_namespace() {
    for seed in 0..20 {
        let mut sides = shop(seed);
        sides.pass();
        sides.simulation.crash(0);
        sides.put_map(&json!({}), &json!({"shop": "Terminating"}));
        sides.pass();

        let writes = sides.writes().split_off(5);
        assert_eq!(writes.len(), 5, "seed {seed}: {writes:?}");
        assert_eq!(
            writes.last().unwrap(),
            "delete ConfigMap/kube-root-ca.crt.rome"
        );
        assert_eq!(sides.remote::<ConfigMap>(ROOT_CA), Value::Null);
    }
}

#[test]
fn objects_stay_while_the_provider_has_no_namespace() {
    let mut sides = shop(1);
    sides.pass();
    sides.put_map(
        &json!({"shop": "shop-rome"}),
        &json!({"shop": "CreationLoopBackOff"}),
    );
    sides.pass();
    sides.put_in_shop::<ConfigMap>("web", map("red"));
    sides.pass();
    assert_eq!(sides.remote::<ConfigMap>("web")["data"]["color"], "blue");
    assert_eq!(sides.writes().len(), 5);

    sides.put_map(&json!({"shop": "shop-rome"}), &json!({"shop": "Accepted"}));
    sides.pass();
    assert_eq!(sides.remote::<ConfigMap>("web")["data"]["color"], "red");
    sides.assert_settled();
}

#[test]
fn a_status_that_names_another_namespace_has_no_effect() {
    let mut sides = Sides::new(1, settings());
    sides.put_in_shop::<ConfigMap>("web", map("blue"));
    for (local, remote) in [
        ("shop", "kube-system"),
        ("default", "shop-rome"),
        ("..", "../.."),
    ] {
        let status =
            json!({"currentMapping": {local: {"phase": "Accepted", "remoteNamespace": remote}}});
        sides.put::<control_api::NamespaceMap>(json!({
            "metadata": {"name": "milan", "namespace": super::side::TENANT},
            "spec": {"desiredMapping": {"shop": "shop-rome"}},
            "status": status,
        }));
        sides.pass();
        assert_eq!(sides.writes(), Vec::<String>::new(), "{remote}");
    }
}

#[test]
fn a_changed_ip_object_or_node_changes_the_endpoints() {
    let mut sides = shop(1);
    put_node(&mut sides, "turin", Some("turin"));
    sides.put_in_shop::<EndpointSlice>(
        "web-1",
        slice(&[("10.71.0.5", "turin"), ("10.244.0.6", "milan")]),
    );
    sides.pass();
    assert_eq!(addresses(&mut sides), Vec::<String>::new());

    let ip = |address: Option<&str>| {
        json!({"apiVersion": "ipam.liqo.io/v1alpha1", "kind": "IP",
        "spec": {"ip": "10.71.0.5"}, "status": {"ip": address}})
    };
    sides.put_in_shop::<IP>("turin", ip(Some("10.70.0.4")));
    sides.pass();
    assert_eq!(addresses(&mut sides), ["10.70.0.4"]);
    // The provider's pods are local there.
    put_node(&mut sides, "turin", Some("milan"));
    sides.pass();
    assert_eq!(addresses(&mut sides), Vec::<String>::new());
    put_node(&mut sides, "milan", None);
    sides.pass();
    assert_eq!(addresses(&mut sides), ["10.244.0.6"]);
    sides.assert_settled();
}

/// A webhook of the provider may change an object, or a controller of it may add a label.
#[test]
fn a_field_that_the_provider_adds_causes_no_further_write() {
    let mut sides = shop(1);
    let add = |object: &mut Value| object["metadata"]["labels"]["team"] = "theirs".into();
    sides
        .simulation
        .cluster(&milan())
        .set_defaults::<ConfigMap>(add);
    sides.pass();
    assert_eq!(sides.writes().len(), 5);
    assert_eq!(
        sides.remote::<ConfigMap>("web")["metadata"]["labels"]["team"],
        "theirs"
    );

    sides.put_in_shop::<ConfigMap>("web", map("red"));
    sides.simulation.pass(Duration::from_secs(120));
    assert_eq!(sides.remote::<ConfigMap>("web")["data"]["color"], "red");
    assert_eq!(sides.writes().len(), 6);
}

#[test]
fn a_refusal_is_published_and_the_write_repeated() {
    let mut sides = shop(1);
    sides
        .simulation
        .cluster(&milan())
        .refuse_right(Some(("create", "secrets")), false);
    sides.pass();
    let is_refusal = |it: &String| {
        it.starts_with("FailedReflection Secret/web: cluster milan refuses the reflected object: ")
    };
    assert!(
        sides.events().iter().any(is_refusal),
        "{:?}",
        sides.events()
    );
    assert!(sides.remote::<ConfigMap>("web").is_object());

    sides.simulation.cluster(&milan()).refuse_right(None, false);
    sides.simulation.pass(Duration::from_secs(70));
    assert!(sides.remote::<Secret>("web").is_object());
    let recovered = "SuccessfulReflection Secret/web: reflected to cluster milan";
    assert!(
        sides.events().iter().any(|it| it == recovered),
        "{:?}",
        sides.events()
    );
}

#[test]
fn an_object_that_takes_the_name_of_a_reflected_one_is_not_changed() {
    for seed in 0..100 {
        let mut sides = shop(seed);
        sides.pass();
        sides
            .simulation
            .cluster(&milan())
            .remove::<ConfigMap>(&remote("web"));
        sides.put_remote::<ConfigMap>("web", json!({"data": {"color": "theirs"}}));
        let foreign = sides.remote::<ConfigMap>("web");
        sides.put_in_shop::<ConfigMap>("web", map("red"));
        sides.pass();

        assert_eq!(sides.remote::<ConfigMap>("web"), foreign, "seed {seed}");
    }
}

#[test]
fn a_refused_change_is_repeated_and_deletes_nothing() {
    let mut sides = shop(1);
    sides.pass();
    sides
        .simulation
        .cluster(&milan())
        .refuse_right(Some(("apply", "secrets")), false);
    let uid = sides.remote::<Secret>("web")["metadata"]["uid"].clone();
    sides.put_in_shop::<Secret>("web", json!({"data": {"key": "AAI="}, "type": "Opaque"}));
    sides.pass();

    assert_eq!(sides.remote::<Secret>("web")["metadata"]["uid"], uid);
    sides.simulation.cluster(&milan()).refuse_right(None, false);
    sides.simulation.pass(Duration::from_secs(70));
    assert_eq!(sides.remote::<Secret>("web")["data"]["key"], "AAI=");
}

#[test]
fn fields_that_the_api_server_of_the_provider_sets_are_no_difference() {
    let mut sides = shop(1);
    let set = |service: &mut Value| {
        let spec = &mut service["spec"];
        spec["clusterIP"] = "10.96.1.1".into();
        spec["clusterIPs"] = json!(["10.96.1.1"]);
        spec["ipFamilies"] = json!(["IPv4"]);
        spec["ports"][0]["nodePort"] = 30_000.into();
        service["status"] = json!({"loadBalancer": {}});
    };
    sides
        .simulation
        .cluster(&milan())
        .set_defaults::<Service>(set);
    sides.pass();
    // Another process remembers no write.
    sides.simulation.crash(0);
    sides.pass();

    assert_eq!(sides.writes().len(), 5, "{:?}", sides.writes());
    sides.assert_settled();
}

#[test]
fn another_process_writes_nothing_while_it_lists_unchanged_objects() {
    for seed in 0..50 {
        let mut sides = shop(seed);
        sides.pass();
        sides.simulation.crash(0);
        sides.pass();

        assert_eq!(sides.writes().len(), 5, "seed {seed}: {:?}", sides.writes());
    }
}
