//! Slices of a consumer that attacks its provider.

use super::side::REMOTE;
use super::{Side, endpoint};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn endpoints_and_addresses_are_limited() {
    let addresses = |number: usize| {
        let addresses = (0..100).map(|it| format!("10.244.{}.{it}", number % 256));
        Value::from_iter(addresses)
    };
    let endpoints = |count: usize| {
        let endpoints = (0..count).map(|number| json!({"addresses": addresses(number)}));
        Value::from_iter(endpoints)
    };
    let mut milan = Side::milan(1);
    milan.reflect(endpoints(1000));

    assert_eq!(milan.endpoints().len(), 2000);
    assert_eq!(milan.dropped(), 98_000);
    assert!(milan.has_event("PartsLeftOut", "more than 2000"));
    assert!(milan.events().iter().all(|it| it.len() < 1024));
    milan.assert_settled();

    let mut milan = Side::milan(1);
    milan.reflect((0..1500).map(|_| endpoint("10.244.0.1")).collect());
    assert_eq!(milan.endpoints().len(), 1000);
    assert_eq!(milan.dropped(), 500);

    let mut milan = Side::milan(1);
    milan.reflect((0..1500).map(|_| endpoint("8.8.8.8")).collect());
    assert_eq!(milan.endpoints(), [""; 0]);
    assert_eq!(milan.dropped(), 1500);
    assert!(milan.has_event("PartsLeftOut", "more"));
}

#[test]
fn other_types_of_addresses_are_refused() {
    for address_type in [json!("IPv6"), json!("FQDN"), json!("x"), json!("")] {
        let mut milan = Side::milan(1);
        milan.reflect(json!([endpoint("10.244.0.1")]));
        milan.edit_shadow(|shadow| {
            shadow["spec"]["template"]["addressType"] = address_type;
        });

        assert!(milan.slice("web").is_null());
        assert!(milan.has_event("UnsupportedAddressType", "only IPv4"));
        milan.assert_settled();
    }
    let mut milan = Side::milan(1);
    milan.reflect(json!([]));
    milan.edit_shadow(|shadow| shadow["spec"] = json!({}));
    assert!(milan.slice("web").is_null());
}

#[test]
fn ports_that_the_api_server_refuses_are_left_out() {
    let mut milan = Side::milan(1);
    milan.put_shadow("web", json!([endpoint("10.244.0.1")]));
    milan.edit_shadow(|shadow| {
        shadow["spec"]["template"]["ports"] = json!([
            {"name": "a", "port": 0},
            {"name": "b", "port": 65536},
            {"name": "c", "port": -1},
            {"name": "d"},
            {"name": "E", "port": 1},
            {"name": "a-name-with-more-than-sixty-three-characters-which-is-no-dns-label", "port": 1},
            {"name": "f", "port": 1, "protocol": "ICMP"},
            {"name": "g", "port": 1, "protocol": "UDP", "appProtocol": "kubernetes.io/h2c"},
            {"name": "g", "port": 2},
            {"port": 65535, "appProtocol": "not valid"},
        ]);
    });

    assert_eq!(
        milan.slice("web")["ports"],
        json!([
            {"name": "g", "port": 1, "protocol": "UDP", "appProtocol": "kubernetes.io/h2c"},
            {"name": "", "port": 65535, "protocol": "TCP"},
        ])
    );
    assert!(milan.has_event("PartsLeftOut", "port a (its number"));
    milan.assert_settled();

    let ports = |shadow: &mut Value| {
        let ports = (0..500).map(|number| json!({"name": format!("p{number}"), "port": 1}));
        shadow["spec"]["template"]["ports"] = ports.collect();
    };
    milan.edit_shadow(ports);
    assert_eq!(milan.slice("web")["ports"].as_array().unwrap().len(), 100);
    assert!(milan.has_event("PartsLeftOut", "more than 100"));
}

#[test]
fn an_endpoint_names_no_object_of_this_cluster() {
    let mut milan = Side::milan(1);
    let zones: Value = (0..20)
        .map(|it| json!({"name": format!("z{it}")}))
        .collect();
    milan.reflect(json!([
        {
            "addresses": ["10.244.0.1"],
            "nodeName": "milan-worker",
            "hostname": "Not A Label",
            "zone": "*",
            "targetRef": {"kind": "Pod", "name": "coredns", "namespace": "kube-system"},
            "hints": {"forZones": [{"name": "*"}], "forNodes": [{"name": "milan-worker"}]},
            "deprecatedTopology": {"x": "y"},
        },
        {
            "addresses": ["10.244.0.2"],
            "hostname": "web-0",
            "zone": "eu-1",
            "targetRef": {"kind": "RemotePod", "name": "web-0", "fieldPath": "x"},
            "hints": {"forZones": zones},
        },
    ]));

    let endpoints = milan.slice("web")["endpoints"].clone();
    let ready = json!({"ready": true});
    assert_eq!(
        endpoints[0],
        json!({"addresses": ["10.71.0.1"], "conditions": ready, "nodeName": "rome"})
    );
    assert_eq!(endpoints[1]["hostname"], "web-0");
    assert_eq!(endpoints[1]["zone"], "eu-1");
    assert_eq!(
        endpoints[1]["targetRef"],
        json!({"kind": "RemotePod", "name": "web-0"})
    );
    let zones = endpoints[1]["hints"]["forZones"].as_array().unwrap().len();
    assert_eq!(zones, 8);
    assert_eq!(endpoints[1]["nodeName"], Value::Null);
    milan.assert_settled();
}

#[test]
fn labels_of_liqo_are_those_of_reflected_slices() {
    let mut milan = Side::milan(1);
    milan.put_shadow("web", json!([]));
    milan.edit_shadow(|shadow| {
        let labels = &mut shadow["metadata"]["labels"];
        for (key, value) in [
            (
                "endpointslice.kubernetes.io/managed-by",
                "endpointslice-controller.k8s.io",
            ),
            ("liqo.io/managed", "false"),
            ("liqo.io/managed-by", "x"),
            ("networking.liqo.io/component", "gateway"),
            ("networking.liqo.io/active", "true"),
            ("liqo.io/remote-cluster-id", "naples"),
            ("app", "web"),
        ] {
            labels[key] = json!(value);
        }
    });

    assert_eq!(
        milan.slice("web")["metadata"]["labels"],
        json!({
            "app": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice.reflection.liqo.io",
            "kubernetes.io/service-name": "web",
            "liqo.io/managed": "true",
            "liqo.io/managed-by": "shadowendpointslice",
            "offloading.liqo.io/destination": "milan",
            "offloading.liqo.io/origin": "rome",
        })
    );
}

#[test]
fn texts_of_the_consumer_are_bounded_in_events() {
    let mut milan = Side::milan(1);
    let long = "\n\u{202e}x".repeat(100_000);
    milan.reflect(json!([endpoint(&long), endpoint("8.8.8.8")]));
    milan.edit_shadow(|shadow| shadow["spec"]["template"]["addressType"] = json!(long));

    let events = milan.events();
    assert!(milan.has_event("PartsLeftOut", "8.8.8.8"), "{events:?}");
    assert!(milan.has_event("UnsupportedAddressType", ""), "{events:?}");
    for event in events {
        assert!(event.len() < 1024, "{}", event.len());
        assert!(!event.contains('\n') && !event.contains('\u{202e}'));
    }
}

/// Another consumer's slices do not wait for those of one that writes many.
#[test]
fn a_consumer_affects_its_own_namespaces_only() {
    let mut milan = Side::milan(1);
    milan.put_peer("naples");
    milan.put_remote_namespace("shop-naples", "naples");
    milan.put_configuration("naples", "10.244.0.0/16", "10.72.0.0/16");
    milan.put_foreign_cluster("naples", true, "Established", None);
    milan.put::<control_api::ShadowEndpointSlice>(json!({
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "ShadowEndpointSlice",
        "metadata": {
            "name": "web",
            "namespace": "shop-naples",
            "labels": {"offloading.liqo.io/origin": "rome"},
        },
        "spec": {"template": {"addressType": "IPv4", "endpoints": [endpoint("10.244.0.1")]}},
    }));
    milan.pass();

    let key = control_runtime::Key::new("shop-naples", "web");
    let slice = milan.object::<k8s_openapi::api::discovery::v1::EndpointSlice>(&key);
    assert!(slice.is_null(), "rome writes with its own credentials only");
    assert!(milan.slice("web").is_null(), "{REMOTE}");
    assert_eq!(milan.requests(), 0);
}

fn text() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<String>().prop_map(Value::from),
        "[a-z0-9.-]{0,70}".prop_map(Value::from),
        Just(Value::Null),
    ]
}

fn any_endpoint() -> impl Strategy<Value = Value> {
    let addresses = prop::collection::vec("(10\\.244\\.0\\.[0-9]|[0-9a-z.:]{0,20})", 0..4);
    (
        addresses,
        any::<Option<bool>>(),
        [text(), text(), text(), text()],
    )
        .prop_map(|(addresses, ready, [hostname, zone, node, kind])| {
            json!({
                "addresses": addresses,
                "conditions": {"ready": ready},
                "hostname": hostname,
                "zone": zone,
                "nodeName": node,
                "targetRef": {"kind": kind, "name": hostname},
                "hints": {"forZones": [{"name": zone.as_str().unwrap_or_default()}]},
            })
        })
}

fn any_port() -> impl Strategy<Value = Value> {
    (text(), any::<Option<i32>>(), text(), text()).prop_map(|(name, port, protocol, application)| {
        json!({"name": name, "port": port, "protocol": protocol, "appProtocol": application})
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// No request is refused, and none is repeated.
    #[test]
    fn any_slice_has_a_valid_endpoint_slice_or_none(
        endpoints in prop::collection::vec(any_endpoint(), 0..4),
        ports in prop::collection::vec(any_port(), 0..4),
        data in text(),
        annotation in text(),
    ) {
        let mut milan = Side::milan(1);
        milan.put_shadow("web", endpoints.into());
        milan.edit_shadow(|shadow| {
            shadow["spec"]["template"]["ports"] = ports.into();
            if let Some(annotation) = annotation.as_str() {
                shadow["metadata"]["annotations"] = json!({"note": annotation});
            }
            if data.is_string() {
                shadow["metadata"]["annotations"]["liqo.io/direct-connections-data"] = data;
            }
        });

        let slice = milan.slice("web");
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let addresses = endpoint["addresses"].as_array().unwrap();
            prop_assert!(!addresses.is_empty());
            let are_mapped = addresses.iter().all(|it| it.as_str().unwrap().starts_with("10.71."));
            prop_assert!(are_mapped, "{endpoint}");
        }
        for port in slice["ports"].as_array().into_iter().flatten() {
            prop_assert!((1..=65535).contains(&port["port"].as_i64().unwrap()));
        }
        prop_assert!(milan.requests() <= 2);
        milan.assert_settled();
    }
}
