use super::*;
use control_fabric::List;
use std::net::Ipv4Addr;

#[test]
fn peers_with_overlapping_prefixes_differ_by_index() {
    let tables = tables_of(&fabric(&["milan", "paris"]));

    let seen: Vec<_> = tables
        .outbound
        .iter()
        .map(|(net, to)| {
            (
                net.to_string(),
                to.peer,
                to.to.to_string(),
                tables.mss[&to.peer],
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (
                "10.101.0.0/16".to_owned(),
                0,
                "10.244.0.0/16".to_owned(),
                1300
            ),
            (
                "10.102.0.0/16".to_owned(),
                1,
                "10.244.0.0/16".to_owned(),
                1300
            ),
        ]
    );
    assert_eq!(
        tables.inbound[&(1, net("10.244.0.0/16"))],
        net("10.102.0.0/16")
    );
}

#[test]
fn pods_are_routed_to_their_node_and_unknown_ones_to_any_ready_node() {
    let mut fabric = fabric(&[]);
    fabric.nodes[1].ready = false;

    let tables = tables_of(&fabric);
    let local = tables.local;

    assert_eq!(tables.spread, [ip("172.16.0.1")].into());
    assert_eq!(local[&net("10.244.0.0/16")], Local::Spread);
    assert_eq!(
        local[&net("10.244.2.0/24")],
        Local::Node(ip("172.16.0.2")),
        "pods of an unready node may still run"
    );
    assert_eq!(local[&net("10.70.0.1/32")], Local::Node(ip("172.16.0.1")));
}

#[test]
fn without_a_ready_node_unknown_pods_are_routed_to_all_nodes() {
    let mut fabric = fabric(&[]);
    for node in fabric.nodes.iter_mut() {
        node.ready = false;
    }

    let tables = tables_of(&fabric);

    assert_eq!(tables.spread, [ip("172.16.0.1"), ip("172.16.0.2")].into());
    assert_eq!(tables.local[&net("10.244.0.0/16")], Local::Spread);
}

#[test]
fn checks_of_peers_are_routed_to_any_ready_node_unless_an_object_has_their_address() {
    let mut fabric = fabric(&["milan"]);
    fabric.nodes[1].ready = false;
    let local = |fabric: &Fabric| tables_of(fabric).local;
    let echo_responder = net("10.70.255.255/32");

    assert_eq!(local(&fabric)[&echo_responder], Local::Spread);

    fabric.nodes[1].external_ip = ip("10.70.255.255");
    let node = Local::Node(ip("172.16.0.2"));
    assert_eq!(local(&fabric)[&echo_responder], node);
    fabric.nodes.clear();
    assert!(!local(&fabric).contains_key(&echo_responder));
}

#[test]
fn mapped_addresses_are_routed_to_the_node_of_their_target() {
    let mut fabric = fabric(&["milan"]);
    fabric.ips = vec![
        mapped(
            "10.70.0.10",
            Target::Pod {
                node: Some("b".into()),
            },
        ),
        mapped("10.70.0.11", Target::Outside),
        mapped("10.70.0.13", Target::Service),
        mapped(
            "10.70.0.12",
            Target::Remote {
                cluster_id: "milan".into(),
                original: ip("10.244.1.10"),
            },
        ),
    ]
    .into();

    let tables = tables_of(&fabric);

    assert_eq!(
        tables.local[&net("10.70.0.10/32")],
        Local::Node(ip("172.16.0.2"))
    );
    assert_eq!(tables.local[&net("10.70.0.11/32")], Local::Spread);
    assert_eq!(tables.services[&ip("10.70.0.13")], ip("192.0.2.1"));
    assert!(!tables.local.contains_key(&net("10.70.0.12/32")));
    let transit = Transit {
        peer: 0,
        to: ip("10.244.1.10"),
    };
    assert_eq!(tables.transit[&ip("10.70.0.12")], transit);
    assert_eq!(
        tables.transit_sources[&(0, ip("10.244.1.10"))],
        ip("10.70.0.12")
    );
}

#[test]
fn a_peer_keeps_its_index_and_a_freed_index_is_reused_last() {
    let states: [&[&str]; 4] = [&[], &["a", "b", "c"], &["b", "c"], &["b", "c", "d"]];
    let states = states.map(|peers| fabric(peers).peers);
    let mut indices = Indices::default();
    for (old, new) in states.iter().zip(&states[1..]) {
        indices.assign(&new.differences(old));
    }

    assert_eq!(ranks(&indices), [("b", 1), ("c", 2), ("d", 3)]);
}

#[test]
fn indices_wrap_around_without_duplicates() {
    let mut indices = Indices::starting_at(u16::MAX);
    indices.assign(&fabric(&["a", "b"]).peers.differences(&List::default()));

    assert_eq!(ranks(&indices), [("a", u16::MAX), ("b", 0)]);
}

#[test]
fn a_change_has_the_entries_of_changed_elements_only() {
    let old = fabric(&["milan", "paris"]);
    let mut new = old.clone();
    new.nodes[1].ready = false;
    let mut indices = Indices::default();
    indices.assign(&old.peers.differences(&List::default()));
    let [from, to] = [&old, &new].map(|fabric| Indexed {
        fabric,
        indices: &indices,
    });

    let changes = changes(from, to, &new.changes_since(&old));

    assert_eq!(changes.removed.spread, [ip("172.16.0.2")].into());
    assert!(changes.added.spread.is_empty());
    for tables in [changes.removed, changes.added] {
        assert_eq!(tables.nodes, [ip("172.16.0.2")].into());
        assert!(tables.outbound.is_empty() && tables.sources.is_empty());
        assert!(!tables.local.contains_key(&net("10.244.1.0/24")));
    }
}

#[test]
fn the_entry_of_a_node_does_not_depend_on_its_ip_object() {
    let old = fabric(&[]);
    let mut new = old.clone();
    new.ips.push(mapped("10.70.0.1", Target::Node("a".into())));

    assert_eq!(
        [changed(&old, &new), changed(&new, &old)],
        [TableChanges::default(), TableChanges::default()]
    );
}

#[test]
fn another_cidr_of_the_cluster_changes_all_entries() {
    let old = fabric(&[]);
    let mut new = old.clone();
    new.pod_cidrs = vec![net("10.240.0.0/12")];

    let changes = changed(&old, &new);

    assert_eq!(changes.removed, tables_of(&old));
    assert_eq!(changes.added, tables_of(&new));
}

#[test]
fn an_ip_object_gets_the_address_that_its_node_no_longer_has() {
    let mut old = fabric(&[]);
    old.ips.push(mapped("10.70.0.1", Target::Node("a".into())));
    let mut new = old.clone();
    new.nodes[0].external_ip = ip("10.70.0.9");

    let changes = changed(&old, &new);

    let local = Local::Node(ip("172.16.0.1"));
    assert_eq!(changes.added.local.get(&net("10.70.0.1/32")), Some(&local));
}

fn changed(old: &Fabric, new: &Fabric) -> TableChanges {
    let indices = Indices::default();
    let [from, to] = [old, new].map(|fabric| Indexed {
        fabric,
        indices: &indices,
    });

    changes(from, to, &new.changes_since(old))
}

fn tables_of(fabric: &Fabric) -> Tables {
    let mut indices = Indices::default();
    indices.assign(&fabric.peers.differences(&List::default()));
    let indices = &indices;

    tables(Indexed { fabric, indices })
}

fn ranks(indices: &Indices) -> Vec<(&str, u16)> {
    let ranks = indices.ranks().iter();

    ranks.map(|(id, index)| (id.as_str(), *index)).collect()
}

/// Returns a fabric of two nodes, and of peers with the same pod CIDR as this cluster.
fn fabric(peers: &[&str]) -> Fabric {
    let node = |name: &str, last: u8| Node {
        name: name.into(),
        internal_ip: Ipv4Addr::new(172, 16, 0, last),
        pod_cidrs: vec![net(&format!("10.244.{last}.0/24"))],
        external_ip: Ipv4Addr::new(10, 70, 0, last),
        ready: true,
    };
    let peer = |(rank, id): (usize, &&str)| Peer {
        cluster_id: (*id).to_owned(),
        pods: vec![remap(
            "10.244.0.0/16",
            &format!("10.{}.0.0/16", (101 + rank) % 256),
        )],
        external: Vec::new(),
        role: control_fabric::Role::Server { port: 51840 },
        mtu: 1340,
        key_secret: format!("gw-{id}"),
        public_key: [1; 32],
        gateway_name: (*id).to_owned(),
    };
    Fabric {
        cluster_id: "rome".into(),
        pod_cidrs: vec![net("10.244.0.0/16")],
        service_cidrs: Vec::new(),
        external_cidr: net("10.70.0.0/16"),
        nodes: vec![node("a", 1), node("b", 2)].into(),
        replicas: Vec::new(),
        peers: peers.iter().enumerate().map(peer).collect(),
        ips: List::default(),
    }
}

fn mapped(status_ip: &str, target: Target) -> MappedIp {
    MappedIp {
        name: status_ip.into(),
        namespace: String::new(),
        spec_ip: ip("192.0.2.1"),
        status_ip: ip(status_ip),
        masquerade: false,
        target,
    }
}

fn remap(from: &str, to: &str) -> Remap {
    Remap::new(net(from), net(to)).unwrap()
}

fn net(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}

fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}
