//! Objects that requests have deleted.

use super::*;

#[test]
fn late_events_and_answers_do_not_bring_an_object_back_whose_deletion_was_answered() {
    let mut fixture = Fixture::new();
    fixture.list(&["x"]);
    let object = Ref::new(&Cluster::Local, &fixture.id.resource, &Key::new("a", "x"));
    assert!(fixture.cache.delete_answer(&object, "uid-x").is_some());

    assert!(fixture.apply("x", 7, "naples").is_none());
    assert!(fixture.answer("x", 8, "naples").is_none());
    assert!(!fixture.cache.contains(&object));
    // The same with another object of the name.
    let mut other = fixture.entry("x", 10, "turin");
    other.uid = "uid-other".to_owned();
    let put = (fixture.cache).put_answer(&Cluster::Local, &object.resource, other);
    assert!(put.unwrap().is_some());
    assert!(fixture.apply("x", 9, "milan").is_none());
    assert_eq!(fixture.names("turin"), ["x"]);

    assert!(fixture.delete("x", 9).is_none());
    assert_eq!(fixture.names("turin"), ["x"]);
    let progress = &fixture.cache.watches[&fixture.id];
    assert!(progress.deleted.is_empty());
}

#[test]
fn a_limited_number_of_answered_deletions_is_remembered() {
    let mut fixture = Fixture::new();
    let names: Vec<_> = (0..1_100).map(|it| format!("x{it}")).collect();
    fixture.list(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let resource = fixture.id.resource.clone();
    let object = |name: &str| Ref::new(&Cluster::Local, &resource, &Key::new("a", name));
    for name in &names {
        let uid = format!("uid-{name}");
        assert!(fixture.cache.delete_answer(&object(name), &uid).is_some());
    }
    assert_eq!(fixture.cache.watches[&fixture.id].deleted.len(), 1_024);

    fixture.list(&[]);
    let mut long = fixture.entry("long", 20, "milan");
    long.uid = "u".repeat(65);
    let id = fixture.id.clone();
    fixture.cache.put_watched(&id, long, false).unwrap();
    let uid = "u".repeat(65);
    assert!(fixture.cache.delete_answer(&object("long"), &uid).is_some());
    assert!(fixture.cache.watches[&id].deleted.is_empty());
}

#[test]
fn a_list_brings_an_object_back_whose_deletion_was_answered() {
    let mut fixture = Fixture::new();
    fixture.list(&["x"]);
    let object = Ref::new(&Cluster::Local, &fixture.id.resource, &Key::new("a", "x"));
    fixture.cache.delete_answer(&object, "uid-x");

    fixture.list(&["x"]);

    assert_eq!(fixture.names("milan"), ["x"]);
    assert!(fixture.apply("x", 7, "naples").is_some());
}

#[test]
fn a_late_answer_does_not_bring_a_deleted_object_back() {
    let mut fixture = Fixture::new();
    fixture.list(&["x"]);
    assert!(fixture.delete("x", 8).is_some());

    assert!(fixture.answer("x", 7, "milan").is_none());
    assert!(fixture.answer("x", 9, "milan").is_some());
}
