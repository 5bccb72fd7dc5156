//! Leftovers of a deleted peer, and writes that concern one peer.

use super::*;
use crate::network::write::Action;

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

#[test]
fn deployments_of_virtual_kubelets_are_not_deleted() {
    let mut rome = rome();
    rome.state.settings.deployment_image = Some("pause".to_owned());
    with_served_milan(&mut rome);
    // Another controller of the process watches it.
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "vk-milan",
            "namespace": TENANT,
            "uid": "vk",
            "labels": {
                "liqo.io/managed": "true",
                "liqo.io/remote-cluster-id": "milan",
                "offloading.liqo.io/component": "virtual-kubelet",
            },
        },
        "spec": {"selector": {}, "template": {}},
    });
    rome.deliver(Kind::Deployment, deployment);
    let writes = rome.settle();
    rome.remove_alone(Kind::GatewayServer, &key("milan"));
    let later = rome.settle();

    let touched = writes.iter().chain(&later);
    let touched: Vec<_> = touched.filter(|it| it.key.name == "vk-milan").collect();
    assert!(touched.is_empty(), "{touched:?}");
}
