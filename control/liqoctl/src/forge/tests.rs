//! Forged objects against what upstream's program prints and writes.

use super::*;
use crate::output::{self, Format};

fn template(word: &str) -> Template {
    Template {
        resource: format!("networking.liqo.io/v1beta1/wggateway{word}templates"),
        name: format!("wireguard-{word}"),
        namespace: "liqo".into(),
    }
}

fn yaml(object: Value) -> String {
    output::text(Format::Yaml, &printed(object)).unwrap()
}

#[test]
fn a_gateway_server_is_upstreams() {
    let endpoint = ServerEndpoint {
        service_type: "LoadBalancer".into(),
        port: DEFAULT_PORT,
        node_port: None,
        load_balancer_ip: None,
    };

    let forged = gateway_server(
        "gws",
        "default",
        "milan",
        &endpoint,
        DEFAULT_MTU,
        &template("server"),
    );

    assert_eq!(
        yaml(forged),
        "\
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata:
  labels:
    liqo.io/remote-cluster-id: milan
  name: gws
  namespace: default
spec:
  endpoint:
    port: 51840
    serviceType: LoadBalancer
  mtu: 1340
  secretRef: {}
  serverTemplateRef:
    apiVersion: networking.liqo.io/v1beta1
    kind: WgGatewayServerTemplate
    name: wireguard-server
    namespace: liqo
status: {}
"
    );
}

#[test]
fn a_gateway_client_is_upstreams() {
    let forged = gateway_client(
        "gwc",
        "default",
        "milan",
        (&["1.2.3.4".to_owned()], 51840, "UDP"),
        DEFAULT_MTU,
        &template("client"),
    );

    assert_eq!(
        yaml(forged),
        "\
apiVersion: networking.liqo.io/v1beta1
kind: GatewayClient
metadata:
  labels:
    liqo.io/remote-cluster-id: milan
  name: gwc
  namespace: default
spec:
  clientTemplateRef:
    apiVersion: networking.liqo.io/v1beta1
    kind: WgGatewayClientTemplate
    name: wireguard-client
    namespace: liqo
  endpoint:
    addresses:
    - 1.2.3.4
    port: 51840
    protocol: UDP
  mtu: 1340
  secretRef: {}
status: {}
"
    );
}

#[test]
fn a_public_key_is_upstreams() {
    let forged = public_key("pk", Some("default"), "milan", &[0; 32], None);

    assert_eq!(
        yaml(forged),
        "\
apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
metadata:
  labels:
    liqo.io/remote-cluster-id: milan
    networking.liqo.io/gateway-resource: \"true\"
  name: pk
  namespace: default
spec:
  publicKey: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
"
    );
}

#[test]
fn a_generated_configuration_is_upstreams() {
    let forged = configuration(
        "rome",
        None,
        "rome",
        &["10.244.0.0/16".to_owned()],
        &["10.70.0.0/16".to_owned()],
    );

    assert_eq!(
        yaml(forged),
        "\
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata:
  labels:
    liqo.io/remote-cluster-id: rome
  name: rome
spec:
  remote:
    cidr:
      external:
      - 10.70.0.0/16
      pod:
      - 10.244.0.0/16
status: {}
"
    );
}

#[test]
fn a_peers_key_belongs_to_the_gateway() {
    let owner = Owner {
        kind: "GatewayClient".into(),
        name: "milan".into(),
        uid: "82003ad5-3325-4360-9a24-faa01fec5ba8".into(),
    };

    let forged = public_key(
        "milan",
        Some("liqo-tenant-milan"),
        "milan",
        &[7; 32],
        Some(&owner),
    );

    let expected = json!([{
        "apiVersion": "networking.liqo.io/v1beta1",
        "kind": "GatewayClient",
        "name": "milan",
        "uid": "82003ad5-3325-4360-9a24-faa01fec5ba8",
    }]);
    assert_eq!(forged["metadata"]["ownerReferences"], expected);
}

#[test]
fn a_tenant_namespace_has_upstreams_labels() {
    let forged = tenant_namespace("milan");

    let expected = json!({
        "liqo.io/remote-cluster-id": "milan",
        "liqo.io/tenant-namespace": "true",
        "pod-security.kubernetes.io/audit": "privileged",
        "pod-security.kubernetes.io/enforce": "privileged",
        "pod-security.kubernetes.io/warn": "privileged",
    });
    assert_eq!(forged["metadata"]["name"], "liqo-tenant-milan");
    assert_eq!(forged["metadata"]["labels"], expected);
}

#[test]
fn extra_labels_never_replace_the_objects_own() {
    let mut forged = tenant_namespace("milan");
    let extra = [
        ("liqo.io/remote-cluster-id".to_owned(), "x".to_owned()),
        ("team".to_owned(), "net".to_owned()),
    ];

    add_metadata(&mut forged, &extra, &extra[1..]);

    assert_eq!(
        forged["metadata"]["labels"]["liqo.io/remote-cluster-id"],
        "milan"
    );
    assert_eq!(forged["metadata"]["labels"]["team"], "net");
    assert_eq!(forged["metadata"]["annotations"], json!({"team": "net"}));
}

#[test]
fn every_forged_object_is_of_our_kinds() {
    let endpoint = ServerEndpoint {
        service_type: "NodePort".into(),
        port: 51840,
        node_port: Some(31110),
        load_balancer_ip: None,
    };
    let server = gateway_server("a", "b", "milan", &endpoint, 1340, &template("server"));
    // The API server adds the default of the Secret's name.
    let mut server = server;
    server["spec"]["secretRef"] = json!({"name": ""});

    let read: control_api::GatewayServer = serde_json::from_value(server).unwrap();

    let endpoint = read.spec.endpoint.unwrap();
    assert_eq!(endpoint.node_port, Some(31110));
    assert_eq!(
        endpoint.service_type,
        control_api::gateway_server::ServiceType::NodePort
    );
}
