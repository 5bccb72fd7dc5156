use super::*;
use crate::entry::Signal;
use crate::registration::{Registration, Scope};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::json;

mod deletions;

/// A cache with one watch on the ConfigMaps of the local cluster, indexed by a label.
struct Fixture {
    cache: Cache,
    registration: Registration,
    id: WatchId,
}

impl Fixture {
    fn new() -> Self {
        let registration = Registration::of(Scope::All, |mut map: ConfigMap| {
            map.metadata.resource_version = None;
            map
        });
        let registration = registration.index("peer", |map: &ConfigMap| {
            let label = map.metadata.labels.as_ref().and_then(|it| it.get("peer"));
            label.into_iter().cloned().collect()
        });
        let mut cache = Cache::default();
        cache.register(&registration).unwrap();
        cache.add_cluster(Cluster::Local, CacheLimits::LOCAL);
        let id = registration.watch_id().unwrap();
        cache.add_watch(id.clone());

        Self {
            cache,
            registration,
            id,
        }
    }

    fn entry(&self, name: &str, version: u64, peer: &str) -> Entry {
        let object = json!({"metadata": {"name": name, "namespace": "a", "uid": format!("uid-{name}"),
            "resourceVersion": version.to_string(), "labels": {"peer": peer}}});
        self.registration
            .form
            .decode(&object.to_string(), &Cluster::Local)
            .unwrap()
    }

    fn list(&mut self, names: &[&str]) -> Vec<Changed> {
        self.cache.begin_list(&self.id);
        for name in names {
            let entry = self.entry(name, 1, "milan");
            self.cache.put_watched(&self.id, entry, true).unwrap();
        }
        self.cache.end_list(&self.id)
    }

    fn apply(&mut self, name: &str, version: u64, peer: &str) -> Option<Changed> {
        let entry = self.entry(name, version, peer);
        self.cache.put_watched(&self.id, entry, false).unwrap()
    }

    fn answer(&mut self, name: &str, version: u64, peer: &str) -> Option<Changed> {
        let entry = self.entry(name, version, peer);
        let resource = self.id.resource.clone();
        (self.cache.put_answer(&Cluster::Local, &resource, entry)).unwrap()
    }

    fn delete(&mut self, name: &str, version: u64) -> Option<Changed> {
        let uid = format!("uid-{name}");
        (self.cache).delete_watched(&self.id, &Key::new("a", name), &uid, Some(version))
    }

    fn names(&self, peer: &str) -> Vec<String> {
        let objects = self.cache.objects::<ConfigMap>(&Cluster::Local);
        let found = objects.indexed("peer", peer);
        found.map(|(key, _)| key.name.clone()).collect()
    }
}

#[test]
fn objects_that_a_new_list_does_not_contain_were_deleted() {
    let mut fixture = Fixture::new();
    assert!(!fixture.cache.is_synced(&fixture.id));
    assert!(fixture.list(&["x", "y"]).is_empty());
    assert!(fixture.cache.is_synced(&fixture.id));

    let gone = fixture.list(&["y", "z"]);

    assert_eq!(gone.len(), 1);
    assert_eq!(gone[0].object.key, Key::new("a", "x"));
    assert!(gone[0].new.is_none());
    assert_eq!(fixture.names("milan"), ["y", "z"]);
}

#[test]
fn a_refusal_lasts_until_the_next_list() {
    let mut fixture = Fixture::new();
    fixture.list(&["x"]);
    let refusal = Signal::Refused("forbidden".into());

    fixture.cache.take_signal(&fixture.id, refusal).unwrap();

    assert_eq!(fixture.cache.refusal(&fixture.id), Some("forbidden"));
    assert!(fixture.cache.is_synced(&fixture.id));
    assert_eq!(fixture.names("milan"), ["x"]);
    fixture.list(&["x"]);
    assert_eq!(fixture.cache.refusal(&fixture.id), None);
}

#[test]
fn an_index_follows_the_objects() {
    let mut fixture = Fixture::new();
    fixture.list(&["x"]);

    let change = fixture.apply("x", 5, "naples").unwrap();

    let change = change.as_change();
    assert!(change.before::<ConfigMap>().is_some() && change.after::<ConfigMap>().is_some());
    assert_eq!(fixture.names("milan"), Vec::<String>::new());
    assert_eq!(fixture.names("naples"), ["x"]);
    fixture.delete("x", 6);
    assert_eq!(fixture.names("naples"), Vec::<String>::new());
    assert_eq!(fixture.cache.usage(&Cluster::Local), (0, 0));
}

#[test]
fn a_change_of_fields_that_are_not_kept_is_no_change() {
    let mut fixture = Fixture::new();
    fixture.list(&["x"]);

    assert!(fixture.apply("x", 5, "milan").is_none());
    assert!(fixture.apply("x", 6, "naples").is_some());
}

#[test]
fn a_watch_does_not_undo_an_answer_and_an_answer_does_not_undo_a_watch() {
    let mut fixture = Fixture::new();
    fixture.list(&["x"]);

    assert!(fixture.answer("x", 7, "naples").is_some());
    assert!(fixture.apply("x", 6, "milan").is_none());
    assert_eq!(fixture.names("naples"), ["x"]);
    assert!(fixture.apply("x", 9, "turin").is_some());
    assert!(fixture.answer("x", 8, "naples").is_none());
    assert_eq!(fixture.names("turin"), ["x"]);
}

/// A hostile server chooses which deletions it reports, and the UIDs of objects.
#[test]
fn an_object_outside_of_the_namespace_of_a_watch_is_not_kept() {
    let registration = Registration::whole::<Pod>(Scope::Namespace("a".to_owned()));
    let mut cache = Cache::default();
    cache.register(&registration).unwrap();
    cache.add_cluster(Cluster::Local, CacheLimits::LOCAL);
    let id = registration.watch_id().unwrap();
    cache.add_watch(id.clone());

    for (namespace, expected) in [("b", false), ("a", true)] {
        let pod = json!({"metadata": {"name": "x", "namespace": namespace, "uid": "u", "resourceVersion": "1"},
            "spec": {"containers": []}});
        let entry = registration.decode(&pod.to_string()).unwrap();
        let put = cache.put_watched(&id, entry, true);
        assert_eq!(put.unwrap().is_some(), expected, "{namespace}");
    }
}

#[test]
fn an_answer_with_a_pod_of_another_node_is_not_kept() {
    let registration = Registration::whole::<Pod>(Scope::All).node("milan");
    let mut cache = Cache::default();
    cache.register(&registration).unwrap();
    cache.add_cluster(Cluster::Local, CacheLimits::LOCAL);
    cache.add_watch(registration.watch_id().unwrap());

    for (node, expected) in [("worker", false), ("milan", true)] {
        let pod = json!({"metadata": {"name": "x", "namespace": "a", "uid": "u", "resourceVersion": "1"},
            "spec": {"nodeName": node, "containers": []}});
        let entry = registration.decode(&pod.to_string()).unwrap();
        let put = cache.put_answer(&Cluster::Local, &registration.resource, entry);
        assert_eq!(put.unwrap().is_some(), expected);
    }
}

/// For instance after the restoration of an etcd.
#[test]
fn the_deletion_of_an_earlier_object_leaves_one_of_the_same_name() {
    let mut fixture = Fixture::new();
    fixture.list(&["x"]);

    let key = Key::new("a", "x");
    let deleted = (fixture.cache).delete_watched(&fixture.id, &key, "another", Some(9));

    assert!(deleted.is_none());
    assert_eq!(fixture.names("milan"), ["x"]);
}

#[test]
fn an_answer_about_an_object_that_nothing_watches_is_not_kept() {
    let mut fixture = Fixture::new();
    fixture.list(&[]);
    let id = fixture.id.clone();
    fixture.cache.remove_watch(&id);

    assert!(fixture.answer("x", 7, "milan").is_none());
    assert_eq!(fixture.cache.usage(&Cluster::Local).0, 0);
}

#[test]
fn objects_beyond_the_limits_of_a_cluster_are_rejected() {
    let mut fixture = Fixture::new();
    let limits = CacheLimits {
        objects: 2,
        bytes: 2_500,
    };
    fixture.cache.add_cluster(Cluster::Local, limits);
    fixture.list(&["x", "y"]);

    let third = fixture.entry("z", 3, "milan");
    assert_eq!(
        fixture
            .cache
            .put_watched(&fixture.id, third, false)
            .unwrap_err(),
        limits
    );
    let long = fixture.entry("x", 3, &"long".repeat(500));
    assert!(fixture.cache.put_watched(&fixture.id, long, false).is_err());
    assert!(fixture.apply("x", 4, "naples").is_some());
}

#[test]
fn a_removed_watch_takes_its_objects_unless_another_one_reports_them() {
    let mut fixture = Fixture::new();
    fixture.list(&["x", "y"]);
    let mut named = fixture.id.clone();
    named.selector.name = Some("x".into());
    fixture.cache.add_watch(named.clone());

    let all = fixture.id.clone();
    let removed = fixture.cache.remove_watch(&all);
    assert_eq!(removed.len(), 1);
    assert_eq!(removed[0].object.key.name, "y");
    assert_eq!(fixture.cache.remove_watch(&named).len(), 1);
}

#[test]
fn a_removed_cluster_takes_its_objects() {
    let mut fixture = Fixture::new();
    fixture.list(&["x", "y"]);

    let removed = fixture.cache.remove_cluster(&Cluster::Local);

    assert_eq!(removed.len(), 2);
    assert_eq!(fixture.cache.usage(&Cluster::Local), (0, 0));
}

#[test]
fn a_replay_creates_the_objects_of_the_named_resources() {
    let mut fixture = Fixture::new();
    fixture.list(&["x", "y"]);

    let replayed = fixture
        .cache
        .replay(&BTreeSet::from([fixture.id.resource.clone()]));

    assert_eq!(replayed.len(), 2);
    assert!(
        replayed
            .iter()
            .all(|it| it.old.is_none() && it.new.is_some())
    );
    assert!(fixture.cache.replay(&BTreeSet::new()).is_empty());
}

#[test]
fn an_answer_during_a_list_is_neither_deleted_nor_replaced_by_the_list() {
    let mut fixture = Fixture::new();
    fixture.list(&["x"]);
    let id = fixture.id.clone();

    fixture.cache.begin_list(&id);
    assert!(fixture.answer("x", 7, "naples").is_some());
    assert!(fixture.answer("new", 8, "naples").is_some());
    let listed = fixture.entry("x", 5, "milan");
    assert!(
        fixture
            .cache
            .put_watched(&id, listed, true)
            .unwrap()
            .is_none()
    );
    assert!(fixture.cache.end_list(&id).is_empty());

    assert_eq!(fixture.names("naples"), ["new", "x"]);
    // The next list is right again.
    assert_eq!(fixture.list(&["x"]).len(), 1);
}

/// A streaming list also reports deletions.
#[test]
fn a_deletion_during_a_list_does_not_concern_a_later_object_of_the_name() {
    let mut fixture = Fixture::new();
    fixture.list(&["other"]);
    let (id, key) = (fixture.id.clone(), Key::new("a", "x"));

    fixture.cache.begin_list(&id);
    assert!(fixture.answer("x", 8, "naples").is_some());
    let deleted = (fixture.cache).delete_watched(&id, &key, "another", Some(7));
    assert!(deleted.is_none());
    fixture.cache.end_list(&id);

    assert_eq!(fixture.names("naples"), ["x"]);
}

#[test]
fn a_list_with_lower_versions_is_right() {
    let mut fixture = Fixture::new();
    fixture.list(&["x"]);
    fixture.apply("x", 900, "naples");

    fixture.list(&["x"]);

    assert_eq!(fixture.names("milan"), ["x"]);
}

#[test]
fn an_answer_older_than_a_list_does_not_bring_an_object_back() {
    let mut fixture = Fixture::new();
    let id = fixture.id.clone();
    fixture.cache.begin_list(&id);
    let listed = fixture.entry("y", 10, "milan");
    fixture.cache.put_watched(&id, listed, true).unwrap();
    fixture.cache.end_list(&id);

    assert!(fixture.answer("x", 9, "milan").is_none());
    assert!(fixture.answer("x", 11, "milan").is_some());
}

#[test]
fn an_answer_that_no_watch_selects_is_not_kept() {
    let mut fixture = Fixture::new();
    let id = fixture.id.clone();
    fixture.cache.remove_watch(&id);
    fixture.id.selector.labels = "peer=milan".into();
    fixture.cache.add_watch(fixture.id.clone());
    fixture.list(&[]);

    assert!(fixture.answer("x", 7, "naples").is_none());
    assert!(fixture.answer("y", 8, "milan").is_some());
}

#[test]
fn the_end_of_a_list_that_has_not_begun_removes_nothing() {
    let mut fixture = Fixture::new();
    fixture.list(&["x"]);
    let id = fixture.id.clone();

    assert!(fixture.cache.end_list(&id).is_empty());
    assert_eq!(fixture.names("milan"), ["x"]);
}

#[test]
fn overlapping_watches_do_not_delete_the_objects_of_each_other() {
    let mut fixture = Fixture::new();
    let all = fixture.id.clone();
    fixture.cache.remove_watch(&all);
    let mut of = |labels: &str| {
        let mut id = all.clone();
        id.selector.labels = labels.into();
        fixture.cache.add_watch(id.clone());
        id
    };
    let (first, second) = (of("peer=milan"), of("peer"));

    fixture.id = second.clone();
    fixture.list(&["x", "y"]);
    fixture.id = first.clone();
    assert!(fixture.list(&["x"]).is_empty());
    assert_eq!(fixture.names("milan"), ["x", "y"]);

    // The first watch no longer selects x, or has not seen yet what the second one sees.
    assert!(fixture.delete("x", 9).is_none());
    assert!(fixture.list(&[]).is_empty());
    assert_eq!(fixture.names("milan"), ["x", "y"]);
    fixture.id = second.clone();
    assert!(fixture.delete("x", 9).is_some());
    assert_eq!(fixture.list(&[]).len(), 1);
    assert_eq!(fixture.cache.usage(&Cluster::Local), (0, 0));
}

#[test]
fn an_object_that_two_watches_report_stays_until_both_have_ended() {
    let mut fixture = Fixture::new();
    let all = fixture.id.clone();
    let mut labelled = all.clone();
    labelled.selector.labels = "peer=milan".into();
    fixture.cache.add_watch(labelled.clone());
    fixture.id = labelled.clone();
    fixture.list(&[]);
    fixture.id = all.clone();
    fixture.list(&["x"]);
    // The answer to a request is reported by both, as the objects of their lists are.
    assert!(fixture.answer("y", 7, "milan").is_some());
    assert!(fixture.answer("z", 7, "naples").is_some());

    let removed = fixture.cache.remove_watch(&all);

    let names = removed.iter().map(|it| it.object.key.name.as_str());
    assert_eq!(Vec::from_iter(names), ["x", "z"]);
    assert_eq!(fixture.cache.remove_watch(&labelled).len(), 1);
}

#[test]
fn rejected_objects_are_listed_again_when_there_is_room_but_not_often() {
    let mut fixture = Fixture::new();
    let limits = CacheLimits {
        objects: 10,
        bytes: usize::MAX,
    };
    fixture.cache.add_cluster(Cluster::Local, limits);
    let names = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    fixture.list(&names);
    let more = fixture.entry("more", 3, "milan");
    let id = fixture.id.clone();
    assert!(fixture.cache.put_watched(&id, more.clone(), false).is_err());
    let start = Instant::now();

    assert!(fixture.cache.relistable(start).is_empty());
    fixture.delete("0", 4);
    assert_eq!(
        fixture.cache.relistable(start),
        BTreeSet::from([id.clone()])
    );
    assert!(fixture.cache.relistable(start).is_empty());

    fixture.list(&names);
    assert!(fixture.cache.put_watched(&id, more, false).is_err());
    fixture.delete("0", 4);
    assert!(fixture.cache.relistable(start).is_empty());
    let later = start + std::time::Duration::from_secs(60);
    assert_eq!(fixture.cache.relistable(later), BTreeSet::from([id]));
}

#[test]
fn a_changed_finalizer_is_a_change_although_the_object_is_kept_without() {
    let mut fixture = Fixture::new();
    fixture.registration = Registration::of(Scope::All, |_: ConfigMap| ConfigMap::default());
    fixture.cache = Cache::default();
    fixture.cache.register(&fixture.registration).unwrap();
    fixture
        .cache
        .add_cluster(Cluster::Local, CacheLimits::LOCAL);
    fixture.cache.add_watch(fixture.id.clone());
    fixture.list(&["x"]);
    let object = json!({"metadata": {"name": "x", "namespace": "a", "uid": "uid-x", "resourceVersion": "2",
        "finalizers": ["liqo.io/a"]}});
    let entry = fixture.registration.decode(&object.to_string()).unwrap();

    let change = fixture.cache.put_watched(&fixture.id, entry, false);

    let change = change.unwrap().unwrap();
    assert_eq!(change.new.unwrap().finalizers(), ["liqo.io/a"]);
}
