//! Exports of a hostile peer.

use super::Side;
use super::side::exported;
use crate::multicluster::peers::SERVICES_MAX;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

/// A change of an export.
type Edit = Box<dyn Fn(&mut Value)>;

#[test]
fn only_addresses_of_the_peers_pods_are_endpoints() {
    let mut rome = Side::new(1);
    let addresses = [
        "10.244.0.7",
        "127.0.0.1",
        "169.254.169.254",
        "10.96.0.1",
        "8.8.8.8",
        "10.72.0.9",
        "::1",
        "x",
        "224.0.0.1",
    ];
    rome.put_of_turin(exported(|it| {
        let endpoints =
            addresses.map(|it| json!({"addresses": [it], "conditions": {"ready": true}}));
        it["spec"]["endpointSlices"][0]["endpoints"] = json!(endpoints);
    }));

    assert_eq!(rome.endpoints(), ["turin 10.71.0.7"]);
    let mut events = rome.simulation.events(0).iter();
    assert!(events.any(|it| it.reason == "PartsLeftOut" && it.note.contains("127.0.0.1")));
}

#[test]
fn contradictory_labels_names_and_kinds_of_content_have_no_effect() {
    let labels = |origin: &str, replicated: &str| json!({"liqo.io/replicated": replicated, "liqo.io/replication": "false", "liqo.io/originID": origin});
    let edits: Vec<Edit> = vec![
        Box::new(move |it| it["metadata"]["labels"] = labels("milan", "true")),
        Box::new(move |it| it["metadata"]["labels"] = labels("turin", "false")),
        Box::new(|it| it["metadata"]["name"] = json!("web.shop.milan")),
        Box::new(|it| it["metadata"]["name"] = json!("other.shop.turin")),
        Box::new(|it| it["spec"]["namespace"] = json!("liqo")),
        Box::new(|it| it["spec"]["ipFamilies"] = json!(["IPv6"])),
        Box::new(|it| {
            it["metadata"]["name"] = json!("web.liqo-tenant-milan.turin");
            it["spec"]["namespace"] = json!("liqo-tenant-milan");
        }),
    ];
    for edit in edits {
        let mut rome = Side::new(2);
        rome.put_of_turin(exported(|it| edit(it)));
        let imports = rome.simulation.local().all::<control_api::ServiceImport>();
        assert!(imports.is_empty(), "{imports:?}");
        assert!(rome.endpoints().is_empty() && rome.derived().is_empty());
    }
}

#[test]
fn invalid_properties_are_left_out() {
    let mut rome = Side::new(3);
    rome.put_of_turin(exported(|it| {
        let spec = &mut it["spec"];
        spec["ports"] = json!([
            {"name": "http", "protocol": "TCP", "port": 80},
            {"name": "http", "protocol": "TCP", "port": 81},
            {"name": "twin", "protocol": "TCP", "port": 80},
            {"name": "UPPER", "protocol": "TCP", "port": 82},
            {"name": "zero", "protocol": "TCP", "port": 0},
            {"name": "high", "protocol": "TCP", "port": 70000},
            {"name": "icmp", "protocol": "ICMP", "port": 1},
            {"name": "", "port": 83},
        ]);
        spec["sessionAffinity"] = json!("ClientIP");
        spec["sessionAffinityTimeoutSeconds"] = json!(-1);
        spec["trafficDistribution"] = json!("x".repeat(1000));
        spec["exportedLabels"] = json!({
            "team": "shop", "liqo.io/managed": "false", "app.kubernetes.io/name": "x", "bad key": "x", "value": "not valid!",
        });
        spec["exportedAnnotations"] = json!({"note": "x", "liqo.io/skip": "x", "large": "x".repeat(100_000)});
        let endpoint = &mut spec["endpointSlices"][0]["endpoints"][0];
        endpoint["hostname"] = json!("not_a_label");
        endpoint["nodeName"] = json!("worker");
        endpoint["targetRef"] = json!({"kind": "Pod", "name": "coredns", "namespace": "kube-system"});
    }));

    let import = rome.import();
    let spec = &import["spec"];
    assert_eq!(
        spec["ports"],
        json!([{"name": "http", "protocol": "TCP", "port": 80}])
    );
    assert_eq!(
        spec["sessionAffinityConfig"],
        json!({"clientIP": {"timeoutSeconds": 10800}})
    );
    assert!(spec["trafficDistribution"].is_null());
    let labels =
        json!({"team": "shop", "liqo.io/managed": "true", "liqo.io/managed-by": "serviceimport"});
    assert_eq!(import["metadata"]["labels"], labels);
    assert_eq!(import["metadata"]["annotations"], json!({"note": "x"}));
    let slices = rome.simulation.local().all::<EndpointSlice>();
    let of_turin = slices
        .into_iter()
        .find(|it| it["metadata"]["labels"]["liqo.io/managed-by"] == "serviceimport");
    let endpoint = &of_turin.unwrap()["endpoints"][0];
    assert!(endpoint["hostname"].is_null() && endpoint["targetRef"].is_null());
    assert_eq!(endpoint["nodeName"], "turin");
    rome.assert_settled();
}

#[test]
fn services_and_endpoints_beyond_the_limits_are_ignored() {
    let mut rome = Side::new(4);
    let endpoints = |first: u32| {
        let address = |number: u32| std::net::Ipv4Addr::from(0x0af4_0000 + first + number);
        (0..900)
            .map(|it| json!({"addresses": [address(it)]}))
            .collect::<Vec<_>>()
    };
    rome.put_of_turin(exported(|it| {
        let slices = &mut it["spec"]["endpointSlices"];
        slices[0]["endpoints"] = json!(endpoints(256));
        let mut second = slices[0].clone();
        second["endpoints"] = json!(endpoints(2_000));
        slices.as_array_mut().unwrap().push(second);
    }));
    assert_eq!(rome.endpoints().len(), 1_000);

    for number in 0..SERVICES_MAX + 4 {
        let name = format!("a{number:03}");
        let object = exported(|it| {
            it["metadata"]["name"] = json!(format!("{name}.shop.turin"));
            it["metadata"]["namespace"] = json!("liqo-tenant-turin");
            it["metadata"]["labels"] = json!({
                "liqo.io/replicated": "true", "liqo.io/replication": "false", "liqo.io/originID": "turin",
            });
            it["spec"]["name"] = json!(name);
        });
        rome.put::<control_api::ExportedService>(object);
    }
    rome.simulation.pass(std::time::Duration::from_secs(60));
    let imports = rome.simulation.local().all::<control_api::ServiceImport>();
    // Without `web`, which is the last in the order of the names and is planned when it changes.
    let of_limit = imports.iter().filter(|it| it["metadata"]["name"] != "web");
    assert_eq!(of_limit.count(), SERVICES_MAX);
}

#[test]
fn a_peer_that_takes_the_name_of_an_export_does_not_get_it() {
    let mut rome = Side::new(5);
    rome.put_of_turin(exported(|it| {
        it["metadata"]["name"] = json!("web.shop.rome")
    }));
    rome.export();

    let key = control_runtime::Key::new("liqo-tenant-turin", "web.shop.rome");
    let object = rome.object::<control_api::ExportedService>(&key);
    assert_eq!(object["metadata"]["labels"]["liqo.io/originID"], "turin");
    assert_eq!(rome.condition("Ready"), "False Pending");
    assert_eq!(rome.endpoints(), ["rome 10.244.1.2", "rome 192.0.2.7"]);
    rome.assert_settled();
}
