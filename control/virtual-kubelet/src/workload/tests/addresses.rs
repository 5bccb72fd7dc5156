//! Addresses of remote pods while networking with the provider is off, and that of this cluster's API server.

use super::*;
use crate::pod::forge::ApiServerSupport;
use control_api::VirtualNode;

/// Returns `rome` with a remote pod of this address, and without networking.
fn rome_with(address: &str, reflects_ips: bool) -> Side {
    let mut settings = settings();
    settings.pod_remaps.clear();
    settings.reflects_ips = reflects_ips;
    let mut rome = Side::with_settings(1, settings);
    reserve(&mut rome, "10.244.0.0/16,10.96.0.0/12");
    rome.put_map("Accepted");
    rome.put_pod("web");
    rome.pass();
    rome.put_remote("web", &running(address));
    rome
}

/// Writes the reserved CIDRs, as the controller manager does.
fn reserve(rome: &mut Side, cidrs: &str) {
    let node = Key::new("liqo-tenant-milan", "milan");
    rome.edit::<VirtualNode>(&node, |it| {
        it["metadata"]["annotations"] = json!({"liqo.io/reserved-cidrs": cidrs});
    });
}

#[test]
fn an_address_that_another_peer_gets_is_no_longer_reflected() {
    let mut rome = rome_with("10.32.1.7", true);
    reserve(&mut rome, "10.244.0.0/16,10.96.0.0/12,10.32.0.0/16");
    assert_eq!(rome.pod("web")["status"]["podIP"], Value::Null);
    assert_eq!(rome.events().len(), 1);

    reserve(&mut rome, "10.244.0.0/16,10.96.0.0/12");
    assert_eq!(rome.pod("web")["status"]["podIP"], "10.32.1.7");
}

#[test]
fn an_address_that_nothing_here_has_is_reflected_as_it_is() {
    let mut rome = rome_with("10.32.1.7", true);

    assert_eq!(rome.pod("web")["status"]["podIP"], "10.32.1.7");
    assert_eq!(rome.events(), [""; 0]);
}

#[test]
fn an_address_that_is_in_use_here_is_empty_with_one_event() {
    let mut rome = rome_with("10.244.1.7", true);
    rome.edit::<Pod>(&pod_key(), |pod| {
        pod["metadata"]["labels"]["version"] = json!("2");
    });

    let status = rome.pod("web")["status"].clone();
    assert_eq!(status["phase"], "Running");
    assert_eq!(
        (&status["podIP"], &status["podIPs"]),
        (&Value::Null, &Value::Null)
    );
    let [event] = &rome.events()[..] else {
        panic!("{:?}", rome.events());
    };
    let expected = "PodIPNotReflected: the pod has the address 10.244.1.7 at the provider, which is in 10.244.0.0/16";
    assert!(event.starts_with(expected), "{event}");
}

#[test]
fn no_address_is_reflected_if_the_reflection_is_off() {
    for address in ["10.32.1.7", "10.244.1.7"] {
        let mut rome = rome_with(address, false);

        assert_eq!(rome.pod("web")["status"]["podIP"], Value::Null);
        assert_eq!(rome.events(), [""; 0]);
    }
}

#[test]
fn addresses_that_are_of_no_pod_network_are_not_reflected_with_one_event() {
    for (address, cause) in [
        ("127.0.0.1", "a loopback address"),
        ("169.254.169.254", "a link-local address"),
        ("224.0.0.1", "a multicast address"),
        ("0.0.0.0", "the unspecified address"),
        ("fd00::1", "an IPv6 address, which is not reflected"),
    ] {
        let mut rome = rome_with(address, true);
        rome.edit::<Pod>(&pod_key(), |pod| {
            pod["metadata"]["labels"]["version"] = json!("2");
        });

        assert_eq!(rome.pod("web")["status"]["podIP"], Value::Null, "{address}");
        let expected = format!(
            "PodIPNotReflected: the pod has the address {address} at the provider, which is {cause}, so podIP is empty: the \
             provider needs an IPv4 pod network"
        );
        assert_eq!(rome.events(), [expected]);
    }
    let mut rome = rome_with("x", true);
    assert_eq!(rome.pod("web")["status"]["podIP"], Value::Null);
}

#[test]
fn with_networking_an_ipv6_address_has_an_event_too() {
    let mut rome = Side::new(1);
    rome.put_map("Accepted");
    rome.put_pod("web");
    rome.pass();
    rome.put_remote("web", &running("fd00::1"));

    assert_eq!(rome.pod("web")["status"]["podIP"], Value::Null);
    let events = rome.events();
    assert!(
        events.len() == 1 && events[0].contains("IPv6"),
        "{events:?}"
    );
}

#[test]
fn a_pod_reaches_the_api_server_of_this_cluster_at_the_addresses_of_its_ip_objects() {
    let mut settings = settings();
    settings.api_server_support = ApiServerSupport::TokenApi;
    let mut rome = Side::with_settings(5, settings);
    rome.put_map("Accepted");
    let node = Key::new("liqo-tenant-milan", "milan");
    rome.edit::<VirtualNode>(&node, |it| {
        it["metadata"]["annotations"] =
            json!({"liqo.io/api-server-addresses": "10.70.0.1,10.70.0.9"});
    });
    rome.put_pod("web");
    rome.pass();

    let spec = rome.shadow("web")["spec"]["pod"].clone();
    let hostnames = ["kubernetes.default", "kubernetes.default.svc"];
    assert_eq!(
        spec["hostAliases"],
        json!([
            {"ip": "10.70.0.1", "hostnames": hostnames},
            {"ip": "10.70.0.9", "hostnames": hostnames},
        ])
    );
    assert_eq!(
        spec["containers"][0]["env"][0],
        json!({"name": "KUBERNETES_SERVICE_HOST", "value": "kubernetes.default"})
    );
    assert!(rome.redundant().is_empty(), "{:?}", rome.redundant());
}
