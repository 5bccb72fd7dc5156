//! The Services of the gateway.

use super::*;

fn services(rome: &Cluster) -> Vec<String> {
    rome.names(Kind::Service)
}

fn endpoint_of(rome: &Cluster, peer: &str) -> Value {
    let key = Key::new(format!("liqo-tenant-{peer}"), peer);
    rome.get(Kind::GatewayServer, &key)["status"]["endpoint"].clone()
}

#[test]
fn servers_with_equal_requests_share_a_service() {
    let mut rome = rome();
    for peer in ["milan", "naples", "turin"] {
        rome.put(
            Kind::GatewayServer,
            server(peer, &json!({"serviceType": "NodePort"})),
        );
    }
    rome.settle();

    assert_eq!(services(&rome), ["liqo/liqo-gateway"]);
    assert_eq!(endpoint_of(&rome, "milan"), endpoint_of(&rome, "turin"));
}

#[test]
fn a_server_with_another_request_gets_another_service() {
    let mut rome = rome();
    rome.put(
        Kind::GatewayServer,
        server("milan", &json!({"serviceType": "NodePort"})),
    );
    rome.settle();
    let mut fixed = server(
        "naples",
        &json!({"serviceType": "LoadBalancer", "port": 5555, "nodePort": 30007, "loadBalancerIP": "203.0.113.9"}),
    );
    fixed["spec"]["serviceAnnotations"] = json!({"lb": "fast"});
    fixed["spec"]["serviceLabels"] =
        json!({"team": "net", "networking.liqo.io/component": "gateway"});
    rome.put(Kind::GatewayServer, fixed);
    rome.settle();

    let names = services(&rome);
    assert_eq!(names.len(), 2, "{names:?}");
    let name = names
        .iter()
        .find(|name| *name != "liqo/liqo-gateway")
        .unwrap();
    let service_key = Key::new("liqo", name.strip_prefix("liqo/").unwrap());
    let service = rome.get(Kind::Service, &service_key);
    assert_eq!(service["spec"]["loadBalancerIP"], "203.0.113.9");
    assert_eq!(service["spec"]["externalTrafficPolicy"], "Cluster");
    assert_eq!(service["spec"]["ports"][0]["nodePort"], 30007);
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 51840);
    assert_eq!(service["metadata"]["annotations"]["lb"], "fast");
    assert_eq!(service["metadata"]["labels"]["team"], "net");
    assert!(service["metadata"]["labels"]["networking.liqo.io/component"].is_null());
    let server_key = Key::new("liqo-tenant-naples", "naples");
    let waiting = condition(rome.get(Kind::GatewayServer, &server_key), "Ready");
    assert!(waiting.contains("WaitingForAddress"), "{waiting}");

    let balanced = json!({"status": {"loadBalancer": {"ingress": [{"hostname": "gw.example"}, {"ip": "203.0.113.9"}]}}});
    rome.edit(Kind::Service, &service_key, balanced);
    rome.settle();
    let endpoint = endpoint_of(&rome, "naples");
    assert_eq!(endpoint["addresses"], json!(["203.0.113.9", "gw.example"]));
    assert_eq!(endpoint["port"], 5555);
}

#[test]
fn the_service_is_deleted_with_the_last_server() {
    let mut rome = rome();
    for peer in ["milan", "naples"] {
        rome.put(
            Kind::GatewayServer,
            server(peer, &json!({"serviceType": "NodePort"})),
        );
    }
    rome.settle();

    rome.delete(Kind::GatewayServer, &key("milan"));
    rome.settle();
    let one_left = services(&rome).len();
    rome.delete(
        Kind::GatewayServer,
        &Key::new("liqo-tenant-naples", "naples"),
    );
    rome.settle();

    assert_eq!(one_left, 1);
    assert!(services(&rome).is_empty());
}

#[test]
fn a_changed_request_keeps_the_service_and_its_node_port() {
    let mut rome = rome();
    rome.put(
        Kind::GatewayServer,
        server("milan", &json!({"serviceType": "NodePort"})),
    );
    rome.settle();
    let before = endpoint_of(&rome, "milan");

    rome.edit(
        Kind::GatewayServer,
        &key("milan"),
        json!({"spec": {"serviceAnnotations": {"a": "b"}}}),
    );
    rome.settle();

    assert_eq!(services(&rome), ["liqo/liqo-gateway"]);
    assert_eq!(endpoint_of(&rome, "milan"), before);
    let service = rome.get(Kind::Service, &Key::new("liqo", "liqo-gateway"));
    assert_eq!(service["metadata"]["annotations"], json!({"a": "b"}));
}

#[test]
fn a_changed_port_replaces_the_old_one_and_keeps_the_node_port() {
    let mut rome = rome();
    rome.put(
        Kind::GatewayServer,
        server("milan", &json!({"serviceType": "NodePort", "port": 51911})),
    );
    rome.settle();
    let before = endpoint_of(&rome, "milan");

    rome.edit(
        Kind::GatewayServer,
        &key("milan"),
        json!({"spec": {"endpoint": {"port": 51912}}}),
    );
    rome.settle();

    assert_eq!(services(&rome), ["liqo/liqo-gateway"]);
    let service = rome.get(Kind::Service, &Key::new("liqo", "liqo-gateway"));
    let ports = service["spec"]["ports"].as_array().unwrap();
    assert_eq!(ports.len(), 1, "{ports:?}");
    assert_eq!(ports[0]["port"], 51912);
    assert_eq!(endpoint_of(&rome, "milan"), before);
}

#[test]
fn an_edited_service_is_corrected_and_leftovers_are_removed_at_the_start() {
    let mut rome = rome();
    rome.put(
        Kind::GatewayServer,
        server("milan", &json!({"serviceType": "NodePort"})),
    );
    rome.settle();
    let name = Key::new("liqo", "liqo-gateway");

    rome.edit(
        Kind::Service,
        &name,
        json!({"spec": {"selector": {"networking.liqo.io/active": "no"}}}),
    );
    rome.settle();
    let selector =
        rome.get(Kind::Service, &name)["spec"]["selector"]["networking.liqo.io/active"].clone();
    rome.remove_alone(Kind::GatewayServer, &key("milan"));
    rome.restart();
    rome.settle();

    assert_eq!(selector, "true");
    assert!(services(&rome).is_empty());
}

#[test]
fn a_service_of_another_owner_is_not_changed() {
    let mut rome = rome();
    rome.objects.insert((Kind::Service, Key::new("liqo", "liqo-gateway")), json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "liqo-gateway", "namespace": "liqo", "uid": "theirs", "resourceVersion": "1"},
        "spec": {"type": "ClusterIP"},
    }));

    rome.put(
        Kind::GatewayServer,
        server("milan", &json!({"serviceType": "NodePort"})),
    );
    rome.settle();

    assert_eq!(
        rome.get(Kind::Service, &Key::new("liqo", "liqo-gateway"))["metadata"]["uid"],
        "theirs"
    );
    assert_eq!(services(&rome).len(), 2);
    assert!(endpoint_of(&rome, "milan")["port"].is_number());
}

#[test]
fn a_refused_node_port_is_reported() {
    let mut rome = rome();
    rome.taken_ports = vec![30007];
    rome.put(
        Kind::GatewayServer,
        server(
            "milan",
            &json!({"serviceType": "NodePort", "nodePort": 30007}),
        ),
    );
    rome.settle();
    let reported = condition(rome.get(Kind::GatewayServer, &key("milan")), "Ready");

    assert!(
        reported.contains("ServiceRefused") && reported.contains("already allocated"),
        "{reported}"
    );
}
