//! The planner with an API server in memory. The tests check the objects after convergence.

mod addresses;
mod api_server;
mod changes;
mod claims;
mod cluster;
mod configurations;
mod file;
mod gateways;
mod invalid_fields;
mod keys;
mod notices;
mod peers;
mod queue;
mod repairs;
mod service_ip;
mod services;
mod templates;
mod tenants;

use crate::network::kind::{Key, Kind};
use cluster::Cluster;
pub(crate) use cluster::settings;
use serde_json::{Value, json};

/// Namespace of the peer `milan`.
const TENANT: &str = "liqo-tenant-milan";

/// A cluster after the installation of the chart: two nodes, Networks, a ready gateway, no peer.
fn rome() -> Cluster {
    let mut rome = Cluster::new();
    rome.put(
        Kind::ConfigMap,
        json!({
            "metadata": {
                "name": "liqo-clusterid-configmap",
                "namespace": "liqo",
                "labels": {"app.kubernetes.io/name": "clusterid-configmap"},
            },
            "data": {"CLUSTER_ID": "rome"},
        }),
    );
    // Another controller follows it.
    rome.put(
        Kind::ConfigMap,
        json!({"metadata": {"name": "kube-root-ca.crt", "namespace": "liqo"}, "data": {"ca.crt": "-"}}),
    );
    for (name, address) in [("rome-1", "172.18.1.2"), ("rome-2", "172.18.1.3")] {
        rome.put(Kind::Node, node(name, address));
    }
    let shared = json!({"network-not-remapped": "true", "network-shared": "true"});
    for (name, type_, cidr, extra) in [
        ("pod-cidr", "pod-cidr", "10.244.0.0/16", &shared),
        ("service-cidr", "service-cidr", "10.96.0.0/12", &shared),
        ("external-cidr", "external-cidr", "10.70.0.0/16", &json!({})),
        ("internal-cidr", "internal-cidr", "10.80.0.0/16", &json!({})),
    ] {
        let mut labels = json!({"ipam.liqo.io/network-type": type_});
        for (key, value) in extra.as_object().unwrap() {
            labels[format!("ipam.liqo.io/{key}")] = value.clone();
        }
        let pre_allocated = i32::from(type_ == "external-cidr");
        rome.put(
            Kind::Network,
            json!({
                "metadata": {"name": name, "namespace": "liqo", "labels": labels},
                "spec": {"cidr": cidr, "preAllocated": pre_allocated},
            }),
        );
    }
    rome.put(
        Kind::GatewayKeys,
        json!({
            "metadata": {"name": "liqo-gateway-keys", "namespace": "liqo"},
        }),
    );
    rome.put(
        Kind::Pod,
        gateway_pod("gateway-a", "rome-1", "10.244.1.9", true),
    );
    rome.settle();
    rome
}

/// Creates the objects of a user for the peer `milan`, without the gateway.
fn with_milan(rome: &mut Cluster) {
    rome.put(
        Kind::Namespace,
        json!({
            "metadata": {"name": TENANT, "labels": {
                "liqo.io/remote-cluster-id": "milan",
                "liqo.io/tenant-namespace": "true",
            }},
        }),
    );
    rome.put(
        Kind::Configuration,
        configuration("milan", &["10.244.0.0/16"], &["10.70.0.0/16"]),
    );
    rome.settle();
}

/// Creates the objects of the peer `milan`, with gateway and key.
fn with_served_milan(rome: &mut Cluster) {
    with_milan(rome);
    rome.put(
        Kind::GatewayServer,
        server("milan", &json!({"serviceType": "NodePort"})),
    );
    rome.put(Kind::PublicKey, public_key("milan", 9));
    rome.settle();
}

fn node(name: &str, address: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "status": {
            "addresses": [
                {"type": "Hostname", "address": name},
                {"type": "InternalIP", "address": address},
            ],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn gateway_pod(name: &str, node: &str, address: &str, is_ready: bool) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "liqo", "labels": {"networking.liqo.io/component": "gateway"}},
        "spec": {"nodeName": node, "containers": []},
        "status": {
            "phase": "Running",
            "podIP": address,
            "conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" }}],
        },
    })
}

fn of_peer(peer: &str, name: &str, spec: &Value) -> Value {
    json!({
        "metadata": {
            "name": name,
            "namespace": format!("liqo-tenant-{peer}"),
            "labels": {"liqo.io/remote-cluster-id": peer},
        },
        "spec": spec,
    })
}

fn configuration(peer: &str, pod: &[&str], external: &[&str]) -> Value {
    of_peer(
        peer,
        peer,
        &json!({"remote": {"cidr": {"pod": pod, "external": external}}}),
    )
}

fn server(peer: &str, endpoint: &Value) -> Value {
    of_peer(
        peer,
        peer,
        &json!({
            "endpoint": endpoint,
            "mtu": 1340,
            "secretRef": {"name": ""},
            "serverTemplateRef": {"kind": "WgGatewayServerTemplate", "name": "wireguard-server", "namespace": "liqo"},
        }),
    )
}

fn client(peer: &str) -> Value {
    of_peer(
        peer,
        peer,
        &json!({
            "endpoint": {"addresses": ["172.18.2.3"], "port": 31110, "protocol": "UDP"},
            "mtu": 1340,
        }),
    )
}

fn public_key(peer: &str, byte: u8) -> Value {
    let bytes = k8s_openapi::ByteString(vec![byte; 32]);
    of_peer(peer, peer, &json!({"publicKey": bytes}))
}

fn key(name: &str) -> Key {
    Key::new(TENANT, name)
}

/// Returns the condition of a type, as `status reason: message`.
fn condition(object: &Value, type_: &str) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|it| it["type"] == type_);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    found.map_or_else(String::new, |it| {
        format!(
            "{} {}: {}",
            text(&it["status"]),
            text(&it["reason"]),
            text(&it["message"])
        )
    })
}
