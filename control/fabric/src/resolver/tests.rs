//! The incremental resolution equals that of all objects, over random changes.

use super::*;
use crate::resolve::LastGood;
use control_api::{Configuration, GatewayClient, GatewayServer, IP, Network, PublicKey, labels};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use proptest::prelude::*;
use serde_json::{Value, from_value, json};

/// Peers, nodes and addresses are few, so that random objects are often connected and often invalid.
const PEERS: [&str; 4] = ["milan", "naples", "rome", ""];
const NAMESPACES: [&str; 4] = [
    "liqo",
    "liqo-tenant-milan",
    "liqo-tenant-naples",
    "developers",
];
const NODES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Step {
    Put(Object),
    Delete(Object),
    Namespace(usize, Option<usize>),
    Blocks(usize, Option<(usize, u8)>),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn the_incremental_resolution_equals_that_of_all_objects(
        batches in prop::collection::vec(prop::collection::vec(step(), 1..4), 1..60)
    ) {
        let mut resolver = Resolver::new("liqo", &["developers".to_owned()]);
        let mut all = All::default();
        let mut partial = 0;
        let first = [cluster()].into_iter();
        for batch in first.chain(batches) {
            let changes = all.apply(batch);
            partial += usize::from(!resolver.is_global);
            let incremental = resolver.apply(changes).clone();

            let (complete, tenants) = all.resolve();
            prop_assert_eq!(&incremental, &complete);
            prop_assert_eq!(&*resolver.tenants, &tenants);
        }
        prop_assert!(partial > 0);
    }
}

/// Number of random sequences; one sequence takes about 10 ms.
const CASES: u32 = 300;

/// All objects, and the last good Configurations.
#[derive(Default)]
struct All {
    objects: BTreeMap<ObjectKey, Object>,
    namespaces: BTreeMap<String, ObjectMeta>,
    blocks: BTreeMap<String, Blocks>,
    last_good: LastGood,
}

impl All {
    fn apply(&mut self, batch: Vec<Step>) -> Changes {
        let mut changes = Changes::default();
        for step in batch {
            match step {
                Step::Put(object) => {
                    let key = ObjectKey::of(&object);
                    self.objects.insert(key.clone(), object.clone());
                    changes.objects.insert(key, Some(Arc::new(object)));
                }
                Step::Delete(object) => {
                    let key = ObjectKey::of(&object);
                    self.objects.remove(&key);
                    changes.objects.insert(key, None);
                }
                Step::Namespace(name, peer) => {
                    let name = NAMESPACES[name].to_owned();
                    let namespace = peer.map(|peer| namespace(&name, PEERS[peer]));
                    match namespace.clone() {
                        Some(namespace) => self.namespaces.insert(name.clone(), namespace),
                        None => self.namespaces.remove(&name),
                    };
                    changes.namespaces.insert(name, namespace);
                }
                Step::Blocks(name, blocks) => {
                    let blocks = blocks.map(|(node, third)| Blocks {
                        node: NODES[node].to_owned(),
                        cidrs: vec![format!("10.0.{third}.0/25").parse().unwrap()],
                    });
                    let name = name.to_string();
                    match blocks.clone() {
                        Some(blocks) => self.blocks.insert(name.clone(), blocks),
                        None => self.blocks.remove(&name),
                    };
                    changes.blocks.insert(name, blocks);
                }
            }
        }

        changes
    }

    /// Resolves all objects, without any state but the last good Configurations.
    fn resolve(&mut self) -> (Resolution, BTreeMap<String, String>) {
        let tenancy = Tenancy {
            liqo: "liqo".to_owned(),
            named: vec!["developers".to_owned()],
            labelled: self.namespaces.values().cloned().collect(),
        };
        let mut objects = Objects::default();
        objects.extend(self.objects.values().cloned());
        let tenants = tenancy.tenant_namespaces(&objects);
        let misplaced = tenancy.prune(&mut objects);
        self.assign_blocks(&mut objects);
        let mut resolution = self.last_good.resolve(objects);
        resolution.refuse(misplaced);

        (resolution, tenants)
    }

    fn assign_blocks(&self, objects: &mut Objects) {
        let pods = objects.iter().filter(|object| {
            matches!(object, Object::Network(_))
                && object.label_value(labels::NETWORK_TYPE) == Some(labels::NETWORK_TYPE_POD)
        });
        let pods = pods.filter_map(|object| <&Network>::try_from(object).ok());
        let pods = pods.filter_map(|network| network.spec.cidr.parse().ok());
        let pods: Vec<_> = pods.collect();
        let of_nodes = blocks::assign(&pods, self.blocks.values());
        for object in objects.iter_mut().filter(|_| !of_nodes.is_empty()) {
            if let Object::Node(node) = object {
                let name = node.metadata.name.clone().unwrap();
                let spec = node.spec.get_or_insert_default();
                spec.pod_cidr = None;
                spec.pod_cidrs = Some(of_nodes.get(&name).cloned().unwrap_or_default());
            }
        }
    }
}

/// The objects of the cluster itself, and some that are served.
fn cluster() -> Vec<Step> {
    let network = |name: &str, cidr: &str| -> Object { own_network(name, cidr).into() };
    let id = json!({
        "metadata": {"name": "id", "namespace": "liqo", "labels": {labels::APP_NAME: labels::CLUSTER_ID_CONFIG_MAP}},
        "data": {"CLUSTER_ID": "rome"},
    });
    let objects = [
        from_value::<ConfigMap>(id).unwrap().into(),
        network("pod-cidr", "10.0.0.0/16"),
        network("service-cidr", "10.96.0.0/16"),
        network("external-cidr", "10.70.0.0/24"),
    ];
    let mut steps: Vec<_> = objects.into_iter().map(Step::Put).collect();
    steps.extend([Step::Namespace(1, Some(0)), Step::Namespace(2, Some(1))]);

    steps
}

fn own_network(name: &str, cidr: &str) -> Network {
    from_value(json!({
        "metadata": {"name": name, "namespace": "liqo", "labels": {labels::NETWORK_TYPE: name}},
        "spec": {"cidr": cidr},
        "status": {"cidr": cidr},
    }))
    .unwrap()
}

fn namespace(name: &str, peer: &str) -> ObjectMeta {
    from_value(json!({
        "name": name,
        "labels": {labels::REMOTE_CLUSTER_ID: peer, labels::TENANT_NAMESPACE: "true"},
    }))
    .unwrap()
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
                _ => vec![format!("10.0.{third}.0/24")],
            };
            let labels = if rare == 2 { json!({labels::NODE_TYPE: labels::NODE_TYPE_VIRTUAL}) } else { json!({}) };
            let addresses = host.map(|host| json!([{"type": "InternalIP", "address": format!("172.16.0.{host}")}]));
            object_of::<Node>(json!({
                "metadata": {"name": NODES[name], "labels": labels},
                "spec": {"podCIDRs": cidrs},
                "status": {
                    "addresses": addresses,
                    "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
                },
            }))
        })
        .boxed()
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
        prop::option::weighted(0.9, 1..9_u8),
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
                metadata: from_value(of_peer(kind, peer, namespace, age)).unwrap(),
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
            object_of::<EndpointSlice>(json!({
                "metadata": {
                    "name": format!("slice-{name}"),
                    "namespace": "liqo",
                    "labels": {labels::COMPONENT: labels::COMPONENT_GATEWAY},
                },
                "addressType": "IPv4",
                "endpoints": endpoints,
            }))
        })
        .boxed()
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

/// Networks of the cluster itself, seldom invalid or in a wrong namespace.
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
    from_value::<K>(value).unwrap().into()
}

fn created(age: i64) -> String {
    format!("2026-01-01T00:00:0{age}Z")
}
