//! Gateways: keys, endpoints, conditions, Connections.

use super::*;
use k8s_openapi::ByteString;
use serde_json::from_value;

fn bytes(value: &Value) -> Vec<u8> {
    from_value::<ByteString>(value.clone()).unwrap().0
}

fn gateway_keys(rome: &Cluster) -> &Value {
    &rome.get(Kind::GatewayKeys, &Key::new("liqo", "liqo-gateway-keys"))["data"]
}

fn ready(rome: &Cluster, kind: Kind, name: &str) -> String {
    condition(rome.get(kind, &key(name)), "Ready")
}

#[test]
fn a_server_gets_service_keys_endpoint_and_connection() {
    let mut rome = rome();
    with_milan(&mut rome);

    rome.put(
        Kind::GatewayServer,
        server("milan", &json!({"serviceType": "NodePort", "port": 51840})),
    );
    rome.settle();
    let before_key = ready(&rome, Kind::GatewayServer, "milan");
    let status = rome.get(Kind::GatewayServer, &key("milan"))["status"].clone();
    rome.put(Kind::PublicKey, public_key("milan", 9));
    rome.settle();

    let service = rome.get(Kind::Service, &Key::new("liqo", "liqo-gateway"));
    assert_eq!(service["spec"]["ports"][0]["name"], "wireguard");
    assert_eq!(
        service["metadata"]["labels"]["networking.liqo.io/component"],
        Value::Null
    );
    assert_eq!(
        status["endpoint"],
        json!({
            "addresses": ["172.18.1.2", "172.18.1.3"],
            "port": service["spec"]["ports"][0]["nodePort"],
            "protocol": "UDP",
        })
    );
    assert_eq!(
        status["internalEndpoint"],
        json!({"ip": "10.244.1.9", "node": "rome-1"})
    );
    assert_eq!(
        status["secretRef"],
        json!({"name": "gw-milan", "namespace": TENANT})
    );
    assert_eq!(status["serverRef"]["name"], "liqo-gateway");
    assert!(
        before_key.contains("WaitingForPublicKey"),
        "keys are created before the peer's: {before_key}"
    );
    assert!(ready(&rome, Kind::GatewayServer, "milan").starts_with("True Configured"));

    let secret = rome.get(Kind::Secret, &key("gw-milan"));
    let private = bytes(&secret["data"]["privateKey"]);
    assert_eq!(
        (private.len(), bytes(&secret["data"]["publicKey"]).len()),
        (32, 32)
    );
    assert_eq!(
        gateway_keys(&rome),
        &json!({"milan": secret["data"]["privateKey"]})
    );
    let connection = rome.get(Kind::Connection, &key("gw-milan"));
    let uid = &rome.get(Kind::GatewayServer, &key("milan"))["metadata"]["uid"];
    assert_eq!(connection["spec"]["type"], "Server");
    assert_eq!(connection["spec"]["gatewayRef"]["kind"], "WgGatewayServer");
    assert_eq!(connection["spec"]["gatewayRef"]["uid"], *uid);
    assert_eq!(connection["status"]["value"], "Connecting");
}

#[test]
fn a_client_gets_keys_and_connection() {
    let mut rome = rome();
    with_milan(&mut rome);

    rome.put(Kind::GatewayClient, client("milan"));
    rome.put(Kind::PublicKey, public_key("milan", 9));
    rome.settle();

    let status = &rome.get(Kind::GatewayClient, &key("milan"))["status"];
    assert_eq!(status["secretRef"]["name"], "gw-milan");
    assert_eq!(status["clientRef"]["name"], "liqo-gateway");
    assert_eq!(
        rome.get(Kind::Connection, &key("gw-milan"))["spec"]["type"],
        "Client"
    );
    assert!(ready(&rome, Kind::GatewayClient, "milan").starts_with("True"));
}

#[test]
fn the_state_that_the_gateway_wrote_is_kept() {
    let mut rome = rome();
    with_milan(&mut rome);
    rome.put(Kind::GatewayClient, client("milan"));
    rome.put(Kind::PublicKey, public_key("milan", 9));
    rome.settle();

    let status = json!({"status": {"value": "Connected", "latency": {"value": "1ms"}}});
    rome.edit(Kind::Connection, &key("gw-milan"), status);
    let writes = rome.settle();

    assert_eq!(
        rome.get(Kind::Connection, &key("gw-milan"))["status"]["value"],
        "Connected"
    );
    assert!(
        writes.iter().all(|write| write.kind != Kind::Connection),
        "{writes:?}"
    );
}

#[test]
fn the_message_for_an_invalid_field_names_the_field() {
    let endpoint = |fields: Value| {
        let usual = json!({"addresses": ["192.0.2.1"], "port": 51840, "protocol": "UDP"});
        json!({"spec": {"endpoint": fake_apiserver::merged(usual, fields)}})
    };
    for (fields, reported) in [
        (json!({"spec": {"mtu": 20000}}), "spec.mtu: 20000 is not"),
        (json!({"spec": {"mtu": -5}}), "spec.mtu: -5 is not"),
        (
            endpoint(json!({"addresses": ["not a host!"]})),
            "spec.endpoint.addresses: `not a host!` is neither",
        ),
        (
            endpoint(json!({"protocol": "TCP"})),
            "spec.endpoint.protocol: the gateway supports UDP only",
        ),
    ] {
        let mut rome = rome();
        with_milan(&mut rome);
        rome.put(
            Kind::GatewayClient,
            fake_apiserver::merged(client("milan"), fields),
        );
        rome.put(Kind::PublicKey, public_key("milan", 9));
        rome.settle();

        let condition = condition(rome.get(Kind::GatewayClient, &key("milan")), "Ready");
        assert!(condition.starts_with("False InvalidField"), "{condition}");
        assert!(condition.contains(reported), "{condition}");
    }
}

#[test]
fn a_gateway_that_cannot_serve_reports_the_reason() {
    let long = "x".repeat(61);
    let cases = [
        (
            server("milan", &json!({"serviceType": "ExternalName"})),
            "InvalidEndpoint",
            "use LoadBalancer",
        ),
        (
            server("milan", &json!({"port": 99999})),
            "InvalidEndpoint",
            "from 1 to 65535",
        ),
        (
            of_peer("rome", "rome", &json!({})),
            "OwnClusterID",
            "this cluster's own id",
        ),
        (
            of_peer("Milan_2", "milan", &json!({})),
            "InvalidClusterID",
            "is not a cluster id",
        ),
        (
            of_peer("milan", &long, &json!({})),
            "NameTooLong",
            "60 characters",
        ),
        (
            json!({"metadata": {"name": "x", "namespace": "y"}, "spec": {}}),
            "NoClusterID",
            "add the label",
        ),
    ];
    for (object, reason, remedy) in cases {
        let mut rome = rome();
        let name = rome.put(Kind::GatewayServer, object);
        rome.settle();

        let reported = condition(rome.get(Kind::GatewayServer, &name), "Ready");
        assert!(
            reported.starts_with(&format!("False {reason}")) && reported.contains(remedy),
            "{reported}"
        );
    }
}

#[test]
fn the_newer_of_server_and_client_of_one_peer_is_refused() {
    let mut rome = rome();
    with_milan(&mut rome);
    rome.put(
        Kind::GatewayServer,
        server("milan", &json!({"serviceType": "ClusterIP"})),
    );
    rome.put(Kind::PublicKey, public_key("milan", 9));
    rome.settle();

    rome.put(Kind::GatewayClient, client("milan"));
    rome.settle();

    assert!(ready(&rome, Kind::GatewayServer, "milan").starts_with("True"));
    let reported = ready(&rome, Kind::GatewayClient, "milan");
    assert!(
        reported.contains("GatewayServer liqo-tenant-milan/milan serves this peer already"),
        "{reported}"
    );
    rome.delete(Kind::GatewayServer, &key("milan"));
    rome.settle();
    assert!(ready(&rome, Kind::GatewayClient, "milan").starts_with("True"));
    assert_eq!(
        rome.get(Kind::Connection, &key("gw-milan"))["spec"]["type"],
        "Client"
    );
}

#[test]
fn a_template_is_accepted_and_reported_as_ignored() {
    let mut rome = rome();
    rome.put(
        Kind::GatewayServer,
        server("milan", &json!({"serviceType": "ClusterIP"})),
    );
    rome.settle();

    let reported = condition(
        rome.get(Kind::GatewayServer, &key("milan")),
        "TemplateIgnored",
    );
    assert!(
        reported.starts_with("True TemplateIgnored: template wireguard-server has no effect"),
        "{reported}"
    );
}

#[test]
fn endpoints_follow_the_nodes() {
    let mut rome = rome();
    rome.put(
        Kind::GatewayServer,
        server("milan", &json!({"serviceType": "NodePort"})),
    );
    rome.settle();

    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    rome.edit(Kind::Node, &Key::cluster("rome-1"), not_ready);
    rome.put(Kind::Node, node("rome-3", "172.18.1.4"));
    rome.settle();

    let endpoint = &rome.get(Kind::GatewayServer, &key("milan"))["status"]["endpoint"];
    assert_eq!(endpoint["addresses"], json!(["172.18.1.3", "172.18.1.4"]));
}

#[test]
fn heartbeats_of_nodes_cause_no_write() {
    let mut rome = rome();
    rome.put(
        Kind::GatewayServer,
        server("milan", &json!({"serviceType": "NodePort"})),
    );
    rome.settle();

    let beat = json!({"status": {"conditions": [
        {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-21T08:15:18Z"},
        {"type": "DiskPressure", "status": "False"},
    ], "images": [{"names": ["a"]}]}});
    rome.edit(Kind::Node, &Key::cluster("rome-1"), beat);

    assert_eq!(rome.settle(), []);
}
