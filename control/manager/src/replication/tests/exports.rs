//! Exported Services, which a provider may not know.

use super::super::object::is_replica;
use super::MOMENT;
use super::peering::{LOCAL, Peering, local, milan, remote};
use control_api::ExportedService;
use serde_json::{Value, json};

fn put(peering: &mut Peering, port: u16) {
    let labels = json!({"liqo.io/replication": "true", "liqo.io/remoteID": "milan"});
    let mut exported = json!({
        "apiVersion": "networking.liqo.io/v1beta1",
        "kind": "ExportedService",
        "metadata": {"name": "web.shop.rome", "namespace": LOCAL, "labels": labels},
        "spec": {"namespace": "shop", "name": "web", "type": "ClusterSetIP", "ports": [{"port": port}]},
    });
    if let Some(present) = get(peering) {
        exported["metadata"]["finalizers"] = present["metadata"]["finalizers"].clone();
    }
    peering.simulation.local().put::<ExportedService>(exported);
    peering.run(MOMENT);
}

fn get(peering: &mut Peering) -> Option<Value> {
    let server = peering.simulation.local();
    server
        .get::<ExportedService>(&local("web.shop.rome"))
        .cloned()
}

fn replica(peering: &mut Peering) -> Option<Value> {
    let server = peering.simulation.cluster(&milan());
    server
        .get::<ExportedService>(&remote("web.shop.rome"))
        .cloned()
}

fn delete(peering: &mut Peering) {
    let server = peering.simulation.local();
    server.remove::<ExportedService>(&local("web.shop.rome"));
    peering.run(MOMENT);
}

#[test]
fn an_exported_service_is_replicated_until_it_is_deleted() {
    let mut peering = Peering::new(1);
    put(&mut peering, 80);
    let created = replica(&mut peering).unwrap();
    assert_eq!(created["metadata"]["labels"]["liqo.io/originID"], "rome");
    assert_eq!(created["metadata"]["labels"]["liqo.io/replicated"], "true");

    put(&mut peering, 81);
    let changed = replica(&mut peering).unwrap();
    assert_eq!(changed["spec"]["ports"][0]["port"], 81);
    assert_eq!(changed["metadata"]["uid"], created["metadata"]["uid"]);

    delete(&mut peering);
    assert!(get(&mut peering).is_none() && replica(&mut peering).is_none());
}

#[test]
fn a_provider_without_exports_serves_everything_else() {
    let mut peering = Peering::new(2);
    let right = Some(("list", "exportedservices"));
    let server = peering.simulation.cluster(&milan());
    server.refuse_right(right, false);
    put(&mut peering, 80);
    peering.put_slice("milan", "2");
    peering.run(MOMENT);
    assert!(peering.replica("milan").is_some() && replica(&mut peering).is_none());

    delete(&mut peering);
    assert!(get(&mut peering).is_none(), "no replica can exist");
}

#[test]
fn an_export_of_the_provider_itself_is_no_replica() {
    let object = |labels: Value| json!({"metadata": {"name": "web.shop.milan", "labels": labels}});
    let replica = json!({"liqo.io/replicated": "true", "liqo.io/originID": "rome"});
    assert!(is_replica(&object(replica), "rome"));
    for labels in [
        json!({}),
        json!({"liqo.io/replication": "false", "liqo.io/originID": "milan"}),
        json!({"liqo.io/replicated": "true", "liqo.io/originID": "turin"}),
    ] {
        assert!(!is_replica(&object(labels.clone()), "rome"), "{labels}");
    }
}
