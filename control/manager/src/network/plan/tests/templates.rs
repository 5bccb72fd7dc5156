//! The Services that the manager creates for users who may create IPs.

use super::*;

/// An IP of a developer's namespace with a template.
fn ip_with_template(ip: &str, template: &Value) -> Value {
    json!({
        "metadata": {"name": "printer", "namespace": "office"},
        "spec": {"ip": ip, "serviceTemplate": template},
    })
}

fn ports() -> Value {
    json!({"spec": {"ports": [{"port": 80}]}})
}

fn name() -> Key {
    Key::new("office", "printer")
}

fn namespace(labels: &Value) -> Value {
    json!({"metadata": {"name": "office", "labels": labels}})
}

/// Returns the warnings about the IP since the last call.
fn warnings(rome: &mut Cluster) -> Vec<String> {
    rome.settle();
    let notices = std::mem::take(&mut rome.notices);
    let warnings = notices
        .into_iter()
        .filter(|it| it.is_warning && it.kind == Kind::Ip);
    warnings
        .map(|it| format!("{}: {}", it.reason, it.note))
        .collect()
}

fn has_service(rome: &Cluster) -> (bool, bool) {
    let is_there = |kind| !rome.get(kind, &name()).is_null();
    (is_there(Kind::Service), is_there(Kind::EndpointSlice))
}

#[test]
fn an_exposing_template_is_refused_with_the_name_of_the_field() {
    for (spec, field) in [
        (
            json!({"externalIPs": ["203.0.113.7"], "ports": [{"port": 80}]}),
            "spec.externalIPs",
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 80}]}),
            "spec.type is NodePort",
        ),
        (
            json!({"type": "LoadBalancer", "ports": [{"port": 80}]}),
            "spec.type is LoadBalancer",
        ),
        (
            json!({"selector": {"app": "x"}, "ports": [{"port": 80}]}),
            "spec.selector",
        ),
    ] {
        let mut rome = rome();
        rome.put(
            Kind::Ip,
            ip_with_template("192.0.2.9", &json!({ "spec": spec })),
        );

        let events = warnings(&mut rome);

        assert_eq!(has_service(&rome), (false, false), "{field}");
        assert!(
            matches!(&*events, [one] if one.starts_with("ServiceTemplateRefused") && one.contains(field)),
            "{events:?}"
        );
        assert_eq!(
            rome.get(Kind::Ip, &name())["status"]["ip"],
            "10.70.0.3",
            "it is mapped"
        );
        assert_eq!(warnings(&mut rome), [""; 0], "reported once");
    }
}

#[test]
fn an_address_of_the_cluster_or_a_peer_gets_no_service() {
    for (ip, what) in [
        ("10.244.2.30", "inside the pod CIDR"),
        ("10.96.0.1", "inside the Service CIDR"),
        ("172.18.1.3", "the address of a node"),
        ("10.70.0.1", "inside the external CIDR"),
        ("10.80.0.1", "inside the internal CIDR"),
        ("10.0.7.7", "inside a CIDR of a peer"),
    ] {
        let mut rome = rome();
        with_milan(&mut rome);
        rome.notices.clear();
        rome.put(Kind::Ip, ip_with_template(ip, &ports()));

        let events = warnings(&mut rome);

        assert_eq!(has_service(&rome), (false, false), "{ip}");
        assert!(
            matches!(&*events, [one] if one.contains(what)),
            "{events:?}"
        );
    }
    for ip in [
        "127.0.0.1",
        "169.254.169.254",
        "169.254.18.1",
        "224.0.0.1",
        "0.0.0.0",
    ] {
        let mut rome = rome();
        rome.put(
            Kind::Namespace,
            namespace(&json!({"ipam.liqo.io/allow-internal-addresses": "true"})),
        );
        rome.put(Kind::Ip, ip_with_template(ip, &ports()));

        let events = warnings(&mut rome);

        assert_eq!(has_service(&rome), (false, false), "{ip}");
        assert!(
            matches!(&*events, [one] if one.starts_with("InvalidAddress")),
            "{events:?}"
        );
    }
}

#[test]
fn ips_of_a_labelled_namespace_may_have_addresses_of_the_cluster() {
    let mut rome = rome();
    rome.put(Kind::Ip, ip_with_template("10.244.2.30", &ports()));
    rome.settle();
    assert_eq!(has_service(&rome), (false, false));

    rome.put(
        Kind::Namespace,
        namespace(&json!({"ipam.liqo.io/allow-internal-addresses": "true"})),
    );
    rome.settle();
    let allowed = has_service(&rome);
    rome.put(Kind::Namespace, namespace(&json!({})));
    rome.settle();

    assert_eq!(allowed, (true, true));
    assert_eq!(has_service(&rome), (false, false), "without the label");
}

#[test]
fn the_service_of_an_address_that_becomes_internal_is_deleted() {
    let mut rome = rome();
    rome.put(Kind::Ip, ip_with_template("172.18.1.9", &ports()));
    rome.put(
        Kind::Configuration,
        configuration("milan", &["10.9.0.0/16"], &[]),
    );
    rome.settle();
    let before = has_service(&rome);

    rome.put(Kind::Node, node("rome-3", "172.18.1.9"));
    rome.settle();
    let of_node = has_service(&rome);
    rome.delete(Kind::Node, &Key::cluster("rome-3"));
    rome.settle();
    let again = has_service(&rome);

    assert_eq!(
        (before, of_node, again),
        ((true, true), (false, false), (true, true))
    );
}

#[test]
fn a_refused_service_of_an_earlier_release_is_removed_with_an_event() {
    let mut rome = rome();
    let template = json!({"spec": {"type": "NodePort", "externalIPs": ["203.0.113.7"], "ports": [{"port": 80}]}});
    let uid = rome.put(Kind::Ip, ip_with_template("10.244.2.30", &template));
    let uid = rome.get(Kind::Ip, &uid)["metadata"]["uid"].clone();
    let owner = json!([{"apiVersion": "ipam.liqo.io/v1alpha1", "kind": "IP", "name": "printer", "uid": uid}]);
    let labels = json!({
        "liqo.io/managed": "true",
        "endpointslice.kubernetes.io/managed-by": "controller-manager.liqo.io",
    });
    let metadata = json!({"name": "printer", "namespace": "office", "labels": labels, "ownerReferences": owner});
    rome.put(
        Kind::Service,
        json!({"metadata": metadata, "spec": template["spec"]}),
    );
    rome.put(
        Kind::EndpointSlice,
        json!({
            "metadata": metadata,
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.244.2.30"]}],
        }),
    );

    let events = warnings(&mut rome);

    assert_eq!(has_service(&rome), (false, false));
    assert!(
        matches!(&*events, [one] if one.contains("an earlier one is removed")),
        "{events:?}"
    );
}

#[test]
fn exposing_fields_of_an_earlier_release_are_removed() {
    let mut rome = rome();
    rome.put(Kind::Ip, ip_with_template("192.0.2.9", &ports()));
    rome.settle();
    let before = rome.get(Kind::Service, &name())["metadata"]["uid"].clone();

    rome.edit(
        Kind::Service,
        &name(),
        json!({"spec": {"externalIPs": ["203.0.113.7"]}}),
    );
    rome.settle();

    let service = rome.get(Kind::Service, &name());
    assert!(service["spec"]["externalIPs"].is_null(), "{service}");
    assert_ne!(service["metadata"]["uid"], before, "it is created again");
    let events = warnings(&mut rome);
    assert!(
        matches!(&*events, [one] if one.starts_with("ServiceRecreated: its Service has spec.externalIPs")),
        "{events:?}"
    );
}

#[test]
fn an_ip_adds_no_endpoint_to_a_service_of_another_owner() {
    let mut rome = rome();
    rome.objects.insert((Kind::Service, name()), json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "printer", "namespace": "office", "uid": "theirs", "resourceVersion": "1"},
        "spec": {"type": "ClusterIP"},
    }));
    rome.put(Kind::Ip, ip_with_template("192.0.2.9", &ports()));

    let events = warnings(&mut rome);

    assert_eq!(has_service(&rome), (true, false));
    assert_eq!(
        rome.get(Kind::Service, &name())["metadata"]["uid"],
        "theirs"
    );
    assert!(
        matches!(&*events, [one] if one.starts_with("ServiceNameTaken")),
        "{events:?}"
    );
}

#[test]
fn ips_without_a_template_may_have_any_routable_address() {
    let mut rome = rome();
    for (name, ip) in [
        ("pod", "10.244.2.30"),
        ("api-server", "10.96.0.1"),
        ("host", "172.18.1.3"),
    ] {
        let ip = json!({"metadata": {"name": name, "namespace": "office"}, "spec": {"ip": ip}});
        rome.put(Kind::Ip, ip);
    }

    let events = warnings(&mut rome);

    assert_eq!(events, [""; 0]);
    for name in ["pod", "api-server", "host"] {
        let ip = rome.get(Kind::Ip, &Key::new("office", name));
        assert!(ip["status"]["ip"].is_string(), "{name}");
    }
}
