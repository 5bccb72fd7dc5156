use super::super::fixture::{ROME, expect_one, fabric, plan_refused, planned, refused};
use super::super::parse;
use super::super::view::{Replica, Role};
use super::*;
use crate::List;

#[test]
fn the_view_contains_all_objects_of_a_file() {
    let fabric = fabric(ROME);

    assert_eq!(fabric.cluster_id, "rome");
    assert_eq!(fabric.pod_cidrs, [net("10.244.0.0/16")]);
    assert_eq!(fabric.service_cidrs, [net("10.96.0.0/12")]);
    assert_eq!(fabric.external_cidr, net("10.70.0.0/16"));
    assert_eq!(fabric.unknown_source(), addr("10.70.0.0"));
    assert_eq!(
        fabric.nodes,
        List::from(vec![
            Node {
                name: "rome-1".into(),
                internal_ip: addr("172.18.1.2"),
                pod_cidrs: vec![net("10.244.1.0/24")],
                external_ip: addr("10.70.0.1"),
                ready: false,
            },
            Node {
                name: "rome-2".into(),
                internal_ip: addr("172.18.1.3"),
                pod_cidrs: vec![net("10.244.2.0/24")],
                external_ip: addr("10.70.0.2"),
                ready: true,
            },
        ])
    );
    assert_eq!(
        fabric.replicas,
        [
            Replica {
                name: "gateway-a".into(),
                address: addr("10.244.2.100"),
                node: "rome-2".into(),
                ready: true,
            },
            Replica {
                name: "gateway-b".into(),
                address: addr("10.244.1.100"),
                node: "rome-1".into(),
                ready: false,
            },
        ]
    );
}

#[test]
fn a_peer_is_joined_from_its_objects() {
    let fabric = fabric(ROME);

    let milan = fabric.peer("milan").unwrap();
    assert_eq!(milan.role, Role::Server { port: 51840 });
    assert_eq!(milan.mtu, 1340);
    assert_eq!(milan.key_secret, "gw-milan");
    assert_eq!(milan.public_key, std::array::from_fn(|i| i as u8));
    assert_eq!(milan.pods[0].from(), net("10.244.0.0/16"));
    assert_eq!(milan.pods[0].to(), net("10.1.0.0/16"));
    assert_eq!(milan.unknown_source(), Some(addr("10.2.0.0")));
    let seen: Vec<_> = Fabric::remote_cidrs(milan).collect();
    assert_eq!(
        seen,
        ["10.1.0.0/16", "10.200.0.0/24", "10.2.0.0/16"].map(net)
    );
    let naples = fabric.peer("naples").unwrap();
    let addresses = vec!["gw.naples.example".to_owned(), "203.0.113.7".to_owned()];
    assert_eq!(
        naples.role,
        Role::Client {
            addresses,
            port: 31110
        }
    );
    assert_eq!(naples.mtu, 1280);
    assert_eq!(naples.key_secret, "my-key");
    assert_eq!(naples.gateway_name, "to-naples");
    assert_eq!(fabric.peers.len(), 2);
}

#[test]
fn the_target_of_a_mapped_address_is_its_owner() {
    let text = format!(
        "{ROME}{}{}{}{}{}{}",
        ip("kubernetes", "10.96.0.1"),
        ip("pod-of-no-node", "10.244.9.9"),
        ip("api-server", "172.18.1.2"),
        ip("web-of-naples", "10.3.1.10"),
        ip("printer-of-naples", "10.4.0.7"),
        ip("hidden", "192.0.2.10\n  masquerade: true").replace(
            "metadata:\n",
            "metadata:\n  labels: {networking.liqo.io/host-unreachable: \"true\"}\n"
        ),
    );

    let fabric = fabric(&text);

    let target = |name: &str| {
        let ip = fabric.ips.iter().find(|ip| ip.name == name)?;
        Some(ip.target.clone())
    };
    let remote = |original: &str| Target::Remote {
        cluster_id: "naples".into(),
        original: addr(original),
    };
    assert_eq!(target("node-rome-1"), Some(Target::Node("rome-1".into())));
    assert_eq!(target("api-server"), Some(Target::Node("rome-1".into())));
    assert_eq!(target("printer"), Some(Target::Outside));
    assert_eq!(target("kubernetes"), Some(Target::Service));
    let node = Some("rome-2".to_owned());
    assert_eq!(target("web"), Some(Target::Pod { node }));
    assert_eq!(target("pod-of-no-node"), Some(Target::Pod { node: None }));
    assert_eq!(target("web-of-naples"), Some(remote("10.244.1.10")));
    assert_eq!(target("printer-of-naples"), Some(remote("10.70.0.7")));
    assert_eq!(target("hidden"), None);
    let masquerade: Vec<_> = fabric.ips.iter().filter(|ip| ip.masquerade).collect();
    assert_eq!(masquerade.len(), 1);
    assert_eq!(masquerade[0].name, "printer");
}

#[test]
fn a_file_that_was_not_planned_names_the_command() {
    let errors = refused(&parse(ROME).unwrap());

    assert!(
        errors
            .iter()
            .all(|error| error.ends_with("for a file run `gateway plan FILE`"))
    );
    for place in [
        "Network liqo/pod-cidr, status.cidr: is missing",
        "Configuration liqo-tenant-naples/naples, status.remote: is missing",
        "IP office/printer, status.ip: is missing",
        "Node rome-1: the node's IP object `node-rome-1` is missing",
    ] {
        assert!(
            errors.iter().any(|error| error.contains(place)),
            "{place}: {errors:#?}"
        );
    }
}

#[test]
fn a_stale_status_names_the_command() {
    for (from, to, place) in [
        (
            "- 10.3.0.0/16",
            "- 10.3.0.0/17",
            "status.remote.cidr.pod[0]: `10.3.0.0/17` does not fit",
        ),
        (
            "- 10.3.0.0/16",
            "- 10.3.0.0/16\n      - 10.5.0.0/16",
            "cidr.pod[1]: `10.5.0.0/16` does not fit",
        ),
        (
            "- 10.3.0.0/16",
            "- \"\"",
            "status.remote.cidr.pod[0]: is missing",
        ),
        (
            "ip: \"10.70.0.3\"",
            "ip: \"10.70.0.0\"",
            "IP office/printer, status.ip: `10.70.0.0` does not fit",
        ),
        (
            "ip: \"10.70.0.3\"",
            "ip: \"10.71.0.3\"",
            "IP office/printer, status.ip: `10.71.0.3` does not fit",
        ),
        (
            "  ip: \"172.18.1.3\"",
            "  ip: \"172.18.1.4\"",
            "node-rome-2, spec.ip: `172.18.1.4` does not fit",
        ),
    ] {
        let errors = edited(from, to);

        assert_eq!(errors.len(), 1, "{errors:#?}");
        assert!(errors[0].contains(place), "{errors:#?}");
        assert!(
            errors[0].ends_with("for a file run `gateway plan FILE`"),
            "{errors:#?}"
        );
    }
}

#[test]
fn conflicting_statuses_are_refused() {
    for (from, to, expected) in [
        (
            "- 10.3.0.0/16",
            "- 10.244.0.0/16",
            "10.244.0.0/16 overlaps 10.244.0.0/16 of ",
        ),
        (
            "- 10.3.0.0/16",
            "- 10.0.0.0/16",
            "10.0.0.0/16 overlaps 10.0.0.0/16 of ",
        ),
        (
            "- 10.3.0.0/16",
            "- 10.1.0.0/16",
            "10.1.0.0/16 overlaps 10.1.0.0/16 of ",
        ),
        ("- 10.3.0.0/16", "- 172.18.0.0/16", "overlaps 172.18.1."),
        (
            "- 10.3.0.0/16",
            "- 203.0.0.0/16",
            "overlaps 203.0.113.7/32 of ",
        ),
        (
            "ip: \"10.70.0.3\"",
            "ip: \"10.70.0.4\"",
            "document 16, IP office/printer, status.ip already has the address 10.70.0.4",
        ),
    ] {
        let errors = edited(from, to);

        assert!(!errors.is_empty());
        assert!(errors[0].contains(expected), "{expected}: {errors:#?}");
    }
}

#[test]
fn an_ip_object_refers_to_a_suitable_network_and_address() {
    let with = |more: &str| format!("{ROME}{more}");
    expect_one(
        &with(&ip("a", "192.0.2.1\n  networkRef: {name: nowhere}")),
        "IP a, spec.networkRef.name: unknown Network `nowhere`; name a Network of this file, or remove the reference",
    );
    expect_one(
        &with(&ip("a", "192.0.2.1\n  networkRef: {name: pod-cidr}")),
        "IP a, spec.networkRef.name: IP objects get no addresses of the Network `pod-cidr`; refer to a Network \
         of type external-cidr, or remove the reference",
    );
    let itself = plan_refused(&with(&ip("a", "10.70.3.3")));
    assert!(itself[0].ends_with(
        "IP a, spec.ip: 10.70.3.3 is already mapped, because it is in the external CIDR 10.70.0.0/16; use the original address"
    ));
    for address in ["10.3.1.10", "10.96.0.1"] {
        let twice = plan_refused(&with(&(ip("a", address) + &ip("b", address))));
        let expected =
            format!("IP b, spec.ip: document 18, IP a, spec.ip already has the address {address};");
        assert!(twice[0].contains(&expected), "{twice:?}");
    }
}

/// Returns the errors of the planned file after the last occurrence of `from` was replaced.
fn edited(from: &str, to: &str) -> Vec<String> {
    let yaml = planned(ROME).to_yaml();
    let at = yaml
        .rfind(from)
        .unwrap_or_else(|| panic!("no `{from}` in {yaml}"));
    let yaml = format!("{}{to}{}", &yaml[..at], &yaml[at + from.len()..]);

    refused(&parse(&yaml).unwrap())
}

fn ip(name: &str, spec_ip: &str) -> String {
    format!(
        "---\napiVersion: ipam.liqo.io/v1alpha1\nkind: IP\nmetadata:\n  name: {name}\nspec:\n  ip: {spec_ip}\n"
    )
}

fn net(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}

fn addr(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}
