//! Tenant namespaces: the objects of peers have an effect, and the manager has rights, only there.

use super::*;

const BINDING: &str = "liqo-controller-manager-tenant";

/// A cluster that serves the peer `milan`.
fn served() -> Cluster {
    let mut rome = rome();
    with_served_milan(&mut rome);
    assert!(ready(&rome).starts_with("True"), "{}", ready(&rome));
    rome.notices.clear();
    rome
}

fn ready(rome: &Cluster) -> String {
    condition(rome.get(Kind::GatewayServer, &key("milan")), "Ready")
}

/// Returns the object in another namespace, older than any other.
fn in_namespace(namespace: &str, mut object: Value) -> Value {
    object["metadata"]["namespace"] = json!(namespace);
    object
}

fn bindings(rome: &Cluster) -> Vec<String> {
    rome.names(Kind::RoleBinding)
}

fn tenant(name: &str, peer: &str) -> Value {
    let labels = json!({"liqo.io/remote-cluster-id": peer, "liqo.io/tenant-namespace": "true"});
    json!({"metadata": {"name": name, "labels": labels}})
}

#[test]
fn an_older_object_in_another_namespace_has_no_effect_and_is_reported() {
    let objects = [
        (
            Kind::Configuration,
            configuration("milan", &["10.9.0.0/16"], &[]),
        ),
        (
            Kind::GatewayServer,
            server("milan", &json!({"serviceType": "LoadBalancer"})),
        ),
        (Kind::GatewayClient, client("milan")),
        (Kind::PublicKey, public_key("milan", 7)),
    ];
    for (kind, object) in objects {
        let mut rome = rome();
        let name = rome.put(kind, in_namespace("developers", object));
        rome.settle();
        let early = rome
            .notices
            .iter()
            .any(|it| it.reason == "NotTenantNamespace" && it.key == name);
        assert!(early, "{kind}: {:?}", rome.notices);
        assert!(
            rome.names(Kind::Secret).is_empty() && rome.names(Kind::Service).is_empty(),
            "{kind}"
        );

        with_served_milan(&mut rome);

        assert!(ready(&rome).starts_with("True"), "{kind}: {}", ready(&rome));
        let configured = condition(
            rome.get(Kind::Configuration, &key("milan")),
            "NetworkCIDRsConfigured",
        );
        assert!(configured.starts_with("True"), "{kind}: {configured}");
        assert_eq!(
            rome.names(Kind::Connection),
            [format!("{TENANT}/gw-milan")],
            "{kind}"
        );
        let type_ = condition(
            rome.get(kind, &name),
            if kind == Kind::Configuration {
                "NetworkCIDRsConfigured"
            } else {
                "Ready"
            },
        );
        let is_reported = kind == Kind::PublicKey
            || type_.contains("False NotTenantNamespace") && type_.contains(TENANT);
        assert!(is_reported, "{kind}: {type_}");
    }
}

#[test]
fn a_peer_is_served_despite_an_older_copy_of_its_key_in_another_namespace() {
    let mut rome = rome();
    rome.put(
        Kind::PublicKey,
        in_namespace("developers", public_key("mallory", 9)),
    );
    rome.settle();

    with_served_milan(&mut rome);

    assert!(ready(&rome).starts_with("True"), "{}", ready(&rome));
}

#[test]
fn warnings_about_deleted_objects_are_dropped() {
    let mut rome = rome();
    for number in 0..3000 {
        let mut key = in_namespace("developers", public_key("mallory", 9));
        key["metadata"]["name"] = json!(format!("key-{number}"));
        let name = rome.put(Kind::PublicKey, key);
        rome.settle();
        rome.delete(Kind::PublicKey, &name);
    }
    rome.settle();

    assert!(
        rome.state.stored_warnings() <= 1024,
        "{}",
        rome.state.stored_warnings()
    );
}

#[test]
fn a_configuration_in_another_namespace_occupies_no_cidr() {
    let mut rome = rome();
    rome.put(
        Kind::Configuration,
        in_namespace(
            "developers",
            configuration("mallory", &["10.0.0.0/16"], &["10.1.0.0/16"]),
        ),
    );
    rome.settle();

    assert_eq!(rome.names(Kind::Network).len(), 4);
    let name = Key::new("developers", "mallory");
    let reported = condition(
        rome.get(Kind::Configuration, &name),
        "NetworkCIDRsConfigured",
    );
    assert!(
        reported.contains("networking.tenantNamespaces"),
        "{reported}"
    );
}

#[test]
fn objects_have_an_effect_while_their_namespace_has_the_tenant_labels() {
    let mut rome = served();

    rome.edit(
        Kind::Namespace,
        &Key::cluster(TENANT),
        json!({"metadata": {"labels": {"liqo.io/tenant-namespace": null}}}),
    );
    rome.settle();
    assert!(
        ready(&rome).contains("NotTenantNamespace"),
        "{}",
        ready(&rome)
    );
    assert!(bindings(&rome).is_empty());
    assert_eq!(rome.names(Kind::Network).len(), 4);
    assert!(rome.names(Kind::Service).is_empty());
    let keys = rome.get(Kind::GatewayKeys, &Key::new("liqo", "liqo-gateway-keys"));
    assert!(keys["data"]["milan"].is_null());

    rome.edit(
        Kind::Namespace,
        &Key::cluster(TENANT),
        json!({"metadata": {"labels": {"liqo.io/tenant-namespace": "true"}}}),
    );
    rome.settle();
    assert!(ready(&rome).starts_with("True"), "{}", ready(&rome));
    assert_eq!(rome.names(Kind::Service), ["liqo/liqo-gateway"]);
}

#[test]
fn a_second_namespace_that_is_labelled_for_a_peer_has_no_effect() {
    let mut rome = served();
    rome.put(Kind::Namespace, tenant("another", "milan"));
    rome.put(
        Kind::PublicKey,
        in_namespace("another", public_key("milan", 7)),
    );
    rome.settle();

    assert!(ready(&rome).starts_with("True"), "{}", ready(&rome));
    let reported = rome
        .notices
        .iter()
        .find(|it| it.kind == Kind::PublicKey)
        .unwrap();
    assert!(
        reported
            .note
            .contains("read from namespace liqo-tenant-milan only"),
        "{}",
        reported.note
    );
}

#[test]
fn a_namespace_that_the_settings_name_serves_a_peer_without_labels() {
    let mut rome = rome();
    rome.put(Kind::Namespace, json!({"metadata": {"name": "named"}}));
    rome.put(
        Kind::Configuration,
        in_namespace("named", configuration("milan", &["10.244.0.0/16"], &[])),
    );
    rome.put(
        Kind::GatewayServer,
        in_namespace(
            "named",
            server("milan", &json!({"serviceType": "NodePort"})),
        ),
    );
    rome.put(
        Kind::PublicKey,
        in_namespace("named", public_key("milan", 9)),
    );
    rome.settle();

    let reported = condition(
        rome.get(Kind::GatewayServer, &Key::new("named", "milan")),
        "Ready",
    );
    assert!(reported.starts_with("True"), "{reported}");
    assert_eq!(bindings(&rome), [format!("named/{BINDING}")]);
}

#[test]
fn the_manager_binds_its_role_in_tenant_namespaces_only() {
    let mut rome = rome();
    for name in ["kube-system", "developers", "named", "liqo"] {
        rome.put(Kind::Namespace, json!({"metadata": {"name": name}}));
    }
    with_milan(&mut rome);

    assert_eq!(
        bindings(&rome),
        [format!("{TENANT}/{BINDING}"), format!("named/{BINDING}")]
    );
    let binding = rome.get(Kind::RoleBinding, &key(BINDING));
    assert_eq!(binding["roleRef"]["name"], BINDING);
    assert_eq!(
        binding["subjects"],
        json!([{"kind": "ServiceAccount", "name": "liqo-controller-manager", "namespace": "liqo"}])
    );
}

#[test]
fn a_binding_with_another_subject_or_role_or_place_is_replaced_or_removed() {
    let mut rome = served();
    let right = rome.get(Kind::RoleBinding, &key(BINDING)).clone();
    for wrong in [
        json!({"subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "developers"}]}),
        json!({"subjects": null}),
        json!({"roleRef": {"name": "cluster-admin"}}),
    ] {
        rome.edit(Kind::RoleBinding, &key(BINDING), wrong);
        rome.settle();

        let binding = rome.get(Kind::RoleBinding, &key(BINDING));
        assert_eq!(binding["subjects"], right["subjects"]);
        assert_eq!(binding["roleRef"], right["roleRef"]);
        assert!(ready(&rome).starts_with("True"), "{}", ready(&rome));
    }
    let elsewhere = in_namespace("kube-system", right);
    rome.put(Kind::RoleBinding, elsewhere);
    rome.settle();
    assert_eq!(bindings(&rome), [format!("{TENANT}/{BINDING}")]);
}

#[test]
fn a_gateway_without_the_right_to_its_keys_reports_this_and_keeps_them() {
    let mut rome = served();
    let keys = rome.get(Kind::Secret, &key("gw-milan"))["data"].clone();

    rome.remove_alone(Kind::RoleBinding, &key(BINDING));
    rome.settle();

    assert_eq!(
        bindings(&rome),
        [format!("{TENANT}/{BINDING}")],
        "it is created again"
    );
    assert_eq!(rome.get(Kind::Secret, &key("gw-milan"))["data"], keys);
    assert!(ready(&rome).starts_with("True"), "{}", ready(&rome));
}

#[test]
fn a_key_belongs_to_the_peer_with_the_older_tenant_namespace() {
    let mut rome = rome();
    rome.put(Kind::Namespace, tenant("liqo-tenant-naples", "naples"));
    // Milan's PublicKey is the older object: its author has edited the key.
    with_served_milan(&mut rome);
    rome.put(
        Kind::GatewayServer,
        server("naples", &json!({"serviceType": "NodePort"})),
    );
    rome.put(Kind::PublicKey, public_key("naples", 9));
    rome.settle();

    let of_naples = Key::new("liqo-tenant-naples", "naples");
    let of_naples = condition(rome.get(Kind::GatewayServer, &of_naples), "Ready");
    assert!(of_naples.starts_with("True"), "{of_naples}");
    assert!(ready(&rome).starts_with("False"), "{}", ready(&rome));
}

#[test]
fn a_limited_number_of_misplaced_objects_is_reported() {
    let mut rome = rome();
    for number in 0..100 {
        let mut key = in_namespace("developers", public_key("mallory", 9));
        key["metadata"]["name"] = json!(format!("key-{number}"));
        rome.put(Kind::PublicKey, key);
    }
    rome.settle();

    let reported = rome.notices.iter();
    let reported = reported.filter(|it| it.reason == "NotTenantNamespace");
    assert_eq!(reported.count(), 32);
}
