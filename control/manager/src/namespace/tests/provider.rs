//! Namespaces of consumers.

use super::{Side, key};
use control_api::{NamespaceMap, TenantPolicy, labels};
use control_runtime::Key;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use k8s_openapi::api::rbac::v1::RoleBinding;
use serde_json::{Value, json};

/// Returns `milan`, whose consumer `rome` has offloaded `shop`.
fn milan(seed: u64) -> Side {
    let mut milan = Side::new("milan", seed);
    milan.put_peer("rome");
    milan.put_replica("rome", "milan", &json!({"shop": "shop-rome"}));
    milan
}

fn map() -> Key {
    key("rome", "milan")
}

/// Returns the phase of each entry, by the consumer's namespace.
fn phases(side: &mut Side, map: &Key) -> Value {
    let status = side.object::<NamespaceMap>(map)["status"]["currentMapping"].clone();
    let entries = status.as_object().cloned().unwrap_or_default();
    let phases = entries
        .into_iter()
        .map(|(name, it)| (name, it["phase"].clone()));
    phases.collect::<serde_json::Map<_, _>>().into()
}

fn policy(side: &mut Side, name: &str, spec: &Value) {
    side.put::<TenantPolicy>(json!({
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "TenantPolicy",
        "metadata": {"name": name, "namespace": "liqo"},
        "spec": spec,
    }));
    side.pass();
}

fn has_warning(side: &Side, text: &str) -> bool {
    side.events()
        .iter()
        .any(|it| it.starts_with("NamespaceRefused: ") && it.contains(text))
}

#[test]
fn a_namespace_is_created_with_the_rights_of_the_consumer() {
    let mut milan = milan(1);

    let metadata = milan.namespace("shop-rome")["metadata"].clone();
    assert_eq!(metadata["labels"]["liqo.io/remote-cluster-id"], "rome");
    assert_eq!(
        metadata["labels"]["pod-security.kubernetes.io/enforce"],
        "baseline"
    );
    assert_eq!(metadata["annotations"]["liqo.io/original-name"], "shop");
    let binding = milan.object::<RoleBinding>(&Key::new("shop-rome", "liqo-tenant-rome"));
    assert_eq!(binding["roleRef"]["name"], "liqo-virtual-kubelet-remote");
    assert_eq!(binding["subjects"][0]["kind"], "Group");
    assert_eq!(binding["subjects"][0]["name"], "rome");
    assert_eq!(binding["subjects"].as_array().unwrap().len(), 1);
    let extra = Key::new("shop-rome", "liqo-virtual-kubelet-remote-extra");
    let extra = milan.object::<RoleBinding>(&extra);
    assert_eq!(
        extra["roleRef"]["name"],
        "liqo-virtual-kubelet-remote-extra"
    );
    assert_eq!(extra["subjects"], binding["subjects"]);
    assert_eq!(phases(&mut milan, &map()), json!({"shop": "Accepted"}));
    assert_eq!(milan.requests::<NamespaceMap>(), 1, "one status");
    milan.assert_settled();
}

#[test]
fn the_status_is_accepted_only_with_the_bindings() {
    let mut milan = Side::new("milan", 1);
    milan.put_peer("rome");
    milan
        .simulation
        .local()
        .refuse_right(Some(("create", "rolebindings")), false);
    milan.put_replica("rome", "milan", &json!({"shop": "shop-rome"}));
    assert!(milan.namespace("shop-rome").is_object());
    assert_eq!(phases(&mut milan, &map()), json!({}));

    milan.simulation.local().refuse_right(None, false);
    milan.simulation.pass(std::time::Duration::from_secs(60));
    assert_eq!(phases(&mut milan, &map()), json!({"shop": "Accepted"}));
}

#[test]
fn a_withdrawn_namespace_is_reported_until_it_is_gone() {
    let mut milan = milan(2);
    milan.edit::<Namespace>(&Key::cluster("shop-rome"), |it| {
        it["metadata"]["finalizers"] = json!(["example.com/slow"]);
    });
    milan.edit::<NamespaceMap>(&map(), |it| it["spec"] = json!({}));
    assert_eq!(phases(&mut milan, &map()), json!({"shop": "Terminating"}));

    milan.edit::<Namespace>(&Key::cluster("shop-rome"), |it| {
        it["metadata"]["finalizers"] = json!([]);
    });
    assert_eq!(milan.namespace("shop-rome"), Value::Null);
    assert_eq!(phases(&mut milan, &map()), json!({}));
    milan.assert_stable();
}

#[test]
fn namespaces_end_with_the_namespace_map() {
    let mut milan = milan(3);
    milan.remove::<NamespaceMap>(&map());

    assert_eq!(milan.namespace("shop-rome"), Value::Null);
    milan.assert_stable();
}

#[test]
fn namespaces_end_with_a_map_that_was_deleted_while_no_manager_ran() {
    let mut milan = milan(3);
    for replica in [0, 1] {
        milan.simulation.crash(replica);
    }
    milan.simulation.local().remove::<NamespaceMap>(&map());
    milan.pass();

    assert_eq!(milan.namespace("shop-rome"), Value::Null);
}

#[test]
fn a_deleted_namespace_is_created_again() {
    let mut milan = milan(4);
    milan.remove::<Namespace>(&Key::cluster("shop-rome"));

    assert_eq!(
        milan.namespace("shop-rome")["metadata"]["annotations"]["liqo.io/original-name"],
        "shop"
    );
    assert_eq!(phases(&mut milan, &map()), json!({"shop": "Accepted"}));
}

#[test]
fn a_deleted_namespace_is_not_taken_by_another_entry() {
    let mut milan = milan(4);
    milan.edit::<NamespaceMap>(&map(), |it| {
        it["spec"]["desiredMapping"]["books"] = json!("shop-rome");
    });
    milan.remove::<Namespace>(&Key::cluster("shop-rome"));

    let phases = phases(&mut milan, &map());
    assert_eq!(
        phases,
        json!({"books": "CreationLoopBackOff", "shop": "Accepted"})
    );
}

#[test]
fn a_namespace_of_another_owner_is_never_touched() {
    let mut milan = Side::new("milan", 5);
    milan.put_peer("rome");
    milan.put_peer("naples");
    milan.put_namespace("bank", &json!({"team": "bank"}));
    milan.put_replica("naples", "milan", &json!({"books": "books"}));
    milan.put_replica("rome", "milan", &json!({"a": "bank", "b": "books"}));

    let refused = json!({"a": "CreationLoopBackOff", "b": "CreationLoopBackOff"});
    assert_eq!(phases(&mut milan, &map()), refused);
    assert_eq!(
        milan.namespace("bank")["metadata"]["labels"],
        json!({"team": "bank"})
    );
    let binding = Key::new("books", "liqo-tenant-rome");
    assert_eq!(milan.object::<RoleBinding>(&binding), Value::Null);
    assert!(
        has_warning(&milan, "namespace `bank` exists"),
        "{:?}",
        milan.events()
    );

    milan.remove::<NamespaceMap>(&map());
    assert!(milan.namespace("bank").is_object());
    assert!(milan.namespace("books").is_object());

    milan.remove::<NamespaceMap>(&key("naples", "milan"));
    milan.put_replica("rome", "milan", &json!({"b": "books"}));
    assert_eq!(phases(&mut milan, &map()), json!({"b": "Accepted"}));
}

#[test]
fn a_name_that_becomes_free_is_taken() {
    let mut milan = Side::new("milan", 6);
    milan.put_peer("rome");
    milan.put_namespace("bank", &json!({}));
    milan.put_replica("rome", "milan", &json!({"a": "bank"}));
    milan.remove::<Namespace>(&Key::cluster("bank"));

    assert_eq!(phases(&mut milan, &map()), json!({"a": "Accepted"}));
}

#[test]
fn two_namespaces_of_a_consumer_do_not_share_one() {
    let mut milan = milan(7);
    milan.edit::<NamespaceMap>(&map(), |it| {
        it["spec"]["desiredMapping"] = json!({"a": "shop-rome", "shop": "shop-rome"});
    });

    let phases = phases(&mut milan, &map());
    assert_eq!(
        phases,
        json!({"a": "CreationLoopBackOff", "shop": "Accepted"})
    );
    assert!(has_warning(&milan, "requested for another namespace"));
    milan.assert_stable();
}

#[test]
fn a_namespace_is_not_handed_to_another_namespace_of_the_consumer() {
    let mut milan = milan(8);
    let uid = milan.namespace("shop-rome")["metadata"]["uid"].clone();
    milan.edit::<NamespaceMap>(&map(), |it| {
        it["spec"]["desiredMapping"] = json!({"books": "shop-rome"});
    });

    let metadata = milan.namespace("shop-rome")["metadata"].clone();
    assert_eq!(metadata["annotations"]["liqo.io/original-name"], "books");
    assert_ne!(
        metadata["uid"], uid,
        "its objects are those of the other namespace"
    );
    assert_eq!(phases(&mut milan, &map()), json!({"books": "Accepted"}));
}

#[test]
fn reserved_names_are_refused() {
    let mut milan = Side::new("milan", 9);
    milan.put_peer("rome");
    milan.put_replica(
        "rome",
        "milan",
        &json!({"a": "kube-attack", "b": "liqo", "c": "default", "d": "../x"}),
    );

    let refused = "CreationLoopBackOff";
    assert_eq!(
        phases(&mut milan, &map()),
        json!({"a": refused, "b": refused, "c": refused, "d": refused})
    );
    assert_eq!(milan.requests::<Namespace>(), 0);
}

#[test]
fn a_policy_limits_names_and_number() {
    let mut milan = Side::new("milan", 10);
    milan.put_peer("rome");
    policy(
        &mut milan,
        "rome",
        &json!({"podSecurity": "restricted", "namespaces": {"max": 2, "deniedNames": ["bank*"]}}),
    );
    milan.put_replica("rome", "milan", &json!({"b": "b", "c": "c", "x": "bank-1"}));
    milan.edit::<NamespaceMap>(&map(), |it| it["spec"]["desiredMapping"]["a"] = json!("a"));
    assert_eq!(
        phases(&mut milan, &map()),
        json!({"a": "CreationLoopBackOff", "b": "Accepted", "c": "Accepted", "x": "CreationLoopBackOff"}),
        "what exists precedes"
    );
    assert!(
        has_warning(&milan, "namespaces.max"),
        "{:?}",
        milan.events()
    );
    let labels = milan.namespace("b")["metadata"]["labels"].clone();
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");

    policy(&mut milan, "rome", &json!({"podSecurity": "privileged"}));
    assert_eq!(phases(&mut milan, &map())["a"], "Accepted");
    let labels = milan.namespace("b")["metadata"]["labels"].clone();
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "privileged");
}

/// Admission policies read it.
#[test]
fn a_namespace_names_the_policy_that_applies() {
    let mut milan = milan(15);
    let label = |milan: &mut Side| {
        milan.namespace("shop-rome")["metadata"]["labels"][labels::TENANT_POLICY].clone()
    };
    assert_eq!(label(&mut milan), Value::Null);

    policy(&mut milan, "default", &json!({}));
    assert_eq!(label(&mut milan), "default");
    policy(&mut milan, "rome", &json!({}));
    assert_eq!(label(&mut milan), "rome");
    milan.remove::<Namespace>(&Key::cluster("shop-rome"));
    assert_eq!(label(&mut milan), "rome", "of a new namespace");
    for name in ["rome", "default"] {
        milan.remove::<TenantPolicy>(&Key::new("liqo", name));
    }
    assert_eq!(label(&mut milan), Value::Null);
    milan.assert_stable();
}

#[test]
fn a_policy_limits_the_number_of_objects() {
    let mut milan = milan(14);
    let quota = Key::new("shop-rome", "liqo-tenant");
    assert_eq!(milan.object::<ResourceQuota>(&quota), Value::Null);

    policy(&mut milan, "default", &json!({"objects": {"services": 5}}));
    let hard = milan.object::<ResourceQuota>(&quota)["spec"]["hard"].clone();
    assert_eq!(hard, json!({"count/services": "5"}));
    milan.edit::<ResourceQuota>(&quota, |it| it["spec"]["hard"] = json!({"count/pods": "1"}));
    let hard = milan.object::<ResourceQuota>(&quota)["spec"]["hard"].clone();
    assert_eq!(hard, json!({"count/services": "5"}), "it is repaired");

    policy(&mut milan, "rome", &json!({}));
    assert_eq!(milan.object::<ResourceQuota>(&quota), Value::Null);
    milan.assert_stable();
}

#[test]
fn a_map_of_another_origin_has_no_effect() {
    let mut milan = milan(11);
    milan.edit::<NamespaceMap>(&map(), |it| {
        it["metadata"]["labels"]["liqo.io/originID"] = json!("naples");
    });
    assert_eq!(milan.namespace("shop-rome"), Value::Null);
}

#[test]
fn a_binding_that_was_changed_is_repaired() {
    let mut milan = milan(12);
    let binding = Key::new("shop-rome", "liqo-tenant-rome");
    milan.edit::<RoleBinding>(&binding, |it| {
        it["subjects"][0]["name"] = json!("system:authenticated");
    });
    assert_eq!(
        milan.object::<RoleBinding>(&binding)["subjects"][0]["name"],
        "rome"
    );

    milan.edit::<RoleBinding>(&binding, |it| {
        it["roleRef"]["name"] = json!("cluster-admin")
    });
    let role = milan.object::<RoleBinding>(&binding)["roleRef"]["name"].clone();
    assert_eq!(role, "liqo-virtual-kubelet-remote");
}

#[test]
fn namespaces_converge_despite_crashes_and_partitions() {
    for seed in 0..20 {
        let mut milan = milan(seed);
        milan
            .simulation
            .local()
            .remove::<Namespace>(&Key::cluster("shop-rome"));
        let mut object = milan.object::<NamespaceMap>(&map());
        object["spec"]["desiredMapping"] = json!({"books": "books-rome", "shop": "shop-rome"});
        milan.put::<NamespaceMap>(object);
        milan.pass_with_faults();

        let expected = json!({"books": "Accepted", "shop": "Accepted"});
        assert_eq!(phases(&mut milan, &map()), expected, "seed {seed}");
        milan.assert_stable();
    }
}
