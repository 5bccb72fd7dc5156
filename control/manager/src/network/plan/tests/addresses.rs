//! Networks, nodes and IPs.

use super::*;
use crate::network::item::WorkItem;
use crate::network::write::Action;

fn remapped_cidrs(rome: &Cluster, peer: &str) -> Value {
    let key = Key::new(format!("liqo-tenant-{peer}"), peer);
    rome.get(Kind::Configuration, &key)["status"]["remote"]["cidr"].clone()
}

#[test]
fn the_networks_of_the_chart_keep_their_cidrs_and_nodes_get_addresses() {
    let rome = rome();

    for (name, cidr) in [
        ("pod-cidr", "10.244.0.0/16"),
        ("external-cidr", "10.70.0.0/16"),
    ] {
        let network = rome.get(Kind::Network, &Key::new("liqo", name));
        assert_eq!(network["status"]["cidr"], cidr);
    }
    let ip = rome.get(Kind::Ip, &Key::new("liqo", "node-rome-2"));
    assert_eq!(ip["spec"]["ip"], "172.18.1.3");
    assert_eq!(
        ip["status"],
        json!({"cidr": "10.70.0.0/16", "ip": "10.70.0.2"})
    );
    assert_eq!(
        ip["metadata"]["labels"],
        json!({
            "liqo.io/managed": "true",
            "ipam.liqo.io/ip-type": "node",
            "ipam.liqo.io/network-name": "external-cidr",
            "ipam.liqo.io/network-namespace": "liqo",
        })
    );
}

#[test]
fn leftovers_of_a_stopped_manager_are_removed() {
    let mut rome = rome();
    with_milan(&mut rome);
    rome.remove_alone(Kind::Configuration, &key("milan"));
    rome.remove_alone(Kind::Node, &Key::cluster("rome-2"));

    rome.restart();
    rome.settle();

    assert_eq!(rome.names(Kind::Network).len(), 4);
    assert_eq!(rome.names(Kind::Ip), ["liqo/node-rome-1"]);
}

#[test]
fn the_ip_of_a_node_follows_its_address_and_a_virtual_node_gets_none() {
    let mut rome = rome();

    rome.edit(
        Kind::Node,
        &Key::cluster("rome-1"),
        node("rome-1", "172.18.1.77"),
    );
    let mut virtual_node = node("milan", "10.244.9.9");
    virtual_node["metadata"]["labels"] = json!({"liqo.io/type": "virtual-node"});
    rome.put(Kind::Node, virtual_node);
    rome.settle();

    let ip = rome.get(Kind::Ip, &Key::new("liqo", "node-rome-1"));
    assert_eq!(ip["spec"]["ip"], "172.18.1.77");
    assert!(ip["status"]["ip"].is_string());
    assert_eq!(rome.names(Kind::Ip).len(), 2);
}

#[test]
fn a_deleted_ip_of_a_node_is_created_again() {
    let mut rome = rome();

    rome.delete(Kind::Ip, &Key::new("liqo", "node-rome-1"));
    rome.settle();

    let ip = rome.get(Kind::Ip, &Key::new("liqo", "node-rome-1"));
    assert_eq!(ip["status"]["ip"], "10.70.0.1");
}

#[test]
fn deleted_ips_of_nodes_get_the_same_addresses_again() {
    let mut rome = rome();
    let keys = ["node-rome-1", "node-rome-2"].map(|name| Key::new("liqo", name));
    let before = keys
        .each_ref()
        .map(|key| rome.get(Kind::Ip, key)["status"].clone());

    for key in keys.iter() {
        rome.delete(Kind::Ip, key);
    }
    let ip = json!({"metadata": {"name": "a", "namespace": "liqo"}, "spec": {"ip": "192.0.2.9"}});
    let other = rome.put(Kind::Ip, ip);
    // The requests of the nodes' items are in progress when these items are planned.
    for key in keys.iter().chain([&other]) {
        rome.work(&WorkItem::Ip(key.clone()));
    }
    rome.settle();

    for (key, before) in keys.iter().zip(before) {
        assert_eq!(rome.get(Kind::Ip, key)["status"], before, "{key}");
    }
    rome.delete(Kind::Ip, &keys[0]);
    rome.delete(Kind::Node, &Key::cluster("rome-1"));
    rome.settle();
    let ip = json!({"metadata": {"name": "b", "namespace": "liqo"}, "spec": {"ip": "192.0.2.8"}});
    let key = rome.put(Kind::Ip, ip);
    rome.settle();
    assert_eq!(
        rome.get(Kind::Ip, &key)["status"]["ip"],
        "10.70.0.1",
        "the node is gone"
    );
}

#[test]
fn service_and_slice_of_an_ip_follow_its_template() {
    let mut rome = rome();
    let template = json!({
        "metadata": {"labels": {"app": "printer"}},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    });
    let name = rome.put(
        Kind::Ip,
        json!({
            "metadata": {"name": "printer", "namespace": "office"},
            "spec": {"ip": "192.0.2.9", "serviceTemplate": template},
        }),
    );
    rome.settle();

    let slice = rome.get(Kind::EndpointSlice, &name);
    assert_eq!(slice["endpoints"][0]["addresses"], json!(["192.0.2.9"]));
    assert_eq!(
        slice["ports"],
        json!([{"name": "http", "port": 80, "protocol": "TCP"}])
    );
    assert_eq!(
        rome.get(Kind::Service, &name)["metadata"]["labels"]["app"],
        "printer"
    );
    rome.delete(Kind::Service, &name);
    rome.settle();
    assert!(!rome.get(Kind::Service, &name).is_null(), "it is restored");
    rome.remove_alone(Kind::Ip, &name);
    rome.settle();
    assert!(rome.names(Kind::Service).is_empty() && rome.names(Kind::EndpointSlice).is_empty());
}

#[test]
fn an_ip_waits_for_a_network_that_is_created_later() {
    let mut rome = rome();
    let name = rome.put(
        Kind::Ip,
        json!({
            "metadata": {"name": "web", "namespace": "demo"},
            "spec": {"ip": "10.244.2.30", "networkRef": {"name": "more", "namespace": "demo"}},
        }),
    );
    rome.settle();
    let reported = rome
        .notices
        .iter()
        .any(|it| it.note.contains("there is no Network demo/more"));

    rome.put(
        Kind::Network,
        json!({
            "metadata": {"name": "more", "namespace": "demo"},
            "spec": {"cidr": "10.60.0.0/30", "preAllocated": 2},
        }),
    );
    rome.settle();

    assert!(reported);
    assert_eq!(rome.get(Kind::Ip, &name)["status"]["ip"], "10.60.0.2");
}

#[test]
fn a_manually_edited_status_is_corrected() {
    let mut rome = rome();
    with_milan(&mut rome);
    let network = key("milan-pod-10-244-0-0-16");
    let before = remapped_cidrs(&rome, "milan");

    rome.edit(
        Kind::Network,
        &network,
        json!({"status": {"cidr": "1.2.3.4/30"}}),
    );
    let nonsense = json!({"status": {"remote": {"cidr": {"pod": ["x"]}}}});
    rome.edit(Kind::Configuration, &key("milan"), nonsense);
    rome.settle();

    assert_eq!(remapped_cidrs(&rome, "milan"), before);
    assert_eq!(
        rome.get(Kind::Network, &network)["status"]["cidr"],
        before["pod"][0]
    );
}

/// Two successive leaders have allocated one CIDR to two Networks, and one address to two IPs. Each later
/// leader makes the same decision, independent of the names: the older object keeps its CIDR or address.
#[test]
fn the_older_object_keeps_a_cidr_or_address_that_was_allocated_twice() {
    let [mut first, mut second] = [rome(), rome()];
    for (rome, names) in [(&mut first, ["a", "z"]), (&mut second, ["z", "a"])] {
        for name in names {
            let peer = format!("peer-{name}");
            rome.put(
                Kind::Configuration,
                configuration(&peer, &["10.1.0.0/16"], &["10.70.0.0/16"]),
            );
            rome.settle();
            let metadata = json!({"name": name, "namespace": "demo"});
            rome.put(
                Kind::Ip,
                json!({"metadata": metadata, "spec": {"ip": "10.244.2.30"}}),
            );
            rome.settle();
        }
        let [older, younger] = names.map(|name| {
            let namespace = format!("liqo-tenant-peer-{name}");
            Key::new(namespace, format!("peer-{name}-pod-10-1-0-0-16"))
        });
        let [older_ip, younger_ip] = names.map(|name| Key::new("demo", name));
        let cidr = rome.get(Kind::Network, &older)["status"].clone();
        let address = rome.get(Kind::Ip, &older_ip)["status"].clone();
        rome.store_silently(Kind::Network, &younger, json!({"status": cidr}));
        rome.store_silently(Kind::Ip, &younger_ip, json!({"status": address}));

        rome.restart();
        let writes = rome.settle();

        assert_eq!(rome.get(Kind::Network, &older)["status"], cidr);
        assert_eq!(rome.get(Kind::Ip, &older_ip)["status"], address);
        let other = &rome.get(Kind::Network, &younger)["status"]["cidr"];
        assert!(other.is_string() && *other != cidr["cidr"], "{other}");
        let other = &rome.get(Kind::Ip, &younger_ip)["status"]["ip"];
        assert!(other.is_string() && *other != address["ip"], "{other}");
        let claims = writes
            .iter()
            .filter(|it| matches!(it.action, Action::Status(_)));
        let decided = claims.filter(|it| matches!(it.kind, Kind::Network | Kind::Ip));
        assert_eq!(decided.count(), 2, "{writes:?}");
        assert_eq!(rome.settle(), [], "it has converged");
    }
}

#[test]
fn an_ip_of_a_user_with_the_name_of_a_nodes_ip_is_reported_once() {
    let mut rome = rome();
    let metadata = json!({"name": "node-rome-3", "namespace": "liqo"});
    rome.put(
        Kind::Ip,
        json!({"metadata": metadata, "spec": {"ip": "192.0.2.9"}}),
    );

    rome.put(Kind::Node, node("rome-3", "172.18.1.4"));
    rome.settle();

    let key = Key::new("liqo", "node-rome-3");
    assert_eq!(rome.get(Kind::Ip, &key)["spec"]["ip"], "192.0.2.9");
    let reasons = rome.notices.iter().map(|it| it.reason);
    assert_eq!(Vec::from_iter(reasons), ["NameTaken"]);
}
