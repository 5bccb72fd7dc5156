use super::*;
use serde_json::json;

#[test]
fn links_are_found_by_subject_and_end_with_the_object() {
    let mut world = World::new("liqo");
    let public_key = |peer: &str| {
        let object = serde_json::from_value::<PublicKey>(json!({
            "metadata": {"name": peer, "namespace": peer, "labels": {"liqo.io/remote-cluster-id": peer}},
            "spec": {"publicKey": "AAEC"},
        }));
        (Key::new(peer, peer), Arc::new(object.unwrap()))
    };

    let (key, object) = public_key("milan");
    world.put(Kind::PublicKey, &key, object);
    let (key, object) = public_key("naples");
    let tasks = world.put(Kind::PublicKey, &key, object);
    let shared = IndexKey::PublicKey(vec![0, 1, 2]);
    let both = world.linked(&shared).count();
    world.remove(Kind::PublicKey, &Key::new("naples", "naples"));

    let peers = ["milan", "naples"].map(|peer| WorkItem::Peer(peer.to_owned()));
    assert_eq!(tasks, peers.into(), "who shares a key is looked at again");
    assert_eq!((both, world.linked(&shared).count()), (2, 1));
}

#[test]
fn an_object_of_another_type_is_ignored() {
    let mut world = World::new("liqo");
    let key = Key::new("liqo", "a");

    let tasks = world.put(Kind::Network, &key, Arc::new(Pod::default()));

    assert!(tasks.is_empty() && !world.networks.contains(&key));
}

#[test]
fn the_secrets_of_a_namespace_are_known_once_they_were_listed() {
    let mut world = World::new("liqo");
    let key = Key::new("milan", "gw-milan");
    world.put(Kind::Secret, &key, Arc::new(Secret::default()));
    assert!(!world.is_readable("milan"));

    world.secrets_listed("milan");
    assert!(world.is_readable("milan"));
    world.forget_secrets("milan");
    assert!(!world.is_readable("milan") && !world.secrets.contains(&key));
}
