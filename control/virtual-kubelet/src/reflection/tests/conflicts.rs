//! Objects of the provider with another owner, and fields that others change.

use super::shop::{map, shop};
use super::side::{Sides, milan, remote, settings};
use crate::reflection::conflicts::Conflicts;
use crate::reflection::controller::ReflectionController;
use control_runtime::simulation::Simulation;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::{Value, json};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Returns both clusters with a ConfigMap that is reflected, and the metric.
fn counted() -> (Sides, Conflicts) {
    let conflicts = Conflicts::default();
    let shared = conflicts.clone();
    let make = move || ReflectionController::new(settings(), shared.clone());
    let simulation = Simulation::new(1).host(|| super::side::Connect).host(make);
    let mut sides = Sides::with(simulation);
    sides.put_in_shop::<ConfigMap>("web", map("blue"));
    sides.pass();

    (sides, conflicts)
}

/// Changes a reflected field of the provider, as `kubectl edit` does.
fn edit(sides: &mut Sides, color: &str) {
    let mut changed = sides.remote::<ConfigMap>("web");
    changed["data"]["color"] = color.into();
    changed["metadata"]["managedFields"] = json!([
        {"manager": "reflection.liqo.io", "operation": "Apply", "time": "2026-11-27T10:00:00Z"},
        {"manager": "kubectl-edit", "operation": "Update", "time": "2026-11-27T10:00:01Z"},
    ]);
    sides.put_remote::<ConfigMap>("web", changed);
}

/// Returns the number of changes that were sent to the provider.
fn writes(sides: &Sides) -> usize {
    let writes = sides.writes().into_iter();
    writes.filter(|it| !it.starts_with("get ")).count()
}

fn color(sides: &mut Sides) -> Value {
    sides.remote::<ConfigMap>("web")["data"]["color"].clone()
}

#[test]
fn a_field_that_is_changed_again_and_again_is_written_three_times_and_then_each_minute() {
    let (mut sides, conflicts) = counted();
    let before = writes(&sides);
    for _ in 0..3 {
        edit(&mut sides, "green");
        sides.simulation.pass(Duration::from_secs(1));
        assert_eq!(color(&mut sides), "blue");
    }
    edit(&mut sides, "green");
    sides.simulation.pass(Duration::from_secs(50));
    assert_eq!(color(&mut sides), "green");
    assert_eq!(writes(&sides) - before, 3);
    assert_eq!(conflicts.count("configmap", "contested"), 1);
    let event = "FailedReflection ConfigMap/web: the field manager kubectl-edit of cluster milan changes reflected fields of \
                 ConfigMap shop-rome/web again and again, so they are written once a minute: let one of them own the fields";
    let events = sides.events();
    assert!(events.contains(&event.to_owned()), "{events:?}");

    // The other one goes on for ten minutes.
    for _ in 0..120 {
        edit(&mut sides, "green");
        sides.simulation.pass(Duration::from_secs(5));
    }
    let count = writes(&sides) - before;
    assert!((12..=14).contains(&count), "{count}");

    sides.simulation.pass(4 * MINUTE);
    assert_eq!(color(&mut sides), "blue");
    assert_eq!(conflicts.count("configmap", "contested"), 0);
    edit(&mut sides, "red");
    sides.simulation.pass(Duration::from_secs(1));
    assert_eq!(color(&mut sides), "blue");
    sides.assert_stable();
}

#[test]
fn a_change_of_this_cluster_is_written_at_once_although_the_object_is_contested() {
    let (mut sides, _) = counted();
    for _ in 0..5 {
        edit(&mut sides, "green");
        sides.simulation.pass(Duration::from_secs(1));
    }
    assert_eq!(color(&mut sides), "green");

    sides.put_in_shop::<ConfigMap>("web", map("red"));
    sides.simulation.pass(Duration::from_secs(1));

    assert_eq!(color(&mut sides), "red");
}

/// A namespace may be withdrawn and offloaded again several times within a minute.
#[test]
fn objects_that_this_cluster_removes_are_created_again_at_once() {
    let (mut sides, conflicts) = counted();
    for _ in 0..6 {
        sides.remove::<ConfigMap>("web");
        sides.simulation.pass(Duration::from_secs(1));
        assert_eq!(sides.remote::<ConfigMap>("web"), Value::Null);
        sides.put_in_shop::<ConfigMap>("web", map("blue"));
        sides.simulation.pass(Duration::from_secs(1));
        assert_eq!(color(&mut sides), "blue");
    }
    assert_eq!(conflicts.count("configmap", "contested"), 0);
}

#[test]
fn an_object_that_is_deleted_again_and_again_is_created_each_minute() {
    let (mut sides, _) = counted();
    let before = writes(&sides);
    for _ in 0..60 {
        let server = sides.simulation.cluster(&milan());
        server.remove::<ConfigMap>(&remote("web"));
        sides.simulation.pass(Duration::from_secs(1));
    }
    let count = writes(&sides) - before;
    assert!((3..=4).contains(&count), "{count}");
    let event =
        "FailedReflection ConfigMap/web: a client of cluster milan changes reflected fields";
    assert!(sides.events().iter().any(|it| it.starts_with(event)));

    sides.simulation.pass(2 * MINUTE);
    assert_eq!(color(&mut sides), "blue");
}

#[test]
fn foreign_objects_are_counted_and_reported_again_as_long_as_they_exist() {
    let (mut sides, conflicts) = counted();
    let foreign = json!({"data": {"key": "AAE="}});
    sides.put_remote::<Secret>("api", foreign.clone());
    sides.put_in_shop::<Secret>("api", json!({"data": {"key": "AAI="}}));
    sides.pass();
    assert_eq!(conflicts.count("secret", "foreign"), 1);
    let repeated = |sides: &Sides| {
        let events = sides.simulation.events(0).iter();
        events
            .filter(|it| it.reason == "FailedReflection" && it.is_repeated)
            .count()
    };
    assert_eq!(repeated(&sides), 1);

    sides.simulation.pass(61 * MINUTE);
    assert_eq!(repeated(&sides), 3);
    assert_eq!(sides.remote::<Secret>("api")["data"], foreign["data"]);

    let server = sides.simulation.cluster(&milan());
    server.remove::<Secret>(&remote("api"));
    sides.simulation.pass(MINUTE + Duration::from_secs(1));
    assert_eq!(sides.remote::<Secret>("api")["data"]["key"], "AAI=");
    assert_eq!(conflicts.count("secret", "foreign"), 0);
    assert_eq!(conflicts.count("configmap", "foreign"), 0);
}

#[test]
fn another_replica_counts_its_own_conflicts() {
    let (mut sides, conflicts) = counted();
    sides.put_remote::<Secret>("api", json!({}));
    sides.put_in_shop::<Secret>("api", json!({"data": {"key": "AAI="}}));
    sides.pass();
    sides.simulation.crash(0);
    sides.pass();

    assert_eq!(conflicts.count("secret", "foreign"), 1);
}

#[test]
fn a_label_that_others_add_stays() {
    let mut sides = shop(1);
    sides.pass();
    let mut labelled = sides.remote::<ConfigMap>("web");
    labelled["metadata"]["labels"]["team"] = "theirs".into();
    labelled["data"]["size"] = "10".into();
    sides.put_remote::<ConfigMap>("web", labelled);
    sides.pass();
    sides.put_in_shop::<ConfigMap>("web", map("red"));
    sides.pass();

    let present = sides.remote::<ConfigMap>("web");
    assert_eq!(present["metadata"]["labels"]["team"], "theirs");
    assert_eq!(present["data"], json!({"color": "red", "size": "10"}));
}

#[test]
fn fields_that_others_add_and_change_are_no_conflict() {
    let (mut sides, conflicts) = counted();
    let before = writes(&sides);
    for size in 0..30 {
        let mut changed = sides.remote::<ConfigMap>("web");
        changed["data"]["size"] = size.to_string().into();
        sides.put_remote::<ConfigMap>("web", changed);
        sides.simulation.pass(Duration::from_secs(1));
    }
    assert_eq!(conflicts.count("configmap", "contested"), 0);
    assert_eq!(sides.remote::<ConfigMap>("web")["data"]["size"], "29");
    let count = writes(&sides) - before;
    assert!((3..=6).contains(&count), "{count}");
    assert!(sides.events().is_empty(), "{:?}", sides.events());

    edit(&mut sides, "green");
    sides.simulation.pass(Duration::from_secs(11));
    assert_eq!(color(&mut sides), "blue");
}
