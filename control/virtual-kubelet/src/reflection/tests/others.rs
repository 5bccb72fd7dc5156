//! Kinds that a flag names: PodDisruptionBudgets stand for a custom resource.

use super::shop::shop;
use super::side::{Sides, local, milan, settings};
use control_api::ShadowEndpointSlice;
use control_api::offloading::policy::Policy;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};
use std::time::Duration;

/// Plural of the kind.
const BUDGETS: &str = "poddisruptionbudgets";

pub(super) fn budget(available: u8) -> Value {
    json!({"spec": {"minAvailable": available}})
}

/// Creates or replaces an object of the namespace `shop`, as the API server returns one: with kind and status.
pub(super) fn put_budget(sides: &mut Sides, name: &str, mut object: Value) {
    object["apiVersion"] = "policy/v1".into();
    object["kind"] = "PodDisruptionBudget".into();
    let present = sides
        .simulation
        .local()
        .get::<PodDisruptionBudget>(&local(name));
    if let Some(status) = present.and_then(|it| it.get("status")) {
        object["status"] = status.clone();
    }
    sides.put_in_shop::<PodDisruptionBudget>(name, object);
}

/// Sets the status of an object of the provider, as a controller of it does.
pub(super) fn set_status(sides: &mut Sides, name: &str, healthy: u8) {
    let mut object = sides.remote::<PodDisruptionBudget>(name);
    if object.is_object() {
        object["status"] = json!({"currentHealthy": healthy});
        sides.put_remote::<PodDisruptionBudget>(name, object);
    }
}

fn status(sides: &mut Sides, name: &str) -> Value {
    let object = sides
        .simulation
        .local()
        .get::<PodDisruptionBudget>(&local(name));
    object.map(|it| it["status"].clone()).unwrap_or_default()
}

fn with_budget(seed: u64) -> Sides {
    let mut sides = shop(seed);
    let mut object = budget(1);
    object["metadata"] = json!({
        "labels": {"app": "web"},
        "annotations": {"note": "a"},
        "finalizers": ["example.com/wait"],
    });
    object["status"] = json!({"currentHealthy": 7});
    object["spec"]["selector"] = json!({});
    put_budget(&mut sides, "web", object);
    sides.pass();
    sides
}

#[test]
fn all_fields_but_metadata_and_status_are_reflected_as_they_are() {
    for seed in 0..10 {
        let mut sides = with_budget(seed);

        let object = sides.remote::<PodDisruptionBudget>("web");
        assert_eq!(object["kind"], "PodDisruptionBudget");
        assert_eq!(object["apiVersion"], "policy/v1");
        assert_eq!(object["spec"], json!({"minAvailable": 1, "selector": {}}));
        assert_eq!(object["status"], Value::Null);
        let metadata = &object["metadata"];
        assert_eq!(
            metadata["labels"],
            json!({"app": "web", "offloading.liqo.io/origin": "rome", "offloading.liqo.io/destination": "milan"})
        );
        assert_eq!(metadata["annotations"], json!({"note": "a"}));
        assert_eq!(metadata["finalizers"], Value::Null);
        assert_eq!(sides.events(), [""; 0]);
        sides.assert_settled();
    }
}

#[test]
fn a_change_is_one_write_and_an_empty_field_is_not_an_absent_one() {
    let mut sides = with_budget(1);
    let before = sides.writes().len();
    put_budget(&mut sides, "web", budget(1));
    sides.pass();

    let object = sides.remote::<PodDisruptionBudget>("web");
    assert_eq!(object["spec"]["minAvailable"], 1);
    assert_eq!(
        sides.writes().split_off(before),
        ["apply poddisruptionbudgets/web"]
    );

    let mut skipped = budget(1);
    skipped["metadata"] = json!({"annotations": {"liqo.io/skip-reflection": "true"}});
    put_budget(&mut sides, "web", skipped);
    sides.pass();
    assert_eq!(sides.remote::<PodDisruptionBudget>("web"), Value::Null);
    put_budget(&mut sides, "web", budget(2));
    sides.pass();
    assert!(sides.remote::<PodDisruptionBudget>("web").is_object());
    sides.remove::<PodDisruptionBudget>("web");
    sides.pass();
    assert_eq!(sides.remote::<PodDisruptionBudget>("web"), Value::Null);
    sides.assert_stable();
}

#[test]
fn the_annotation_of_a_namespace_applies_to_other_kinds_too() {
    let mut sides = with_budget(9);
    sides.pass();
    assert!(sides.remote::<PodDisruptionBudget>("web").is_object());

    sides.put::<Namespace>(json!({
        "metadata": {"name": "shop", "annotations": {"liqo.io/skip-reflection": "true"}},
    }));
    sides.pass();
    assert_eq!(sides.remote::<PodDisruptionBudget>("web"), Value::Null);

    sides.put::<Namespace>(json!({"metadata": {"name": "shop"}}));
    sides.pass();
    assert!(sides.remote::<PodDisruptionBudget>("web").is_object());
}

#[test]
fn with_an_allow_list_only_annotated_objects_are_reflected() {
    let mut settings = settings();
    settings
        .policies
        .insert(super::side::budgets(), Policy::AllowList);
    let mut sides = Sides::new(1, settings);
    put_budget(&mut sides, "web", budget(1));
    let mut allowed = budget(1);
    allowed["metadata"] = json!({"annotations": {"liqo.io/allow-reflection": "true"}});
    put_budget(&mut sides, "api", allowed);
    sides.pass();

    assert_eq!(sides.writes(), ["create poddisruptionbudgets/api"]);
    sides.assert_settled();
}

#[test]
fn the_status_of_the_provider_is_written_back_and_put_back() {
    for seed in 0..10 {
        let mut sides = with_budget(seed);
        set_status(&mut sides, "web", 3);
        sides.pass();
        assert_eq!(status(&mut sides, "web"), json!({"currentHealthy": 3}));

        let mut object = sides
            .simulation
            .local()
            .get::<PodDisruptionBudget>(&local("web"))
            .cloned()
            .unwrap();
        object["status"]["currentHealthy"] = 9.into();
        sides.put_in_shop::<PodDisruptionBudget>("web", object);
        sides.pass();
        assert_eq!(status(&mut sides, "web"), json!({"currentHealthy": 3}));
        // Another process remembers no object.
        sides.simulation.crash(0);
        set_status(&mut sides, "web", 4);
        sides.pass();
        assert_eq!(status(&mut sides, "web"), json!({"currentHealthy": 4}));
        sides.assert_settled();
    }
}

/// The provider's object has another generation than that of this cluster.
#[test]
fn the_generation_of_a_status_is_that_of_this_cluster_once_the_provider_has_the_change() {
    let mut sides = shop(1);
    let generation = |generation: u8| json!({"generation": generation});
    let changed = |available: u8, number: u8| {
        let mut object = budget(available);
        object["metadata"] = generation(number);
        object
    };
    put_budget(&mut sides, "web", changed(1, 7));
    sides.pass();
    let report = |sides: &mut Sides, number: u8, observed: u8| {
        let mut object = sides.remote::<PodDisruptionBudget>("web");
        object["metadata"]["generation"] = number.into();
        let conditions = json!([{"type": "Ready", "observedGeneration": observed}]);
        object["status"] = json!({"observedGeneration": observed, "conditions": conditions});
        sides.put_remote::<PodDisruptionBudget>("web", object);
        sides.pass();
    };
    let about = |sides: &mut Sides| {
        let status = status(sides, "web");
        let condition = &status["conditions"][0]["observedGeneration"];
        (status["observedGeneration"].clone(), condition.clone())
    };
    report(&mut sides, 3, 3);
    assert_eq!(about(&mut sides), (json!(7), json!(7)));

    // The provider refuses the change at first.
    let right = Some(("apply", BUDGETS));
    sides
        .simulation
        .cluster(&milan())
        .refuse_right(right, false);
    put_budget(&mut sides, "web", changed(2, 8));
    sides.pass();
    assert_eq!(about(&mut sides), (json!(7), json!(7)));
    sides.simulation.cluster(&milan()).refuse_right(None, false);
    sides.simulation.pass(Duration::from_secs(70));
    report(&mut sides, 4, 3);
    assert_eq!(about(&mut sides), (json!(7), json!(7)));
    report(&mut sides, 4, 4);
    assert_eq!(about(&mut sides), (json!(8), json!(8)));
    sides.assert_settled();
}

/// The provider has the changed field already, and a further one: the Apply changes nothing that a watch reports.
#[test]
fn a_change_that_the_provider_has_already_is_observed() {
    let mut sides = shop(1);
    let object =
        |spec: Value, generation: u8| json!({"spec": spec, "metadata": {"generation": generation}});
    put_budget(&mut sides, "web", object(json!({"minAvailable": 1}), 7));
    sides.pass();
    let mut remote = sides.remote::<PodDisruptionBudget>("web");
    remote["metadata"]["generation"] = 3.into();
    remote["spec"] = json!({"minAvailable": 1, "maxUnavailable": 5, "selector": {}});
    remote["status"] = json!({"observedGeneration": 3});
    sides.put_remote::<PodDisruptionBudget>("web", remote);
    sides.pass();
    assert_eq!(status(&mut sides, "web"), json!({"observedGeneration": 7}));

    let changed = json!({"minAvailable": 1, "maxUnavailable": 5});
    put_budget(&mut sides, "web", object(changed, 8));
    sides.pass();

    assert_eq!(status(&mut sides, "web"), json!({"observedGeneration": 8}));
}

#[test]
fn a_status_that_another_controller_of_this_cluster_writes_is_left_for_a_minute() {
    let mut sides = with_budget(1);
    set_status(&mut sides, "web", 3);
    sides.pass();
    for _ in 0..5 {
        let mut object = sides
            .simulation
            .local()
            .get::<PodDisruptionBudget>(&local("web"))
            .cloned()
            .unwrap();
        object["status"]["currentHealthy"] = 9.into();
        object["metadata"]["managedFields"] = json!([
            {"manager": "kubectl", "operation": "Update", "time": "2026-11-27T10:00:02Z"},
            {"manager": "operator", "operation": "Update", "subresource": "status", "time": "2026-11-27T10:00:01Z"},
        ]);
        sides.put_in_shop::<PodDisruptionBudget>("web", object);
        sides.simulation.pass(Duration::from_secs(1));
    }

    assert_eq!(status(&mut sides, "web"), json!({"currentHealthy": 9}));
    let event = "FailedReflection PodDisruptionBudget/web: the field manager operator of this cluster changes the status";
    assert!(
        sides.events().iter().any(|it| it.starts_with(event)),
        "{:?}",
        sides.events()
    );
    sides.simulation.pass(Duration::from_secs(60));
    assert_eq!(status(&mut sides, "web"), json!({"currentHealthy": 3}));
}

/// The status of an object that the provider does not have any more is not removed: the last one is known to be old.
#[test]
fn only_statuses_of_reflected_objects_are_written_back() {
    let mut sides = with_budget(1);
    let foreign = json!({"kind": "PodDisruptionBudget", "status": {"currentHealthy": 5}});
    sides.put_remote::<PodDisruptionBudget>("api", foreign);
    put_budget(&mut sides, "api", budget(1));
    sides.pass();

    assert_eq!(status(&mut sides, "api"), Value::Null);
    let event = "FailedReflection PodDisruptionBudget/api: poddisruptionbudgets.policy shop-rome/api of cluster milan already exists";
    assert!(
        sides.events().iter().any(|it| it.starts_with(event)),
        "{:?}",
        sides.events()
    );
}

#[test]
fn a_kind_that_the_provider_refuses_is_reported_once_and_others_go_on() {
    let mut sides = shop(1);
    sides
        .simulation
        .cluster(&milan())
        .refuse_right(Some(("list", BUDGETS)), false);
    put_budget(&mut sides, "web", budget(1));
    sides.simulation.pass(Duration::from_secs(600));

    assert_eq!(sides.remote::<PodDisruptionBudget>("web"), Value::Null);
    assert!(sides.remote::<ConfigMap>("web").is_object());
    let refused = |sides: &Sides| {
        let event = "FailedReflection NamespaceOffloading/offloading: poddisruptionbudgets.policy is not reflected to cluster milan, \
                     because cluster milan refuses it: ";
        let events = sides.events().into_iter();
        events.filter(|it| it.starts_with(event)).count()
    };
    assert_eq!(refused(&sides), 1, "{:?}", sides.events());

    sides.simulation.cluster(&milan()).refuse_right(None, false);
    sides.pass();
    assert!(sides.remote::<PodDisruptionBudget>("web").is_object());
    assert_eq!(refused(&sides), 1);
    sides.assert_settled();
}

#[test]
fn a_kind_that_this_cluster_refuses_is_reported() {
    let mut sides = shop(1);
    sides
        .simulation
        .local()
        .refuse_right(Some(("list", BUDGETS)), false);
    put_budget(&mut sides, "web", budget(1));
    sides.pass();

    assert_eq!(sides.remote::<PodDisruptionBudget>("web"), Value::Null);
    let is_it = |it: &String| {
        it.contains("because this cluster refuses it")
            && it.contains("liqo.io/aggregate-to-virtual-kubelet-local=true")
    };
    assert!(sides.events().iter().any(is_it), "{:?}", sides.events());
    sides.simulation.local().refuse_right(None, false);
    sides.pass();
    assert!(sides.remote::<PodDisruptionBudget>("web").is_object());
}

#[test]
fn a_withdrawn_namespace_keeps_nothing_and_does_not_wait_for_a_refused_kind() {
    for is_refused in [false, true] {
        let mut sides = with_budget(1);
        if is_refused {
            sides.simulation.crash(0);
            let right = Some(("list", BUDGETS));
            sides
                .simulation
                .cluster(&milan())
                .refuse_right(right, false);
        }
        sides.put_map(&json!({}), &json!({"shop": "Accepted"}));
        sides.pass();

        let budget = sides.remote::<PodDisruptionBudget>("web");
        assert_eq!(budget.is_null(), !is_refused, "{budget}");
        let server = sides.simulation.cluster(&milan());
        let left = [
            server.all::<ConfigMap>(),
            server.all::<Secret>(),
            server.all::<Service>(),
            server.all::<ShadowEndpointSlice>(),
        ];
        assert_eq!(left.concat(), Vec::<&Value>::new());
    }
}
