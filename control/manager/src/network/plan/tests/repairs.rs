//! Objects of the manager that a user deletes or edits are repaired.

use super::*;
use std::collections::BTreeMap;

/// A cluster with a peer, a Deployment for it, and an IP with a Service.
fn whole() -> Cluster {
    let mut rome = rome();
    rome.state.settings.deployment_image = Some("pause".to_owned());
    with_milan(&mut rome);
    rome.make(
        Kind::GatewayServer,
        server("milan", &json!({"serviceType": "NodePort"})),
    );
    rome.make(Kind::PublicKey, public_key("milan", 8));
    rome.make(
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

/// Returns what people could see the difference of: not versions, and not what is random.
fn contents(rome: &Cluster) -> BTreeMap<String, Value> {
    let objects = rome.objects.iter();
    objects
        .map(|((kind, key), object)| {
            let mut object = object.clone();
            for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
                object["metadata"][field].take();
            }
            // Times of conditions, and the address of a Service that was made anew.
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

/// Drops what an API server drops: fields that are null, and empty maps and lists.
fn drop_empty(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.values_mut().for_each(drop_empty);
        fields.retain(|_, value| {
            !matches!(value, Value::Null) && *value != json!({}) && *value != json!([])
        });
    }
}

/// Does harm to each object that the manager has made, one at a time, and checks that it is undone.
fn expect_undone(harm: impl Fn(&mut Cluster, Kind, &Key)) {
    let whole = whole();
    let kinds: std::collections::BTreeSet<_> = whole.made.iter().map(|(kind, _)| *kind).collect();
    assert!(kinds.len() >= 8, "{kinds:?}");
    let before = contents(&whole);

    for (kind, key) in &whole.made {
        let mut rome = whole.clone();
        harm(&mut rome, *kind, key);
        rome.settle();

        let after = contents(&rome);
        assert_eq!(
            after.keys().collect::<Vec<_>>(),
            before.keys().collect::<Vec<_>>()
        );
        for (name, object) in &after {
            assert_eq!(
                object, &before[name],
                "{name}, after {kind} {key} was harmed"
            );
        }
        assert_eq!(rome.settle(), [], "{kind} {key}");
    }
}

#[test]
fn what_is_deleted_is_made_again() {
    expect_undone(|rome, kind, key| rome.delete(kind, key));
}

#[test]
fn what_loses_its_labels_gets_them_back() {
    expect_undone(|rome, kind, key| {
        rome.edit(kind, key, json!({"metadata": {"labels": null}}));
    });
}

#[test]
fn what_loses_its_owner_gets_it_back() {
    expect_undone(|rome, kind, key| {
        rome.edit(kind, key, json!({"metadata": {"ownerReferences": null}}));
    });
}

#[test]
fn what_is_changed_is_put_right() {
    expect_undone(|rome, kind, key| {
        let harm = if kind == Kind::Service {
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
        rome.edit(kind, key, harm);
    });
}

#[test]
fn a_service_that_is_made_again_has_the_node_port_that_peers_were_reported() {
    let mut rome = whole();
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
