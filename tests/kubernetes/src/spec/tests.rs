use super::*;

fn underlay() -> Ipv4Net {
    "172.18.0.0/16".parse().unwrap()
}

#[test]
fn clusters_have_the_same_cidrs_by_default() {
    let [rome, milan] = ["rome", "milan"].map(Spec::new);

    rome.check().unwrap();
    assert_eq!(rome.pod_cidr, milan.pod_cidr);
    assert_eq!(rome.service_cidr, milan.service_cidr);
    assert_eq!(rome.dns_service(), Ipv4Addr::new(10, 96, 0, 10));
}

#[test]
fn nodes_have_names_and_addresses_like_those_of_kind() {
    let mut spec = Spec::new("rome");
    spec.nodes = 3;

    let nodes = NodeSpec::all(&spec, 7, underlay());

    let names: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["rome-control-plane", "rome-worker", "rome-worker2"]);
    assert_eq!(nodes[1].ip, Ipv4Addr::new(172, 18, 7, 3));
    assert_eq!(nodes[2].pod_cidrs(), ["10.244.2.0/24"]);
}

#[test]
fn pod_cidrs_of_nodes_are_disjoint_and_inside_that_of_the_cluster() {
    for (cidr, nodes, hollow) in [("10.244.0.0/16", 2, 300), ("10.0.0.0/24", 4, 0)] {
        let mut spec = Spec::new("rome");
        spec.pod_cidr = cidr.parse().unwrap();
        (spec.nodes, spec.hollow) = (nodes, hollow);
        spec.check().unwrap();

        let all: Vec<_> = (0..u16::from(nodes) + hollow)
            .map(|index| spec.node_pod_cidr(index))
            .collect();

        for pair in all.windows(2) {
            assert!(pair[0].broadcast() < pair[1].network(), "{pair:?}");
        }
        assert!(all.iter().all(|node| spec.pod_cidr.contains(node)));
    }
}

#[test]
fn invalid_settings_are_refused_with_the_name_of_the_flag() {
    let refuse = |change: fn(&mut Spec)| {
        let mut spec = Spec::new("rome");
        change(&mut spec);
        spec.check().unwrap_err().to_string()
    };

    assert!(refuse(|spec| spec.nodes = 0).starts_with("--nodes 0"));
    assert!(refuse(|spec| spec.hollow = 6_000).starts_with("--hollow 6000"));
    assert!(
        refuse(|spec| spec.pod_cidr = "10.244.1.1/16".parse().unwrap())
            .ends_with("use 10.244.0.0/16")
    );
    assert!(refuse(|spec| spec.pod_cidr = spec.service_cidr).contains("overlap"));
    assert!(
        refuse(|spec| {
            spec.pod_cidr = "10.244.0.0/24".parse().unwrap();
            spec.hollow = 20;
        })
        .contains("no room for 22 nodes")
    );
    for name in ["", "Rome", "-rome", "rome-", "ro me", "7", &"r".repeat(41)] {
        assert!(Spec::new(name).check().is_err(), "{name:?}");
    }
}
