//! The summary of a peer, and leftovers of a deleted peer.

use super::*;
use crate::network::write::Action;

fn lines(rome: &Cluster) -> Vec<String> {
    let object = rome.get(Kind::ForeignCluster, &Key::cluster("milan"));
    let conditions = object["status"]["modules"]["networking"]["conditions"].as_array();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    conditions
        .into_iter()
        .flatten()
        .map(|it| {
            format!(
                "{} {} {}",
                text(&it["type"]),
                text(&it["status"]),
                text(&it["reason"])
            )
        })
        .collect()
}

#[test]
fn the_summary_has_the_conditions_of_upstream() {
    let mut rome = rome();
    with_served_milan(&mut rome);
    rome.edit(
        Kind::Connection,
        &key("gw-milan"),
        json!({"status": {"value": "Connected"}}),
    );
    rome.settle();

    let object = rome.get(Kind::ForeignCluster, &Key::cluster("milan"));
    assert_eq!(object["spec"], json!({"clusterID": "milan"}));
    assert_eq!(
        object["metadata"]["labels"],
        json!({"liqo.io/remote-cluster-id": "milan"})
    );
    let status = &object["status"];
    assert_eq!(status["role"], "Unknown");
    assert_eq!(status["tenantNamespace"], json!({"local": TENANT}));
    assert_eq!(status["modules"]["offloading"], json!({"enabled": false}));
    assert_eq!(status["modules"]["networking"]["enabled"], true);
    assert_eq!(
        lines(&rome),
        [
            "NetworkConfigurationStatus Ready NetworkConfigurationPresence",
            "NetworkGatewayPresence Ready GatewayPresence",
            "NetworkGatewayServerStatus Ready GatewaysReady",
            "NetworkConnectionStatus Established ConnectionEstablished",
        ]
    );
}

#[test]
fn the_summary_follows_gateway_and_connection() {
    let mut rome = rome();
    with_served_milan(&mut rome);
    let pending = lines(&rome)[3].clone();

    rome.put(
        Kind::Pod,
        gateway_pod("gateway-b", "rome-2", "10.244.2.9", false),
    );
    rome.edit(
        Kind::Connection,
        &key("gw-milan"),
        json!({"status": {"value": "Error"}}),
    );
    rome.settle();
    let some = lines(&rome);
    rome.delete(Kind::GatewayServer, &key("milan"));
    rome.settle();

    assert_eq!(pending, "NetworkConnectionStatus Pending ConnectionPending");
    assert_eq!(
        some[2],
        "NetworkGatewayServerStatus SomeNotReady GatewaysSomeNotReady"
    );
    assert_eq!(some[3], "NetworkConnectionStatus Error ConnectionError");
    assert_eq!(
        lines(&rome)[1],
        "NetworkGatewayPresence NotReady GatewayMissing"
    );
    assert_eq!(
        lines(&rome)[2],
        "NetworkConnectionStatus NotReady ConnectionMissing"
    );
}

#[test]
fn the_summary_reports_why_there_is_no_connection() {
    let mut rome = rome();
    with_served_milan(&mut rome);
    let blocked = "milan -> this cluster is blocked";

    for (value, line) in [
        ("Error", "NetworkConnectionStatus Error ConnectionError"),
        (
            "Connecting",
            "NetworkConnectionStatus Pending ConnectionPending",
        ),
    ] {
        let status = json!({"status": {"value": value, "conditions": [{
            "type": "PathHealthy", "status": "False", "reason": "NothingArrives", "message": blocked,
            "lastTransitionTime": "2026-11-22T00:00:00Z",
        }]}});
        rome.edit(Kind::Connection, &key("gw-milan"), status);
        rome.settle();

        assert_eq!(lines(&rome)[3], line);
        let object = rome.get(Kind::ForeignCluster, &Key::cluster("milan"));
        assert_eq!(
            object["status"]["modules"]["networking"]["conditions"][3]["message"],
            blocked
        );
    }
}

#[test]
fn the_summary_names_a_broken_hop_until_the_path_is_healthy() {
    let mut rome = rome();
    with_served_milan(&mut rome);
    let path = |status: &str, reason: &str, message: &str| {
        json!({"status": {"value": "Connected", "conditions": [{
            "type": "PathHealthy", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-11-22T00:00:00Z",
        }]}})
    };

    let broken = path("False", "LocalOverlay", "node rome-1: its overlay is dead");
    rome.edit(Kind::Connection, &key("gw-milan"), broken);
    rome.settle();
    assert_eq!(
        lines(&rome)[3],
        "NetworkConnectionStatus SomeNotReady LocalOverlay"
    );
    let object = rome.get(Kind::ForeignCluster, &Key::cluster("milan"));
    assert_eq!(
        object["status"]["modules"]["networking"]["conditions"][3]["message"],
        "node rome-1: its overlay is dead"
    );

    for status in ["True", "Unknown"] {
        rome.edit(Kind::Connection, &key("gw-milan"), path(status, "Any", ""));
        rome.settle();
        assert_eq!(
            lines(&rome)[3],
            "NetworkConnectionStatus Established ConnectionEstablished"
        );
    }
}

#[test]
fn a_deleted_peer_leaves_no_objects_in_any_order_of_deletion() {
    let parts = [
        (Kind::Configuration, "milan"),
        (Kind::GatewayServer, "milan"),
        (Kind::PublicKey, "milan"),
    ];
    for first in 0..parts.len() {
        for is_alone in [false, true] {
            let mut rome = rome();
            let before = rome.objects.keys().cloned().collect::<Vec<_>>();
            with_served_milan(&mut rome);
            for index in 0..parts.len() {
                let (kind, name) = parts[(first + index) % parts.len()];
                if is_alone {
                    // Neither the manager nor the garbage collector runs.
                    rome.remove_alone(kind, &key(name));
                    rome.restart();
                } else {
                    rome.delete(kind, &key(name));
                }
                rome.settle();
            }

            let mut after = rome.objects.keys().cloned().collect::<Vec<_>>();
            // The administrator owns the namespace, with which the RoleBinding is deleted.
            after.retain(|(kind, _)| !matches!(kind, Kind::Namespace | Kind::RoleBinding));
            assert_eq!(after, before, "first {first}, alone {is_alone}");
            let keys = rome.get(Kind::GatewayKeys, &Key::new("liqo", "liqo-gateway-keys"));
            assert!(
                keys["data"]
                    .as_object()
                    .is_none_or(serde_json::Map::is_empty)
            );
        }
    }
}

#[test]
fn a_restarted_manager_writes_nothing() {
    let mut rome = rome();
    with_served_milan(&mut rome);

    rome.restart();

    assert_eq!(rome.settle(), []);
}

#[test]
fn changes_of_one_peer_affect_no_other_peer() {
    let mut rome = rome();
    for number in 0..20 {
        let peer = format!("peer-{number}");
        rome.put(
            Kind::Configuration,
            configuration(&peer, &["10.244.0.0/16"], &["10.70.0.0/16"]),
        );
        rome.put(
            Kind::GatewayServer,
            server(&peer, &json!({"serviceType": "NodePort"})),
        );
        rome.put(Kind::PublicKey, public_key(&peer, number + 1));
    }
    rome.settle();

    with_served_milan(&mut rome);
    rome.edit(
        Kind::GatewayServer,
        &key("milan"),
        json!({"spec": {"mtu": 1400}}),
    );
    let writes = rome.settle();

    assert!(writes.len() <= 2, "{writes:#?}");
    assert!(writes.iter().all(|write| write.key.namespace == TENANT));
}

#[test]
fn enabled_deployments_follow_the_gateway() {
    let mut rome = rome();
    rome.state.settings.deployment_image = Some("pause".to_owned());
    with_served_milan(&mut rome);
    let name = key("gw-milan");
    let replicas = rome.get(Kind::Deployment, &name)["spec"]["replicas"].clone();

    rome.put(
        Kind::Pod,
        gateway_pod("gateway-a", "rome-1", "10.244.1.9", false),
    );
    rome.settle();
    let without = rome.get(Kind::Deployment, &name)["spec"]["replicas"].clone();
    rome.remove_alone(Kind::GatewayServer, &key("milan"));
    let writes = rome.settle();

    assert_eq!((replicas, without), (json!(1), json!(0)));
    assert!(rome.names(Kind::Deployment).is_empty());
    assert!(
        writes
            .iter()
            .any(|write| matches!(write.action, Action::Delete(Some(_))))
    );
}
