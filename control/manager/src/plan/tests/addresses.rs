//! Networks, Configurations, nodes and IPs.

use super::*;

fn seen(rome: &Cluster, peer: &str) -> Value {
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
fn a_configuration_gets_networks_local_cidrs_status_and_condition() {
    let mut rome = rome();

    with_milan(&mut rome);

    let configuration = rome.get(Kind::Configuration, &key("milan"));
    assert_eq!(
        configuration["spec"]["local"],
        json!({"cidr": {
            "external": ["10.70.0.0/16"],
            "pod": ["10.244.0.0/16"],
        }})
    );
    assert_eq!(
        condition(configuration, "NetworkCIDRsConfigured"),
        "True NetworkCIDRsConfigured: All network CIDRs are configured"
    );
    let observed = &configuration["status"]["conditions"][0]["observedGeneration"];
    assert_eq!(*observed, configuration["metadata"]["generation"]);
    let network = rome.get(Kind::Network, &key("milan-pod-10-244-0-0-16"));
    assert_eq!(
        network["metadata"]["labels"],
        json!({
            "liqo.io/remote-cluster-id": "milan",
            "configuration.liqo.io/cidr-type": "pod",
            "liqo.io/managed": "true",
        })
    );
    assert_eq!(
        network["metadata"]["ownerReferences"][0]["controller"],
        true
    );
    assert_eq!(seen(&rome, "milan")["pod"][0], network["status"]["cidr"]);
    assert_ne!(seen(&rome, "milan")["pod"][0], "10.244.0.0/16");
}

#[test]
fn the_peers_unknown_sources_get_an_address() {
    let mut rome = rome();

    with_milan(&mut rome);

    let ip = rome.get(Kind::Ip, &key("milan-unknown-source"));
    let external = seen(&rome, "milan")["external"][0].clone();
    let network = external
        .as_str()
        .unwrap()
        .split('/')
        .next()
        .unwrap()
        .to_owned();
    assert_eq!(ip["spec"]["ip"], network);
    assert_eq!(ip["status"]["cidr"], "10.70.0.0/16");
}

#[test]
fn statuses_are_aligned_with_the_spec_and_what_is_not_wanted_goes() {
    let mut rome = rome();
    with_milan(&mut rome);
    let before = seen(&rome, "milan");

    let three = json!(["10.9.0.0/16", "10.244.0.0/16", "10.8.0.0/24"]);
    let remote = |pod: &Value| json!({"spec": {"remote": {"cidr": {"pod": pod}}}});
    rome.edit(Kind::Configuration, &key("milan"), remote(&three));
    rome.settle();
    let grown = seen(&rome, "milan");
    rome.edit(
        Kind::Configuration,
        &key("milan"),
        remote(&json!(["10.8.0.0/24"])),
    );
    rome.settle();

    assert_eq!(
        grown["pod"],
        json!(["10.9.0.0/16", before["pod"][0], "10.8.0.0/24"])
    );
    assert_eq!(seen(&rome, "milan")["pod"], json!(["10.8.0.0/24"]));
    assert_eq!(rome.names(Kind::Network).len(), 4 + 2);
}

#[test]
fn what_is_decided_stays_over_restarts_and_whatever_comes() {
    let mut rome = rome();
    with_milan(&mut rome);
    let before = seen(&rome, "milan");

    rome.restart();
    let idle = rome.settle();
    rome.make(
        Kind::Configuration,
        configuration("naples", &["10.244.0.0/16"], &["10.70.0.0/16"]),
    );
    rome.restart();
    rome.settle();

    assert_eq!(idle, []);
    assert_eq!(seen(&rome, "milan"), before);
    let naples = seen(&rome, "naples");
    assert!(naples["pod"][0] != before["pod"][0] && naples["external"][0] != before["external"][0]);
}

#[test]
fn deleting_frees_cidrs_and_addresses() {
    let mut rome = rome();
    with_milan(&mut rome);
    let before = seen(&rome, "milan");

    rome.delete(Kind::Configuration, &key("milan"));
    rome.settle();
    rome.make(
        Kind::Configuration,
        configuration("naples", &["10.244.0.0/16"], &["10.70.0.0/16"]),
    );
    rome.settle();

    assert_eq!(seen(&rome, "naples"), before);
}

#[test]
fn what_a_dead_manager_left_is_removed() {
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
fn a_node_that_changes_its_address_gets_its_ip_anew_and_a_virtual_one_gets_none() {
    let mut rome = rome();

    rome.edit(
        Kind::Node,
        &Key::cluster("rome-1"),
        node("rome-1", "172.18.1.77"),
    );
    let mut virtual_node = node("milan", "10.244.9.9");
    virtual_node["metadata"]["labels"] = json!({"liqo.io/type": "virtual-node"});
    rome.make(Kind::Node, virtual_node);
    rome.settle();

    let ip = rome.get(Kind::Ip, &Key::new("liqo", "node-rome-1"));
    assert_eq!(ip["spec"]["ip"], "172.18.1.77");
    assert!(ip["status"]["ip"].is_string());
    assert_eq!(rome.names(Kind::Ip).len(), 2);
}

#[test]
fn a_deleted_ip_of_a_node_is_made_again() {
    let mut rome = rome();

    rome.delete(Kind::Ip, &Key::new("liqo", "node-rome-1"));
    rome.settle();

    let ip = rome.get(Kind::Ip, &Key::new("liqo", "node-rome-1"));
    assert_eq!(ip["status"]["ip"], "10.70.0.1");
}

#[test]
fn wrong_cidrs_are_refused_with_field_and_cure() {
    for (pod, expected) in [
        (json!([]), "spec.remote.cidr.pod is empty"),
        (
            json!(["nonsense"]),
            "spec.remote.cidr.pod[0]: `nonsense` is not a CIDR",
        ),
        (
            json!(["10.9.0.0/16", "10.9.1.0/24"]),
            "pod[1] overlaps spec.remote.cidr.pod[0]",
        ),
        (json!(["10.9.0.1/16"]), "write 10.9.0.0/16"),
    ] {
        let mut rome = rome();
        let remote = json!({"remote": {"cidr": {"pod": pod, "external": ["10.70.0.0/16"]}}});
        rome.make(Kind::Configuration, of_peer("milan", "milan", &remote));
        rome.settle();

        let found = condition(
            rome.get(Kind::Configuration, &key("milan")),
            "NetworkCIDRsConfigured",
        );
        assert!(
            found.starts_with("False InvalidCIDR") && found.contains(expected),
            "{found}"
        );
    }
}

#[test]
fn exhausted_pools_are_told_and_filled_when_there_is_room() {
    let mut rome = rome();
    for peer in ["milan", "naples", "turin", "genoa"] {
        rome.make(
            Kind::Configuration,
            configuration(peer, &["10.128.0.0/9"], &[]),
        );
        rome.settle();
    }

    let waiting: Vec<_> = ["milan", "naples", "turin", "genoa"]
        .into_iter()
        .filter(|peer| {
            let key = Key::new(format!("liqo-tenant-{peer}"), *peer);
            condition(
                rome.get(Kind::Configuration, &key),
                "NetworkCIDRsConfigured",
            )
            .contains("NetworkRefused")
        })
        .collect();

    assert_eq!(
        waiting.len(),
        4,
        "10.244.0.0/16 and 10.70.0.0/16 lie in both halves"
    );
    assert!(rome.notices.iter().any(|it| it.note.contains("add a pool")));
    rome.make(
        Kind::Configuration,
        configuration("milan", &["172.20.0.0/14"], &[]),
    );
    rome.settle();
    assert_eq!(seen(&rome, "milan")["pod"], json!(["172.20.0.0/14"]));
}

#[test]
fn no_cidr_of_a_peer_covers_a_node() {
    let mut rome = rome();

    rome.make(
        Kind::Configuration,
        configuration("milan", &["172.18.0.0/16"], &[]),
    );
    rome.settle();

    assert_ne!(seen(&rome, "milan")["pod"], json!(["172.18.0.0/16"]));
}

#[test]
fn an_ip_gets_service_and_slice_and_loses_them() {
    let mut rome = rome();
    let template = json!({
        "metadata": {"labels": {"app": "printer"}},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    });
    let name = rome.make(
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
fn an_ip_of_a_network_that_comes_later_waits_for_it() {
    let mut rome = rome();
    let name = rome.make(
        Kind::Ip,
        json!({
            "metadata": {"name": "web", "namespace": "demo"},
            "spec": {"ip": "10.244.2.30", "networkRef": {"name": "more", "namespace": "demo"}},
        }),
    );
    rome.settle();
    let told = rome
        .notices
        .iter()
        .any(|it| it.note.contains("there is no Network demo/more"));

    rome.make(
        Kind::Network,
        json!({
            "metadata": {"name": "more", "namespace": "demo"},
            "spec": {"cidr": "10.60.0.0/30", "preAllocated": 2},
        }),
    );
    rome.settle();

    assert!(told);
    assert_eq!(rome.get(Kind::Ip, &name)["status"]["ip"], "10.60.0.2");
}

#[test]
fn a_status_edited_by_hand_is_put_right() {
    let mut rome = rome();
    with_milan(&mut rome);
    let network = key("milan-pod-10-244-0-0-16");
    let before = seen(&rome, "milan");

    rome.edit(
        Kind::Network,
        &network,
        json!({"status": {"cidr": "1.2.3.4/30"}}),
    );
    let nonsense = json!({"status": {"remote": {"cidr": {"pod": ["x"]}}}});
    rome.edit(Kind::Configuration, &key("milan"), nonsense);
    rome.settle();

    assert_eq!(seen(&rome, "milan"), before);
    assert_eq!(
        rome.get(Kind::Network, &network)["status"]["cidr"],
        before["pod"][0]
    );
}
