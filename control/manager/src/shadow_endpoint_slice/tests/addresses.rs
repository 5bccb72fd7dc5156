//! Which addresses become endpoints.

use super::side::{REMOTE, settings};
use super::{Side, endpoint};
use ipnet::Ipv4Net;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// Reflects one address, and returns the endpoints.
fn reflected(milan: &mut Side, address: &str) -> Vec<String> {
    milan.reflect(json!([endpoint(address)]));
    milan.endpoints()
}

/// Returns `milan` without networking, with a policy for `rome`.
fn unconnected(cidrs: &[&str]) -> Side {
    let mut milan = Side::empty(1, settings());
    milan.put_peer("rome");
    milan.put_remote_namespace(REMOTE, "rome");
    milan.put_foreign_cluster("rome", false, "", None);
    milan.put_policy("rome", cidrs);
    milan
}

#[test]
fn addresses_of_the_consumer_are_remapped_and_others_are_left_out() {
    for (address, expected, reason) in [
        ("10.244.3.4", Some("10.71.3.4"), ""),
        ("10.70.3.4", Some("10.68.3.4"), ""),
        ("192.0.2.7", Some("192.0.2.7"), ""),
        ("10.71.3.4", None, "neither in the CIDRs of the consumer"),
        ("10.245.0.1", None, "spec.endpointCIDRs of its TenantPolicy"),
        ("8.8.8.8", None, "neither in the CIDRs of the consumer"),
        ("127.0.0.1", None, "loopback"),
        ("169.254.169.254", None, "link-local"),
        ("224.0.0.1", None, "multicast"),
        ("0.0.0.0", None, "reserved"),
        ("168.63.129.16", None, "a metadata service"),
        ("100.100.100.200", None, "a metadata service"),
        ("172.18.0.3", None, "CIDRs of the consumer"),
        ("10.96.0.1", None, "CIDRs of the consumer"),
        ("010.244.3.4", None, "no IPv4 address"),
        ("10.244.3.4/32", None, "no IPv4 address"),
        ("::ffff:10.244.3.4", None, "no IPv4 address"),
        ("fd00::1", None, "no IPv4 address"),
        ("kubernetes.default", None, "no IPv4 address"),
        ("", None, "no IPv4 address"),
    ] {
        let mut milan = Side::milan(1);
        milan.put_policy("rome", &["192.0.2.0/24"]);
        let endpoints = reflected(&mut milan, address);

        assert_eq!(endpoints, Vec::from_iter(expected), "{address}");
        assert_eq!(milan.dropped(), u64::from(expected.is_none()), "{address}");
        let is_reported = milan.has_event("PartsLeftOut", reason);
        assert_eq!(
            is_reported,
            expected.is_none(),
            "{address}: {:?}",
            milan.events()
        );
        milan.assert_settled();
    }
}

#[test]
fn no_policy_allows_addresses_of_this_cluster_itself() {
    for is_networked in [true, false] {
        for (address, reason) in [
            ("172.18.0.3", "a node of this cluster"),
            ("10.96.0.1", "in the Service or internal CIDR"),
            ("10.111.255.255", "in the Service or internal CIDR"),
            ("10.80.0.1", "in the Service or internal CIDR"),
            ("127.0.0.1", "loopback"),
            ("169.254.169.254", "link-local"),
            ("168.63.129.16", "a metadata service"),
        ] {
            let mut milan = unconnected(&["0.0.0.0/0"]);
            if is_networked {
                milan.put_configuration("rome", "10.244.0.0/16", "10.71.0.0/16");
                milan.put_foreign_cluster("rome", true, "Established", None);
            }

            assert_eq!(reflected(&mut milan, address), [""; 0], "{address}");
            assert!(milan.has_event("PartsLeftOut", reason), "{address}");
        }
    }
}

#[test]
fn without_networking_addresses_need_a_policy() {
    let mut milan = unconnected(&[]);
    assert_eq!(reflected(&mut milan, "10.30.0.7"), [""; 0]);
    assert_eq!(milan.dropped(), 1);

    milan.put_policy("rome", &["10.30.0.0/24"]);
    milan.pass();
    assert_eq!(milan.endpoints(), ["10.30.0.7"]);

    // The default applies to consumers without a policy.
    milan.put_policy("default", &["10.40.0.0/24"]);
    assert_eq!(reflected(&mut milan, "10.40.0.7"), [""; 0]);
    milan.remove::<control_api::TenantPolicy>(&control_runtime::Key::new("liqo", "rome"));
    assert_eq!(reflected(&mut milan, "10.40.0.7"), ["10.40.0.7"]);
    milan.put_policy("default", &[]);
    milan.pass();
    assert_eq!(milan.endpoints(), [""; 0]);
    milan.assert_settled();
}

/// A peering user writes the CIDRs of the consumer, which may be those of nodes.
#[test]
fn a_remapped_address_of_a_node_is_left_out_while_the_node_exists() {
    let mut milan = Side::milan(1);
    milan.put_configuration("rome", "10.244.0.0/16", "172.19.0.0/16");
    assert_eq!(reflected(&mut milan, "10.244.0.9"), ["172.19.0.9"]);

    milan.put_node("milan-worker2", "172.19.0.9");
    milan.pass();
    assert_eq!(milan.endpoints(), [""; 0]);
    assert!(milan.has_event("PartsLeftOut", "a node of this cluster"));

    milan.put_node("milan-worker2", "172.19.0.10");
    milan.pass();
    assert_eq!(milan.endpoints(), ["172.19.0.9"]);
    milan.assert_settled();
}

#[test]
fn no_address_is_remapped_to_a_metadata_service() {
    let mut milan = Side::milan(1);
    milan.put_configuration("rome", "10.244.0.0/16", "168.63.0.0/16");

    assert_eq!(reflected(&mut milan, "10.244.129.15"), ["168.63.129.15"]);
    assert_eq!(reflected(&mut milan, "10.244.129.16"), [""; 0]);
    assert!(milan.has_event("PartsLeftOut", "a metadata service"));
}

#[test]
fn a_service_cidr_that_is_added_later_is_protected() {
    let mut milan = unconnected(&["10.30.0.0/24"]);
    assert_eq!(reflected(&mut milan, "10.30.0.7"), ["10.30.0.7"]);

    milan.put_network("service-cidr", "10.30.0.0/16");
    milan.pass();
    assert_eq!(milan.endpoints(), [""; 0]);
}

#[test]
fn addresses_that_stay_left_out_are_counted_once() {
    let mut milan = Side::milan(1);
    assert_eq!(reflected(&mut milan, "8.8.8.8"), [""; 0]);
    milan.put_foreign_cluster("rome", true, "Error", None);
    milan.pass();
    assert_eq!(milan.dropped(), 1);

    milan.reflect(json!([endpoint("8.8.8.8"), endpoint("8.8.4.4")]));
    assert_eq!(milan.dropped(), 2);
}

#[test]
fn an_endpoint_keeps_its_other_addresses() {
    let mut milan = Side::milan(1);
    milan.reflect(json!([{"addresses": ["8.8.8.8", "10.244.0.1", "10.244.0.1", "10.244.0.2"]}]));

    assert_eq!(milan.endpoints(), ["10.71.0.1", "10.71.0.2"]);
}

/// Returns addresses of the CIDRs in these tests, and any others.
fn address() -> impl Strategy<Value = String> {
    let near = prop_oneof![
        Just([10, 244]),
        Just([10, 245]),
        Just([10, 70]),
        Just([10, 71]),
        Just([10, 96]),
        Just([10, 80]),
        Just([172, 18]),
        Just([192, 168]),
        Just([169, 254]),
        Just([127, 0]),
        Just([172, 19]),
    ];
    prop_oneof![
        8 => (near, 0..4_u8, 0..6_u8).prop_map(|([a, b], c, d)| format!("{a}.{b}.{c}.{d}")),
        1 => any::<Ipv4Addr>().prop_map(|it| it.to_string()),
        1 => "[0-9.:a-f/]{0,18}",
    ]
}

fn cidr() -> impl Strategy<Value = Ipv4Net> {
    let net = prop_oneof![
        Just([10, 244]),
        Just([10, 71]),
        Just([172, 18]),
        Just([192, 168]),
        Just([127, 0]),
        Just([169, 254]),
        Just([0, 0]),
    ];
    (net, prop_oneof![Just(0), Just(8), Just(16), Just(24)]).prop_map(|([a, b], len)| {
        let address = Ipv4Addr::new(a, b, 0, 0);
        Ipv4Net::new(address, len).unwrap().trunc()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_address_outside_of_the_allowed_cidrs_becomes_an_endpoint(
        addresses in prop::collection::vec(address(), 0..8),
        allowed in prop::collection::vec(cidr(), 0..3),
        direct in prop::collection::vec(address(), 0..3),
        (remapped, is_networked, is_third_networked) in
            (prop_oneof![Just("10.71.0.0/16"), Just("172.18.0.0/16")], any::<bool>(), any::<bool>()),
    ) {
        let mut milan = Side::empty(1, settings());
        for peer in ["rome", "naples"] {
            milan.put_peer(peer);
        }
        milan.put_remote_namespace(REMOTE, "rome");
        let texts: Vec<_> = allowed.iter().map(ToString::to_string).collect();
        milan.put_policy("rome", &Vec::from_iter(texts.iter().map(String::as_str)));
        milan.put_foreign_cluster("rome", is_networked, "Established", None);
        milan.put_foreign_cluster("naples", is_third_networked, "Established", None);
        milan.put_configuration("rome", "10.244.0.0/16", remapped);
        milan.put_configuration("naples", "10.244.0.0/16", "172.19.0.0/16");
        let endpoints = addresses.iter().map(|it| endpoint(it)).collect::<Value>();
        milan.put_shadow("web", endpoints);
        let data = json!({"clusterAddresses": {"naples": direct}}).to_string();
        milan.edit_shadow(|shadow| {
            shadow["metadata"]["annotations"] = json!({"liqo.io/direct-connections-data": data});
        });

        let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
        let mut sources = allowed;
        if is_networked {
            sources.extend([net(remapped), net("10.68.0.0/16")]);
        }
        if is_third_networked && !direct.is_empty() {
            sources.push(net("172.19.0.0/16"));
        }
        let never = ["127.0.0.0/8", "169.254.0.0/16", "0.0.0.0/8", "10.96.0.0/12", "172.18.0.3/32", "10.80.0.0/16"];
        for text in milan.endpoints() {
            let address: Ipv4Addr = text.parse().unwrap();
            prop_assert!(sources.iter().any(|it| it.contains(&address)), "{address}");
            prop_assert!(!never.iter().any(|it| net(it).contains(&address)), "{address}");
        }
        milan.assert_settled();
    }
}
