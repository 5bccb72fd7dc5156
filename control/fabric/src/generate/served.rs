//! Changes with consistent objects, so that most of them are served.

use super::{
    NAMESPACES, NODES, PEERS, Step, created, ip_of, node_of, object_of, of_peer, slice_of,
};
use crate::objects::Object;
use control_api::{Configuration, GatewayClient, GatewayServer, PublicKey};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Generates the objects of a node, of a peer, of the gateway replicas, or an IP object.
pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![
        4 => node(),
        3 => peer(),
        3 => ip(),
        1 => replicas(),
    ]
}

/// A node with the IP object of its address; one of them is rarely deleted.
fn node() -> impl Strategy<Value = Vec<Step>> {
    let cidr = prop_oneof![6 => Just(Some(24)), 1 => Just(Some(16)), 1 => Just(None)];
    let parts = (0..3_u8, 0..2_u8, 0..2_u8, cidr, any::<bool>(), 0..8_u8);
    parts.prop_map(|(node, moved, external, len, ready, rare)| {
        let name = NODES[usize::from(node)];
        let address = format!("172.16.0.{}", 1 + node + 10 * moved);
        let cidrs = len.map(|len| match len {
            24 => format!("10.0.{node}.0/24"),
            _ => format!("10.0.0.0/{len}"),
        });
        let status = json!({"ip": format!("10.70.0.{}", 11 + node + 10 * external)});
        let ip = ip_of(
            &format!("node-{name}"),
            "liqo",
            &address,
            &status,
            &Value::Null,
            0,
        );
        let cidrs: Vec<_> = cidrs.into_iter().collect();
        let node = node_of(name, Some(&address), &cidrs, ready, &json!({}));

        match rare {
            0 => vec![Step::Delete(node)],
            1 => vec![Step::Delete(ip)],
            _ => vec![Step::Put(node), Step::Put(ip)],
        }
    })
}

/// A peer with all its objects; the Configuration is rarely deleted.
fn peer() -> impl Strategy<Value = Vec<Step>> {
    let cidrs = (0..2_usize, prop::option::of(0..2_usize));
    let gateway = (
        prop::option::of(0..2_u8),
        prop_oneof![Just(1340), Just(1400), Just(8900)],
    );
    let parts = (0..2_usize, cidrs, gateway, 0..3_u8, 0..6_u8);
    parts.prop_map(|(peer, (pod, external), (client, mtu), key, rare)| {
        let remapped = |first| move |number| format!("10.1.{}.0/24", first + 2 * peer + number);
        let external: Vec<_> = external.map(remapped(4)).into_iter().collect();
        let configuration = configuration(peer, &remapped(0)(pod), &external);
        if rare == 0 {
            return vec![Step::Delete(configuration)];
        }
        let bytes = k8s_openapi::ByteString(vec![10 * u8::from(peer > 0) + key; 32]);
        let key = json!({"metadata": of_peer(0, peer, 4, 0), "spec": {"publicKey": bytes}});
        let [gateway, other] = gateways(peer, client, mtu);

        vec![
            Step::Namespace(1 + peer, Some(peer)),
            Step::Put(configuration),
            Step::Put(gateway),
            Step::Delete(other),
            Step::Put(object_of::<PublicKey>(key)),
        ]
    })
}

fn configuration(peer: usize, pod: &str, external: &[String]) -> Object {
    let mut metadata = of_peer(0, peer, 4, 0);
    metadata["generation"] = json!(1);
    let original: Vec<_> = external.iter().map(|_| "10.201.0.0/24").collect();

    object_of::<Configuration>(json!({
        "metadata": metadata,
        "spec": {"remote": {"cidr": {"pod": ["10.200.0.0/24"], "external": original}}},
        "status": {
            "remote": {"cidr": {"pod": [pod], "external": external}},
            "conditions": [{
                "type": "NetworkCIDRsConfigured",
                "status": "True",
                "reason": "NetworkCIDRsConfigured",
                "message": "",
                "lastTransitionTime": created(0),
                "observedGeneration": 1,
            }],
        },
    }))
}

/// Returns the gateway object of the peer, and the one of the other role.
fn gateways(peer: usize, client: Option<u8>, mtu: u16) -> [Object; 2] {
    let metadata = of_peer(0, peer, 4, 0);
    let server = object_of::<GatewayServer>(json!({
        "metadata": metadata,
        "spec": {"mtu": mtu, "endpoint": {"port": 51840}},
    }));
    let address = format!("192.0.2.{}", client.unwrap_or_default());
    let endpoint = json!({"addresses": [address], "port": 51840});
    let of_client = object_of::<GatewayClient>(json!({
        "metadata": metadata,
        "spec": {"mtu": mtu, "endpoint": endpoint},
    }));

    match client {
        Some(_) => [of_client, server],
        None => [server, of_client],
    }
}

/// One to three gateway replicas, usually on nodes that exist.
fn replicas() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0..3_usize, any::<bool>()), 1..4).prop_map(|replicas| {
        let endpoints = (0..).zip(replicas).map(|(pod, (node, ready))| {
            json!({
                "addresses": [format!("10.0.{node}.{}", 200 + pod)],
                "nodeName": NODES[node],
                "targetRef": {"kind": "Pod", "name": format!("gateway-{pod}")},
                "conditions": {"ready": ready},
            })
        });
        let endpoints: Vec<_> = endpoints.collect();

        vec![Step::Put(slice_of("slice-0", &endpoints))]
    })
}

/// An IP object of a pod, a node, a Service, a peer's pod or an outside host.
fn ip() -> impl Strategy<Value = Vec<Step>> {
    let address = prop_oneof![
        4 => (0..3_u8).prop_map(|third| format!("10.0.{third}.9")),
        1 => (1..4_u8).prop_map(|host| format!("172.16.0.{host}")),
        1 => (1..3_u8).prop_map(|host| format!("10.96.0.{host}")),
        4 => (0..4_u8).prop_map(|third| format!("10.1.{third}.9")),
        1 => Just("192.0.2.9".to_owned()),
    ];
    let parts = (0..4_u8, 0..2_u8, any::<bool>(), address, 0..10_u8);
    parts.prop_map(|(name, other, masquerade, address, rare)| {
        let host = if rare == 1 {
            255
        } else {
            31 + name + 4 * other
        };
        let status = json!({"ip": format!("10.70.0.{host}")});
        let name = format!("ip-{name}");
        let mut ip = ip_of(&name, NAMESPACES[3], &address, &status, &Value::Null, 0);
        if let Object::IP(ip) = &mut ip {
            ip.spec.masquerade = Some(masquerade);
        }

        vec![if rare == 0 {
            Step::Delete(ip)
        } else {
            Step::Put(ip)
        }]
    })
}

/// Peers and namespaces have the same order.
const _: () = assert!(PEERS.len() == NAMESPACES.len());
