//! Repair of the manager's objects that a user deletes or edits.

use super::*;
use std::collections::BTreeMap;

/// A cluster with a peer, a Deployment for it, and an IP with a Service.
fn complete_cluster() -> Cluster {
    let mut rome = rome();
    rome.state.settings.deployment_image = Some("pause".to_owned());
    with_milan(&mut rome);
    rome.put(
        Kind::GatewayServer,
        server("milan", &json!({"serviceType": "NodePort"})),
    );
    rome.put(Kind::PublicKey, public_key("milan", 8));
    rome.put(
        Kind::Ip,
        json!({
            "metadata": {"name": "printer", "namespace": "office"},
            "spec": {
                "ip": "192.0.2.9",
                "serviceTemplate": {"spec": {"ports": [{"port": 80}]}},
            },
        }),
    );
    rome.settle();
    rome
}

/// Returns the objects without versions and random values.
fn contents(rome: &Cluster) -> BTreeMap<String, Value> {
    let objects = rome.objects.iter();
    objects
        .map(|((kind, key), object)| {
            let mut object = object.clone();
            for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
                object["metadata"][field].take();
            }
            // Times of conditions, and the address of a Service that was created again.
            object["status"].take();
            object["spec"]["clusterIPs"].take();
            if matches!(kind, Kind::Secret | Kind::GatewayKeys) {
                object["data"].take();
            }
            drop_empty(&mut object);
            (format!("{kind} {key}"), object)
        })
        .collect()
}

/// Drops null fields, empty maps and empty lists, as an API server does.
fn drop_empty(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.values_mut().for_each(drop_empty);
        fields.retain(|_, value| {
            !matches!(value, Value::Null) && *value != json!({}) && *value != json!([])
        });
    }
}

/// Damages the objects that the manager has created, one at a time, and checks that each is repaired.
fn expect_repaired(damage: impl Fn(&mut Cluster, Kind, &Key)) {
    let complete = complete_cluster();
    let kinds: std::collections::BTreeSet<_> =
        complete.created.iter().map(|(kind, _)| *kind).collect();
    assert!(kinds.len() >= 8, "{kinds:?}");
    let before = contents(&complete);

    for (kind, key) in &complete.created {
        let mut rome = complete.clone();
        damage(&mut rome, *kind, key);
        rome.settle();

        let after = contents(&rome);
        assert_eq!(
            after.keys().collect::<Vec<_>>(),
            before.keys().collect::<Vec<_>>()
        );
        for (name, object) in &after {
            assert_eq!(
                object, &before[name],
                "{name}, after {kind} {key} was damaged"
            );
        }
        assert_eq!(rome.settle(), [], "{kind} {key}");
    }
}

#[test]
fn deleted_objects_are_created_again() {
    expect_repaired(|rome, kind, key| rome.delete(kind, key));
}

#[test]
fn removed_labels_are_restored() {
    expect_repaired(|rome, kind, key| {
        rome.edit(kind, key, json!({"metadata": {"labels": null}}));
    });
}

#[test]
fn removed_owners_are_restored() {
    expect_repaired(|rome, kind, key| {
        rome.edit(kind, key, json!({"metadata": {"ownerReferences": null}}));
    });
}

#[test]
fn changed_fields_are_corrected() {
    expect_repaired(|rome, kind, key| {
        let damage = if kind == Kind::Service {
            json!({"spec": {"selector": {"networking.liqo.io/component": "x", "y": "z"}}})
        } else if kind == Kind::EndpointSlice {
            json!({"endpoints": [], "ports": []})
        } else if kind == Kind::Deployment {
            json!({"spec": {"replicas": 7}})
        } else if kind == Kind::Connection {
            json!({"spec": {"type": "Client", "gatewayRef": {"name": "x"}}})
        } else if kind == Kind::Network {
            json!({"spec": {"cidr": "10.9.0.0/16"}})
        } else {
            json!({"status": null})
        };
        rome.edit(kind, key, damage);
    });
}

#[test]
fn a_service_that_is_created_again_has_the_published_node_port() {
    let mut rome = complete_cluster();
    let name = Key::new("liqo", "liqo-gateway");
    let reported =
        |rome: &Cluster| rome.get(Kind::GatewayServer, &key("milan"))["status"]["endpoint"].clone();
    let before = reported(&rome);

    rome.delete(Kind::Service, &name);
    rome.settle();

    assert!(before["port"].is_number());
    assert_eq!(reported(&rome), before);

    let port = u16::try_from(before["port"].as_i64().unwrap()).unwrap();
    rome.taken_ports = vec![port];
    rome.delete(Kind::Service, &name);
    rome.settle();
    let other = &reported(&rome)["port"];
    assert!(other.is_number() && *other != before["port"], "{other}");
}
