//! Tenants without key exchange, whose users give the consumer its rights.

use super::HOUR;
use super::side::{MOMENT, Side, tenant_namespace};
use super::slices::{condition, put, slice, slice_key, status};
use super::{Value, ed25519, json};
use control_api::{ResourceSlice, Tenant};
use control_runtime::Key;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use std::time::Duration;

/// Returns `milan` with such a Tenant of `rome`, and the RoleBinding of its user.
fn milan() -> Side {
    let mut milan = Side::new("milan");
    milan.put_peer("rome");
    put_binding(
        &mut milan,
        &tenant_namespace("rome"),
        "liqo-remote-controlplane",
    );
    milan.put_tenant("rome", &spec());
    milan.run(MOMENT);

    milan
}

fn spec() -> Value {
    json!({"clusterID": "rome", "authzPolicy": "TolerateNoHandshake"})
}

fn put_binding(milan: &mut Side, namespace: &str, role: &str) {
    milan.put::<RoleBinding>(json!({
        "metadata": {"name": "rome", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "rome"}],
    }));
}

#[test]
fn a_user_may_have_the_name_of_the_consumer_in_its_tenant_namespace_only() {
    let mut milan = milan();
    let accepted = json!({"tenantNamespace": "liqo-tenant-rome"});
    assert_eq!(milan.status("rome"), accepted);

    for (namespace, role) in [
        (tenant_namespace("rome"), "admin"),
        ("liqo".to_owned(), "liqo-remote-controlplane"),
    ] {
        let mut milan = Side::new("milan");
        milan.put_peer("rome");
        put_binding(&mut milan, &namespace, role);
        milan.put_tenant("rome", &spec());
        milan.run(MOMENT);
        assert_eq!(
            milan.status("rome")["authParams"],
            Value::Null,
            "{role} in {namespace}"
        );
        assert!(milan.reasons().contains(&"ClusterIDInUse"));
    }
}

/// The consumer keeps the rights that a user has given, so it would create its ResourceSlices again for ever.
#[test]
fn a_drained_consumer_with_rights_keeps_its_slices_and_they_are_denied() {
    let mut milan = milan();
    put(&mut milan, &slice("milan", &ed25519(1), &json!({})));
    let accepted = status(&mut milan, "milan");
    assert_eq!(condition(&accepted, "Resources").0, "Accepted");

    let mut drained = spec();
    drained["tenantCondition"] = json!("Drained");
    milan.put_tenant("rome", &drained);
    milan.run(MOMENT);
    let denied = status(&mut milan, "milan");
    assert_eq!(condition(&denied, "Resources").0, "Denied");
    assert_eq!(milan.count::<ClusterRoleBinding>(), 0);

    let mut active = spec();
    active["tenantCondition"] = json!("Active");
    milan.put_tenant("rome", &active);
    milan.run(MOMENT);
    let accepted = status(&mut milan, "milan");
    assert_eq!(condition(&accepted, "Resources").0, "Accepted");
}

#[test]
fn the_end_of_a_tenant_does_not_wait_for_slices_that_the_consumer_creates_again() {
    const SLICES: [&str; 3] = ["milan", "more", "most"];
    let mut milan = milan();
    for name in SLICES {
        put(&mut milan, &slice(name, &ed25519(1), &json!({})));
    }
    milan.delete_tenant("rome");
    // In each step of the simulation.
    for _ in 0..500 {
        milan.run(Duration::from_millis(1));
        for name in SLICES {
            if milan.object::<ResourceSlice>(&slice_key(name)).is_none() {
                milan.put::<ResourceSlice>(slice(name, &ed25519(1), &json!({})));
            }
        }
    }
    assert_eq!(milan.count::<Tenant>(), 0);
    assert_eq!(milan.count::<ClusterRoleBinding>(), 0);
    let binding = Key::new(tenant_namespace("rome"), "rome");
    assert!(milan.object::<RoleBinding>(&binding).is_some());

    // The deletion is not repeated for what it has created again.
    milan.put::<ResourceSlice>(slice("milan", &ed25519(1), &json!({})));
    milan.run(HOUR);
    assert!(milan.object::<ResourceSlice>(&slice_key("milan")).is_some());
}

#[test]
fn the_slices_of_a_consumer_end_with_its_tenant() {
    let mut milan = milan();
    put(&mut milan, &slice("milan", &ed25519(1), &json!({})));
    milan.delete_tenant("rome");
    milan.run(MOMENT);
    assert_eq!(milan.count::<ResourceSlice>(), 0);
    assert_eq!(milan.count::<Tenant>(), 0);
}

/// The consumer has a kubeconfig of another provider than its tenant namespace.
#[test]
fn a_slice_for_another_provider_is_denied() {
    let mut milan = milan();
    let mut other = slice("milan", &ed25519(1), &json!({}));
    other["spec"]["providerClusterID"] = json!("turin");
    put(&mut milan, &other);
    let denied = status(&mut milan, "milan");
    assert_eq!(condition(&denied, "Authentication").0, "Denied");
    assert!(denied["authParams"].is_null());
    assert!(milan.reasons().contains(&"OtherProvider"));
}
