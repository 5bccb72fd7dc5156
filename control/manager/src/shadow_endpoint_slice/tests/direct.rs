//! Endpoints that pods of the consumer have at its other providers.

use super::side::settings;
use super::{Side, endpoint};
use crate::shadow_endpoint_slice::{Health, Settings};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::time::Duration;

/// Returns `milan` with a slice of `rome` that has an address of its own, and one of `naples`.
fn milan(settings: Settings) -> Side {
    let mut milan = Side::with_settings(1, settings);
    milan.put_peer("naples");
    milan.put_configuration("naples", "10.244.0.0/16", "10.72.0.0/16");
    milan.put_foreign_cluster("naples", true, "Established", None);
    milan.put_shadow(
        "web",
        json!([endpoint("10.244.0.1"), endpoint("10.244.0.2")]),
    );
    let data = json!({"clusterAddresses": {"naples": ["10.244.0.2"]}}).to_string();
    milan.edit_shadow(|shadow| {
        shadow["metadata"]["annotations"] = json!({"liqo.io/direct-connections-data": data});
    });
    milan
}

#[test]
fn they_are_mapped_with_the_configuration_of_their_own_cluster() {
    let mut milan = milan(settings());

    assert_eq!(milan.endpoints(), ["10.71.0.1", "10.72.0.2"]);
    let annotations = milan.slice("web")["metadata"]["annotations"].clone();
    assert_eq!(annotations, json!({}));
    milan.assert_settled();
}

#[test]
fn they_are_mapped_without_a_network_to_the_consumer() {
    let mut milan = milan(settings());
    milan.put_foreign_cluster("rome", false, "", None);
    milan.pass();

    assert_eq!(milan.endpoints(), ["10.72.0.2"]);
}

/// Without the time of the loss, it is long ago.
#[test]
fn they_stay_ready_for_the_grace_period_without_the_consumer() {
    let mut milan = milan(settings());
    milan.put_foreign_cluster("rome", true, "Error", None);
    milan.pass();
    assert_eq!(milan.endpoints(), ["!10.71.0.1", "!10.72.0.2"]);

    let since: Timestamp = "2026-11-29T00:00:00Z".parse().unwrap();
    let seconds = |it: u64| since + Duration::from_secs(it);
    let grace = Duration::from_secs(300);
    let health = |is_connected: bool, outage| Health {
        is_networked: true,
        is_connected,
        lost: (!is_connected).then_some(since),
        outage,
    };
    for (health, now, expected) in [
        (health(true, None), 900, (true, None)),
        (health(false, None), 100, (true, Some(200))),
        (health(false, None), 300, (false, None)),
        (health(true, Some(seconds(50))), 100, (true, Some(250))),
        (health(false, Some(seconds(50))), 100, (true, Some(200))),
    ] {
        let rest = expected.1.map(Duration::from_secs);
        assert_eq!(health.is_current(grace, seconds(now)), (expected.0, rest));
    }
}

#[test]
fn they_are_left_out_where_this_cluster_denies_them() {
    let mut milan = milan(Settings {
        deny_direct_connections: true,
        ..settings()
    });

    assert_eq!(milan.endpoints(), ["10.71.0.1"]);
    assert!(milan.has_event("PartsLeftOut", "networking.denyDirectConnections"));
}

#[test]
fn they_follow_the_connection_with_their_cluster() {
    let mut milan = milan(settings());
    milan.put_foreign_cluster("naples", true, "Error", None);
    milan.pass();
    assert_eq!(milan.endpoints(), ["10.71.0.1", "!10.72.0.2"]);

    milan.put_configuration("naples", "10.244.0.0/16", "10.73.0.0/16");
    milan.put_foreign_cluster("naples", true, "Established", None);
    milan.pass();
    assert_eq!(milan.endpoints(), ["10.71.0.1", "10.73.0.2"]);

    milan.put_foreign_cluster("naples", false, "", None);
    milan.pass();
    assert_eq!(milan.endpoints(), ["10.71.0.1"]);
    assert!(milan.has_event("PartsLeftOut", "connect the two"));
    milan.assert_settled();
}

#[test]
fn only_pods_of_a_cluster_with_a_configuration_have_them() {
    for (data, expected) in [
        (json!({"clusterAddresses": {"naples": ["10.70.0.2"]}}), None),
        (json!({"clusterAddresses": {"naples": ["10.99.0.2"]}}), None),
        (json!({"clusterAddresses": {"turin": ["10.244.0.2"]}}), None),
        (json!({"clusterAddresses": {"milan": ["10.244.0.2"]}}), None),
        // The consumer is no other provider.
        (
            json!({"clusterAddresses": {"rome": ["10.244.0.2"]}}),
            Some("10.71.0.2"),
        ),
        (json!({"clusterAddresses": null}), Some("10.71.0.2")),
        (
            json!({"clusterAddresses": {"naples": null}}),
            Some("10.71.0.2"),
        ),
        (json!({}), Some("10.71.0.2")),
    ] {
        let mut milan = milan(settings());
        let annotation = json!({"liqo.io/direct-connections-data": data.to_string()});
        let address = data["clusterAddresses"]["naples"][0].as_str();
        let address = address.unwrap_or("10.244.0.2");
        milan.edit_shadow(|shadow| {
            shadow["metadata"]["annotations"] = annotation;
            shadow["spec"]["template"]["endpoints"] = json!([endpoint(address)]);
        });

        assert_eq!(milan.endpoints(), Vec::from_iter(expected), "{data}");
    }
}

#[test]
fn an_invalid_annotation_ends_the_endpoint_slice() {
    let many: serde_json::Map<_, _> = (0..65)
        .map(|number| (format!("c{number}"), json!(["10.244.0.2"])))
        .collect();
    let many = json!({"clusterAddresses": many}).to_string();
    let deep = "[".repeat(100_000);
    for data in ["", "{", "x", r#"{"clusterAddresses": 1}"#, &many, &deep] {
        let mut milan = milan(settings());
        milan.edit_shadow(|shadow| {
            shadow["metadata"]["annotations"] = json!({"liqo.io/direct-connections-data": data});
        });

        assert!(milan.slice("web").is_null());
        assert!(milan.has_event("InvalidDirectConnections", "remove it") || data == many);
        milan.assert_settled();
    }
}
