//! The work items of a change: those of the peers that it concerns only.

use super::super::item::WorkItem;
use super::super::registrations::registrations;
use super::*;
use control_runtime::{Cache, Changed, Controller as _};

fn settings() -> Settings {
    Settings {
        namespace: "liqo".to_owned(),
        tenant_namespaces: Vec::new(),
        has_authentication: true,
    }
}

/// Returns the cache of a manager with 20 other peers.
fn cache() -> Cache {
    let mut cache = Cache::fixture(&registrations(&settings())).unwrap();
    for number in 0..20 {
        let metadata = json!({"name": format!("peer-{number}")});
        let spec = json!({"clusterID": format!("peer-{number}")});
        put(
            &mut cache,
            &json!({"kind": "ForeignCluster", "metadata": metadata, "spec": spec}),
        );
    }
    put(&mut cache, &namespace());

    cache
}

fn put(cache: &mut Cache, object: &Value) -> Option<Changed> {
    let registrations = registrations(&settings());
    let mut registrations = registrations.iter();
    let registration =
        registrations.find(|it| it.resource.kind == object["kind"].as_str().unwrap());
    let entry = registration.unwrap().decode(&object.to_string()).unwrap();
    cache.fixture_put(registration.unwrap(), entry)
}

/// Returns the peers that a change concerns.
fn peers(object: &Value, before: Option<&Value>) -> Vec<String> {
    let (mut cache, mut controller) = (
        cache(),
        ForeignClusterController::new(settings(), Refusals::default()),
    );
    before.map(|before| put(&mut cache, before));
    let change = put(&mut cache, object);
    let change = change.iter().map(Changed::as_change);
    let items = change.flat_map(|change| controller.observe(&change, &cache));
    let peers = items.filter_map(|item| match item {
        WorkItem::Peer(peer) => Some(peer),
        WorkItem::Probe(_) | WorkItem::Watches(_) => None,
    });
    peers.collect()
}

#[test]
fn an_object_of_a_peer_concerns_this_peer() {
    for object in [
        configuration(),
        connection("Connected"),
        server(),
        client(),
        public_key(),
        tenant(),
        identity(),
        secret(),
        slice("Accepted", "Any"),
        renew(),
        namespace_map(),
        quota(),
        virtual_node("milan", json!({})),
        kubelet("milan", true),
        node("milan", true),
    ] {
        let mut changed = object.clone();
        changed["metadata"]["finalizers"] = json!(["example.com/wait"]);
        assert_eq!(peers(&object, None), ["milan"], "{object}");
        assert_eq!(peers(&changed, Some(&object)), ["milan"], "{object}");
    }
}

#[test]
fn a_changed_label_concerns_both_peers() {
    let mut changed = configuration();
    changed["metadata"]["labels"]["liqo.io/remote-cluster-id"] = json!("turin");

    assert_eq!(peers(&changed, Some(&configuration())), ["milan", "turin"]);
}

#[test]
fn a_replica_of_the_gateway_concerns_all_peers_if_it_becomes_ready() {
    let mut moved = gateway_pod("a", true);
    moved["status"]["podIP"] = json!("10.244.1.10");

    assert_eq!(peers(&gateway_pod("a", true), None).len(), 20);
    assert_eq!(
        peers(&gateway_pod("a", true), Some(&gateway_pod("a", false))).len(),
        20
    );
    assert_eq!(peers(&moved, Some(&gateway_pod("a", true))), [""; 0]);
}
