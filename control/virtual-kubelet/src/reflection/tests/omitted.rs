//! More offloaded namespaces than a virtual kubelet follows.

use super::side::{Connect, Sides, settings};
use crate::reflection::conflicts::Conflicts;
use crate::reflection::controller::ReflectionController;
use crate::reflection::namespaces::FOLLOWED_MAX;
use crate::reflection::omitted::Omitted;
use control_runtime::simulation::Simulation;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Offloads these namespaces.
fn put_map(sides: &mut Sides, names: &[&str]) {
    let names = names.iter().map(|it| (*it).to_owned());
    let desired: Map<_, _> = names
        .clone()
        .map(|it| (it.clone(), format!("{it}-rome").into()))
        .collect();
    let phases: Map<_, _> = names.map(|it| (it, "Accepted".into())).collect();
    sides.put_map(&Value::Object(desired), &Value::Object(phases));
}

#[test]
fn a_namespace_beyond_the_limit_is_reported_once_and_follows_when_there_is_room() {
    let omitted = Omitted::default();
    let shared = omitted.clone();
    let make = move || {
        let controller = ReflectionController::new(settings(), Conflicts::default());
        controller.following(2).omitting(shared.clone())
    };
    let mut sides = Sides::with(Simulation::new(1).host(|| Connect).host(make));
    sides.put_in_shop::<ConfigMap>("web", json!({"data": {"color": "blue"}}));
    let reports = |sides: &Sides| {
        let event = format!(
            "FailedReflection NamespaceOffloading/offloading: the objects of the namespace are not reflected to cluster milan, \
             because {FOLLOWED_MAX} other namespaces are"
        );
        let events = sides.events();
        events.iter().filter(|it| it.starts_with(&event)).count()
    };

    put_map(&mut sides, &["a", "b", "shop"]);
    sides.simulation.pass(Duration::from_secs(300));
    assert_eq!((reports(&sides), omitted.count()), (1, 1));
    assert!(sides.writes().is_empty());

    put_map(&mut sides, &["b", "shop"]);
    sides.simulation.pass(Duration::from_secs(90));
    assert_eq!(sides.writes(), ["create ConfigMap/web"]);
    assert_eq!((reports(&sides), omitted.count()), (1, 0));
}

#[test]
fn each_namespace_is_reported_once_per_process() {
    let mut omitted = Omitted::default();
    assert!(omitted.note("shop", true) && omitted.note("books", true));
    assert!(!omitted.note("shop", true));
    assert_eq!(omitted.count(), 2);

    omitted.reset();
    assert_eq!(omitted.count(), 0);
    assert!(!omitted.note("shop", true), "after another election");
    assert!(!omitted.note("shop", false) && !omitted.note("shop", true));
    assert_eq!(omitted.count(), 1);
}
