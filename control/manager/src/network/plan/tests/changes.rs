//! A change of one object plans the items of that object only, independent of the number of peers and nodes.

use super::*;
use crate::network::item::WorkItem;

const PEERS: u8 = 12;

/// Returns the kinds of items that a change plans until convergence, and checks that each names one of
/// `names`.
fn planned(rome: &mut Cluster, names: &[&str], change: impl FnOnce(&mut Cluster)) -> Vec<String> {
    rome.planned.clear();
    change(rome);
    rome.settle();
    let items = rome
        .planned
        .drain(..)
        .map(|item: WorkItem| item.to_string());
    let mut items: Vec<_> = items.collect();
    for item in &items {
        assert!(names.iter().any(|name| item.contains(name)), "{items:?}");
    }
    items.sort();
    items.dedup();
    items
}

fn with_peers() -> Cluster {
    let mut rome = rome();
    for number in 0..PEERS {
        let peer = format!("peer-{number:02}");
        let pods = configuration(&peer, &["10.244.0.0/16"], &["10.70.0.0/16"]);
        rome.put(Kind::Configuration, pods);
        let endpoint = json!({"serviceType": "ClusterIP", "port": 51840});
        rome.put(Kind::GatewayServer, server(&peer, &endpoint));
        rome.put(Kind::PublicKey, public_key(&peer, number));
        let template = json!({"spec": {"ports": [{"port": 80}]}});
        let spec = json!({"ip": format!("192.0.2.{number}"), "serviceTemplate": template});
        let metadata = json!({"name": format!("web-{number:02}"), "namespace": "demo"});
        rome.put(Kind::Ip, json!({"metadata": metadata, "spec": spec}));
    }
    rome.settle();
    rome
}

#[test]
fn a_private_key_of_one_peer_plans_that_peer() {
    let mut rome = with_peers();
    let keys = Key::new("liqo", "liqo-gateway-keys");

    let items = planned(&mut rome, &["peer-03"], |rome| {
        let other = k8s_openapi::ByteString(vec![3; 32]);
        rome.edit(
            Kind::GatewayKeys,
            &keys,
            json!({"data": {"peer-03": other}}),
        );
    });

    assert_eq!(items, ["peer peer-03"]);
}

#[test]
fn a_node_plans_its_own_ip() {
    let mut rome = with_peers();

    let items = planned(&mut rome, &["rome-3"], |rome| {
        rome.put(Kind::Node, node("rome-3", "172.18.1.4"));
    });
    assert_eq!(items, ["ip liqo/node-rome-3", "node rome-3"]);

    let items = planned(&mut rome, &["rome-3", "demo/web-07"], |rome| {
        rome.edit(
            Kind::Node,
            &Key::cluster("rome-3"),
            node("rome-3", "192.0.2.7"),
        );
    });
    assert!(
        items.contains(&"ip demo/web-07".to_owned()),
        "its address is a node's now: {items:?}"
    );
}

#[test]
fn an_ip_plans_itself() {
    let mut rome = with_peers();
    let ip = Key::new("demo", "web-05");

    let items = planned(&mut rome, &["demo/web-05"], |rome| {
        rome.edit(Kind::Ip, &ip, json!({"metadata": {"labels": {"app": "x"}}}));
    });

    assert_eq!(items, ["ip demo/web-05"]);
}

#[test]
fn a_configuration_plans_its_networks_and_its_peer() {
    let mut rome = with_peers();
    let key = Key::new("liqo-tenant-peer-04", "peer-04");

    let items = planned(&mut rome, &["peer-04"], |rome| {
        let cidr = json!({"spec": {"remote": {"cidr": {"pod": ["10.33.0.0/16"]}}}});
        rome.edit(Kind::Configuration, &key, cidr);
    });

    // The Network of the old CIDR, that of the new one, the Configuration, and the peer.
    let kinds = |kind: &str| items.iter().filter(|it| it.starts_with(kind)).count();
    assert_eq!(
        (kinds("network "), kinds("configuration "), kinds("peer ")),
        (2, 1, 1),
        "{items:?}"
    );
    assert_eq!(items.len(), 4, "{items:?}");
}

#[test]
fn a_key_that_two_peers_publish_plans_both() {
    let mut rome = with_peers();
    let key = Key::new("liqo-tenant-peer-02", "peer-02");

    let mut items = planned(&mut rome, &["peer-02", "peer-09", "service "], |rome| {
        rome.edit(Kind::PublicKey, &key, public_key("peer-02", 9));
    });

    // The GatewayServer of one peer reports the conflict. All GatewayServers request one Service.
    items.retain(|item| item != "secret_watch liqo-tenant-peer-09");
    assert!(items.pop().is_some_and(|item| item.starts_with("service ")));
    assert_eq!(items, ["peer peer-02", "peer peer-09"]);
}
