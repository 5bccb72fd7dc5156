//! Random changes of the objects of an API server, for property tests of the [`Resolver`](crate::Resolver) and
//! of its consumers.
//!
//! Peers, nodes and addresses are few, so that random objects are often connected and often invalid.

use crate::objects::Object;
use crate::resolver::{Blocks, Changes, ObjectKey};
use control_api::{Configuration, GatewayClient, GatewayServer, IP, Network, PublicKey, labels};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::*;
use serde_json::{Value, from_value, json};
use std::sync::Arc;

mod served;

/// Names of the nodes.
pub const NODES: [&str; 3] = ["a", "b", "c"];

const PEERS: [&str; 4] = ["milan", "naples", "rome", ""];
const NAMESPACES: [&str; 4] = [
    "liqo",
    "liqo-tenant-milan",
    "liqo-tenant-naples",
    "developers",
];

/// Largest number of changed objects in one change.
const STEPS_MAX: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Put(Object),
    Delete(Object),
    Namespace(usize, Option<usize>),
    Blocks(usize, Option<(usize, u8)>),
}

/// Returns the objects of the cluster itself in the namespace `liqo`, and the namespaces of two peers.
pub fn cluster() -> Changes {
    let network = |name: &str, cidr: &str| -> Object { own_network(name, cidr).into() };
    let id = json!({
        "metadata": {"name": "id", "namespace": "liqo", "labels": {labels::APP_NAME: labels::CLUSTER_ID_CONFIG_MAP}},
        "data": {"CLUSTER_ID": "rome"},
    });
    let objects = [
        object_of::<ConfigMap>(id),
        network("pod-cidr", "10.0.0.0/16"),
        network("service-cidr", "10.96.0.0/16"),
        network("external-cidr", "10.70.0.0/24"),
    ];
    let objects = objects.into_iter().map(Step::Put);

    changes_of(objects.chain([Step::Namespace(1, Some(0)), Step::Namespace(2, Some(1))]))
}

/// Generates changes of a few objects. After about half of the changes, the objects are served.
pub fn changes() -> impl Strategy<Value = Changes> {
    let any = prop::collection::vec(step(), 1..=STEPS_MAX);

    prop_oneof![1 => any, 3 => served::steps()].prop_map(changes_of)
}

fn changes_of(steps: impl IntoIterator<Item = Step>) -> Changes {
    let mut changes = Changes::default();
    for step in steps {
        match step {
            Step::Put(object) => {
                let key = ObjectKey::of(&object);
                changes.objects.insert(key, Some(Arc::new(object)));
            }
            Step::Delete(object) => {
                changes.objects.insert(ObjectKey::of(&object), None);
            }
            Step::Namespace(name, peer) => {
                let name = NAMESPACES[name].to_owned();
                let namespace = peer.map(|peer| namespace(&name, PEERS[peer]));
                changes.namespaces.insert(name, namespace);
            }
            Step::Blocks(name, blocks) => {
                let blocks = blocks.map(|(node, third)| Blocks {
                    node: NODES[node].to_owned(),
                    cidrs: vec![ipnet::Ipv4Net::new_assert([10, 0, third, 0].into(), 25)],
                });
                changes.blocks.insert(name.to_string(), blocks);
            }
        }
    }

    changes
}

fn own_network(name: &str, cidr: &str) -> Network {
    from_value(json!({
        "metadata": {"name": name, "namespace": "liqo", "labels": {labels::NETWORK_TYPE: name}},
        "spec": {"cidr": cidr},
        "status": {"cidr": cidr},
    }))
    .expect("the generated objects are valid")
}

fn namespace(name: &str, peer: &str) -> ObjectMeta {
    from_value(json!({
        "name": name,
        "labels": {labels::REMOTE_CLUSTER_ID: peer, labels::TENANT_NAMESPACE: "true"},
    }))
    .expect("the generated objects are valid")
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => object().prop_map(Step::Put),
        4 => object().prop_map(Step::Delete),
        1 => (0..4_usize, prop::option::weighted(0.8, 0..4_usize))
            .prop_map(|(name, peer)| Step::Namespace(name, peer)),
        1 => (0..3_usize, prop::option::of((0..3_usize, 0..4_u8)))
            .prop_map(|(name, blocks)| Step::Blocks(name, blocks)),
    ]
}

fn object() -> impl Strategy<Value = Object> {
    prop_oneof![
        6 => node(),
        6 => ip(),
        4 => configuration(),
        3 => gateway(),
        3 => key(),
        2 => slice(),
        2 => user_network(),
        1 => of_cluster(),
    ]
}

/// An address of a node, of the underlay, of pods, or of a peer's CIDRs.
fn address() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => (0..3_u8, 0..4_u8).prop_map(|(third, host)| format!("10.0.{third}.{host}")),
        3 => (1..5_u8).prop_map(|host| format!("172.16.0.{host}")),
        2 => (0..4_u8, 0..3_u8).prop_map(|(third, host)| format!("10.1.{third}.{host}")),
        1 => (0..4_u8).prop_map(|host| format!("10.96.0.{host}")),
        1 => Just("10.70.0.9".to_owned()),
        1 => Just("192.0.2.1".to_owned()),
        1 => Just("nonsense".to_owned()),
    ]
}

/// A CIDR that a peer or a user's Network may have.
fn claimed() -> impl Strategy<Value = String> {
    prop_oneof![
        12 => (0..6_u8).prop_map(|third| format!("10.1.{third}.0/24")),
        2 => (0..3_u8).prop_map(|half| format!("10.1.{}.0/23", half * 2)),
        1 => Just("10.1.1.128/25".to_owned()),
        1 => Just("172.16.0.0/24".to_owned()),
        1 => Just("10.70.0.0/25".to_owned()),
        1 => Just("nonsense".to_owned()),
    ]
}

fn node() -> BoxedStrategy<Object> {
    let strategy = (
        0..3_usize,
        prop::option::weighted(0.9, 1..4_u8),
        0..3_u8,
        any::<bool>(),
    );
    strategy
        .prop_flat_map(|parts| (Just(parts), 0..8_u8))
        .prop_map(|((name, host, third, ready), rare)| {
            let cidrs = match rare {
                0 => vec!["10.0.0.0/23".to_owned()],
                1 => vec!["192.0.2.0/24".to_owned()],
                3 => vec!["10.0.0.0/16".to_owned()],
                _ => vec![format!("10.0.{third}.0/24")],
            };
            let labels = if rare == 2 {
                json!({labels::NODE_TYPE: labels::NODE_TYPE_VIRTUAL})
            } else {
                json!({})
            };
            let address = host.map(|host| format!("172.16.0.{host}"));
            node_of(NODES[name], address.as_deref(), &cidrs, ready, &labels)
        })
        .boxed()
}

fn node_of(
    name: &str,
    address: Option<&str>,
    cidrs: &[String],
    ready: bool,
    labels: &Value,
) -> Object {
    let addresses = address.map(|address| json!([{"type": "InternalIP", "address": address}]));
    object_of::<Node>(json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"podCIDRs": cidrs},
        "status": {
            "addresses": addresses,
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
        },
    }))
}

fn ip() -> BoxedStrategy<Object> {
    let of_node = (0..3_usize, 1..4_u8, 0..10_u8).prop_map(|(node, host, rare)| {
        let namespace = if rare == 0 { "developers" } else { "liqo" };
        let name = format!("node-{}", NODES[node]);
        let status = json!({"ip": format!("10.70.0.{host}")});
        ip_of(
            &name,
            namespace,
            &format!("172.16.0.{host}"),
            &status,
            &Value::Null,
            0,
        )
    });
    let names = (
        0..4_usize,
        2..4_usize,
        address(),
        prop::option::weighted(0.9, prop_oneof![9 => 1..9_u8, 1 => Just(255)]),
        0..6_u8,
        0..3_i64,
    );
    let other = names.prop_map(|(name, space, address, host, network, age)| {
        let (network, status) = match (network, host) {
            (0, Some(host)) => (
                json!({"name": "user", "namespace": "developers"}),
                json!({"ip": format!("10.1.1.{host}")}),
            ),
            (1, Some(host)) => (
                json!({"name": "user"}),
                json!({"ip": format!("10.1.0.{host}")}),
            ),
            (_, Some(host)) => (Value::Null, json!({"ip": format!("10.70.0.{host}")})),
            (_, None) => (Value::Null, Value::Null),
        };
        ip_of(
            &format!("ip-{name}"),
            NAMESPACES[space],
            &address,
            &status,
            &network,
            age,
        )
    });
    prop_oneof![of_node, other].boxed()
}

fn ip_of(
    name: &str,
    namespace: &str,
    ip: &str,
    status: &Value,
    network: &Value,
    age: i64,
) -> Object {
    object_of::<IP>(json!({
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": created(age)},
        "spec": {"ip": ip, "networkRef": network},
        "status": status,
    }))
}

fn of_peer(kind: usize, peer: usize, namespace: usize, age: i64) -> Value {
    // The namespace is usually that of the peer.
    let namespace = if namespace < 4 {
        NAMESPACES[namespace]
    } else {
        NAMESPACES[1 + peer % 2]
    };
    json!({
        "name": format!("{}-{}", PEERS[peer], kind),
        "namespace": namespace,
        "labels": {labels::REMOTE_CLUSTER_ID: PEERS[peer]},
        "creationTimestamp": created(age),
        "uid": "1",
    })
}

fn peering() -> impl Strategy<Value = (usize, usize, usize, i64)> {
    let peer = prop_oneof![8 => 0..2_usize, 1 => 2..4_usize];
    (0..2_usize, peer, 0..16_usize, 0..3_i64)
}

fn configuration() -> BoxedStrategy<Object> {
    let remote = (claimed(), prop::option::of(claimed()), 0..12_u8);
    (peering(), remote)
        .prop_map(|((kind, peer, namespace, age), (pod, external, rare))| {
            let mut metadata = of_peer(kind, peer, namespace, age);
            let generation = i64::from(rare < 4) + 1;
            metadata["generation"] = json!(generation);
            let external: Vec<_> = external.into_iter().collect();
            let bits = |cidr: &String| cidr.split_once('/').map_or("24".to_owned(), |it| it.1.to_owned());
            let original = |second: u8, cidr: &String| format!("10.{second}.0.0/{}", bits(cidr));
            let spec_external: Vec<_> = external.iter().map(|cidr| original(201, cidr)).collect();
            let reason = if rare == 2 { "WaitingForNetworks" } else { "NetworkCIDRsConfigured" };
            let condition = json!({
                "type": "NetworkCIDRsConfigured",
                "status": if rare == 3 { "False" } else { "True" },
                "reason": reason,
                "message": "",
                "lastTransitionTime": created(0),
                "observedGeneration": if rare < 2 { 1 } else { generation },
            });
            object_of::<Configuration>(json!({
                "metadata": metadata,
                "spec": {"remote": {"cidr": {"pod": [original(200, &pod)], "external": spec_external}}},
                "status": {
                    "remote": {"cidr": {"pod": [pod], "external": external}},
                    "conditions": [condition],
                },
            }))
        })
        .boxed()
}

fn gateway() -> BoxedStrategy<Object> {
    (peering(), any::<bool>(), address(), 0..8_u8)
        .prop_map(|((kind, peer, namespace, age), is_server, address, rare)| {
            let metadata = of_peer(kind, peer, namespace, age);
            let mtu = if rare == 0 { 1 } else { 1340 };
            if is_server {
                return object_of::<GatewayServer>(
                    json!({"metadata": metadata, "spec": {"mtu": mtu}}),
                );
            }
            let addresses = if rare == 1 { vec![] } else { vec![address] };
            object_of::<GatewayClient>(json!({
                "metadata": metadata,
                "spec": {"mtu": mtu, "endpoint": {"addresses": addresses, "port": 51840}},
            }))
        })
        .boxed()
}

fn key() -> BoxedStrategy<Object> {
    (peering(), 0..5_u8)
        .prop_map(|((kind, peer, namespace, age), byte)| {
            let bytes = if byte == 4 {
                vec![1; 7]
            } else {
                vec![byte; 32]
            };
            let mut key = PublicKey {
                metadata: from_value(of_peer(kind, peer, namespace, age))
                    .expect("the generated objects are valid"),
                ..PublicKey::default()
            };
            key.spec.public_key = Some(k8s_openapi::ByteString(bytes));
            key.into()
        })
        .boxed()
}

fn slice() -> BoxedStrategy<Object> {
    let endpoint = (0..4_usize, address(), 0..3_u8, any::<bool>());
    (0..2_u8, prop::collection::vec(endpoint, 0..3))
        .prop_map(|(name, endpoints)| {
            let endpoints: Vec<_> = endpoints
                .into_iter()
                .map(|(node, address, pod, ready)| {
                    json!({
                        "addresses": [address],
                        "nodeName": NODES.get(node).unwrap_or(&"unknown"),
                        "targetRef": {"kind": "Pod", "name": format!("gateway-{pod}")},
                        "conditions": {"ready": ready},
                    })
                })
                .collect();
            slice_of(&format!("slice-{name}"), &endpoints)
        })
        .boxed()
}

fn slice_of(name: &str, endpoints: &[Value]) -> Object {
    object_of::<EndpointSlice>(json!({
        "metadata": {
            "name": name,
            "namespace": "liqo",
            "labels": {labels::COMPONENT: labels::COMPONENT_GATEWAY},
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
    }))
}

fn user_network() -> BoxedStrategy<Object> {
    (0..2_usize, 0..4_usize, claimed(), 0..8_u8, 0..3_i64)
        .prop_map(|(name, namespace, cidr, rare, age)| {
            let labels = match rare {
                0 => json!({labels::NETWORK_NOT_REMAPPED: "true"}),
                1 => json!({labels::NETWORK_SHARED: "true"}),
                2 => json!({labels::NETWORK_SHARED: "true", labels::NETWORK_NOT_REMAPPED: "true"}),
                _ => json!({}),
            };
            let status = if rare == 3 {
                Value::Null
            } else {
                json!({"cidr": cidr})
            };
            object_of::<Network>(json!({
                "metadata": {
                    "name": if name == 0 { "user" } else { "other" },
                    "namespace": NAMESPACES[namespace],
                    "labels": labels,
                    "creationTimestamp": created(age),
                },
                "spec": {"cidr": cidr},
                "status": status,
            }))
        })
        .boxed()
}

/// Networks of the cluster itself, rarely invalid or in a wrong namespace.
fn of_cluster() -> BoxedStrategy<Object> {
    (0..4_usize, 0..10_u8)
        .prop_map(|(which, rare)| {
            let (name, cidr) = [
                ("pod-cidr", "10.0.0.0/16"),
                ("service-cidr", "10.96.0.0/16"),
                ("external-cidr", "10.70.0.0/24"),
                ("internal-cidr", "10.80.0.0/24"),
            ][which];
            let cidr = match rare {
                0 => "nonsense",
                1 => "172.16.0.0/24",
                _ => cidr,
            };
            let mut network = own_network(name, cidr);
            if rare > 5 {
                network.metadata.namespace = Some("developers".to_owned());
            }
            network.into()
        })
        .boxed()
}

fn object_of<K: serde::de::DeserializeOwned + Into<Object>>(value: Value) -> Object {
    from_value::<K>(value)
        .expect("the generated objects are valid")
        .into()
}

fn created(age: i64) -> String {
    format!("2026-01-01T00:00:0{age}Z")
}
