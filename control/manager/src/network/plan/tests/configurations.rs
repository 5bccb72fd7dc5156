//! Configurations: the CIDRs of peers.

use super::*;

fn remapped_cidrs(rome: &Cluster, peer: &str) -> Value {
    let key = Key::new(format!("liqo-tenant-{peer}"), peer);
    rome.get(Kind::Configuration, &key)["status"]["remote"]["cidr"].clone()
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
    assert_eq!(
        remapped_cidrs(&rome, "milan")["pod"][0],
        network["status"]["cidr"]
    );
    assert_ne!(remapped_cidrs(&rome, "milan")["pod"][0], "10.244.0.0/16");
}

#[test]
fn unknown_sources_of_a_peer_get_an_address() {
    let mut rome = rome();

    with_milan(&mut rome);

    let ip = rome.get(Kind::Ip, &key("milan-unknown-source"));
    let external = remapped_cidrs(&rome, "milan")["external"][0].clone();
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
fn statuses_follow_the_spec_and_surplus_networks_are_deleted() {
    let mut rome = rome();
    with_milan(&mut rome);
    let before = remapped_cidrs(&rome, "milan");

    let three = json!(["10.9.0.0/16", "10.244.0.0/16", "10.8.0.0/24"]);
    let remote = |pod: &Value| json!({"spec": {"remote": {"cidr": {"pod": pod}}}});
    rome.edit(Kind::Configuration, &key("milan"), remote(&three));
    rome.settle();
    let grown = remapped_cidrs(&rome, "milan");
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
    assert_eq!(
        remapped_cidrs(&rome, "milan")["pod"],
        json!(["10.8.0.0/24"])
    );
    assert_eq!(rome.names(Kind::Network).len(), 4 + 2);
}

#[test]
fn allocations_survive_restarts_and_new_peers() {
    let mut rome = rome();
    with_milan(&mut rome);
    let before = remapped_cidrs(&rome, "milan");

    rome.restart();
    let idle = rome.settle();
    rome.put(
        Kind::Configuration,
        configuration("naples", &["10.244.0.0/16"], &["10.70.0.0/16"]),
    );
    rome.restart();
    rome.settle();

    assert_eq!(idle, []);
    assert_eq!(remapped_cidrs(&rome, "milan"), before);
    let naples = remapped_cidrs(&rome, "naples");
    assert!(naples["pod"][0] != before["pod"][0] && naples["external"][0] != before["external"][0]);
}

/// Both are deleted before one is created again, so either could get the CIDR of the other one.
#[test]
fn deleted_networks_of_a_peer_get_the_same_cidrs_again_from_the_next_leader() {
    let mut rome = rome();
    let naples = configuration("naples", &["10.244.0.0/16"], &["10.70.0.0/16"]);
    rome.put(Kind::Configuration, naples);
    rome.settle();
    with_milan(&mut rome);
    rome.settle();
    // The CIDRs of naples are free now, and an allocation would prefer them.
    rome.delete(
        Kind::Configuration,
        &Key::new("liqo-tenant-naples", "naples"),
    );
    rome.settle();
    let key = key("milan");
    let networks: Vec<_> = rome.objects.keys().cloned().collect();
    let networks = networks
        .into_iter()
        .filter(|(kind, network)| *kind == Kind::Network && network.namespace == key.namespace);
    let networks: Vec<_> = networks.map(|(_, network)| network).collect();
    let statuses = |rome: &Cluster| {
        let status = |key| rome.get(Kind::Network, key)["status"].clone();
        Vec::from_iter(networks.iter().map(status))
    };
    let before = (statuses(&rome), rome.get(Kind::Configuration, &key).clone());
    assert!(networks.len() >= 2, "{networks:?}");

    for network in networks.iter().rev() {
        rome.delete(Kind::Network, network);
    }
    rome.restart();
    rome.settle();

    assert_eq!(statuses(&rome), before.0);
    let status = rome.get(Kind::Configuration, &key)["status"]["remote"].clone();
    assert_eq!(status, before.1["status"]["remote"]);
}

#[test]
fn a_deletion_releases_cidrs_and_addresses() {
    let mut rome = rome();
    with_milan(&mut rome);
    let before = remapped_cidrs(&rome, "milan");

    rome.delete(Kind::Configuration, &key("milan"));
    rome.settle();
    rome.put(
        Kind::Configuration,
        configuration("naples", &["10.244.0.0/16"], &["10.70.0.0/16"]),
    );
    rome.settle();

    assert_eq!(remapped_cidrs(&rome, "naples"), before);
}

#[test]
fn invalid_cidrs_are_refused_with_field_and_remedy() {
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
        rome.put(Kind::Configuration, of_peer("milan", "milan", &remote));
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
fn exhausted_pools_are_reported_until_a_cidr_is_released() {
    let mut rome = rome();
    for peer in ["milan", "naples", "turin", "genoa"] {
        rome.put(
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
    rome.put(
        Kind::Configuration,
        configuration("milan", &["172.20.0.0/14"], &[]),
    );
    rome.settle();
    assert_eq!(
        remapped_cidrs(&rome, "milan")["pod"],
        json!(["172.20.0.0/14"])
    );
}

#[test]
fn no_cidr_of_a_peer_contains_the_address_of_a_node() {
    let mut rome = rome();

    rome.put(
        Kind::Configuration,
        configuration("milan", &["172.18.0.0/16"], &[]),
    );
    rome.settle();

    assert_ne!(
        remapped_cidrs(&rome, "milan")["pod"],
        json!(["172.18.0.0/16"])
    );
}
