use super::*;
use serde_json::json;

fn object(version: u64, cidr: &str) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "ipam.liqo.io/v1alpha1",
        "kind": "Network",
        "metadata": {
            "name": "a",
            "namespace": "liqo",
            "uid": "1",
            "resourceVersion": version.to_string(),
            "managedFields": [{"manager": "x"}],
        },
        "spec": {"cidr": cidr},
    }))
    .unwrap()
}

fn key() -> Key {
    Key::new("liqo", "a")
}

#[test]
fn what_an_answer_told_is_not_undone_by_an_older_event() {
    let mut world = World::new("liqo");

    let new = world.put(Kind::Network, object(10, "10.1.0.0/16")).unwrap();
    let old = world.put(Kind::Network, object(9, "10.2.0.0/16")).unwrap();
    let same = world.put(Kind::Network, object(11, "10.1.0.0/16")).unwrap();

    assert_eq!(new, [Task::Network(key())].into());
    assert!(old.is_empty() && same.is_empty());
    assert_eq!(world.networks.get(&key()).unwrap().spec.cidr, "10.1.0.0/16");
    assert_eq!(world.networks.meta(&key()).unwrap().managed_fields, None);
}

#[test]
fn the_end_of_an_object_is_not_that_of_its_successor() {
    let mut world = World::new("liqo");
    world.put(Kind::Network, object(5, "10.1.0.0/16")).unwrap();

    let late = world.deleted(Kind::Network, &key(), Some("0"));
    let is_there = world.networks.contains(&key());
    let own = world.deleted(Kind::Network, &key(), Some("1"));

    assert!(late.is_empty() && is_there);
    assert_eq!(own, [Task::Network(key())].into());
}

#[test]
fn what_a_new_list_does_not_tell_of_is_gone() {
    let mut world = World::new("liqo");
    world.put(Kind::Network, object(1, "10.1.0.0/16")).unwrap();

    let networks = Listing::all(Kind::Network);
    world.begin_list(&networks);
    let tasks = world.end_list(&networks);

    assert_eq!(tasks, [Task::Network(key())].into());
    assert!(!world.networks.contains(&key()));
}

#[test]
fn an_object_without_the_form_of_its_kind_is_refused_and_the_old_one_stays() {
    let mut world = World::new("liqo");
    world.put(Kind::Network, object(1, "10.1.0.0/16")).unwrap();
    let mut nonsense = object(2, "10.1.0.0/16");
    nonsense.data = json!({"spec": {"cidr": 7}});

    assert!(world.put(Kind::Network, nonsense).is_err());
    assert!(world.networks.contains(&key()));
}

#[test]
fn links_are_found_by_subject_and_end_with_the_object() {
    let mut world = World::new("liqo");
    let public_key = |peer: &str| {
        serde_json::from_value(json!({
            "metadata": {"name": peer, "namespace": peer, "labels": {"liqo.io/remote-cluster-id": peer}},
            "spec": {"publicKey": "AAEC"},
        }))
        .unwrap()
    };

    world.put(Kind::PublicKey, public_key("milan")).unwrap();
    let tasks = world.put(Kind::PublicKey, public_key("naples")).unwrap();
    let shared = Subject::PublicKey(vec![0, 1, 2]);
    let both = world.linked(&shared).count();
    world.remove(Kind::PublicKey, &Key::new("naples", "naples"));

    let peers = ["milan", "naples"].map(|peer| Task::Peer(peer.to_owned()));
    assert_eq!(tasks, peers.into(), "who shares a key is looked at again");
    assert_eq!((both, world.linked(&shared).count()), (2, 1));
}
