//! Objects whose immutable fields differ.

use super::others::{budget, put_budget};
use super::side::{Connect, Sides, settings};
use crate::reflection::conflicts::Conflicts;
use crate::reflection::controller::ReflectionController;
use control_runtime::simulation::Simulation;
use control_runtime::{
    Action, Cache, Change, Controller, Env, Outcome, Plan, Registration, Request, WatchId,
};
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::Status;
use serde_json::{Value, json};

/// Refuses each Apply as invalid, with a message.
pub(super) struct Immutable(pub(super) ReflectionController, pub(super) &'static str);

impl Controller for Immutable {
    type Item = <ReflectionController as Controller>::Item;
    const NAME: &'static str = ReflectionController::NAME;
    const FIELD_MANAGER: &'static str = ReflectionController::FIELD_MANAGER;

    fn resources(&self) -> Vec<Registration> {
        self.0.resources()
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<Self::Item> {
        self.0.observe(change, cache)
    }

    fn plan(&mut self, item: &Self::Item, cache: &Cache, env: &mut Env<'_>) -> Plan<Self::Item> {
        let mut plan = self.0.plan(item, cache, env);
        let is_apply = |action: &Action| matches!(action, Action::Apply(_));
        let applies: Vec<_> = plan
            .writes
            .extract_if(.., |it| is_apply(&it.action))
            .collect();
        for apply in applies {
            plan.is_incomplete = true;
            let status = Status::failure(self.1, "Invalid").with_code(422);
            let outcome = Outcome::Refused(Box::new(status));
            self.0.done(item, &Request::Write(apply), &outcome, cache);
        }
        plan
    }

    fn started(&mut self, cache: &Cache) -> Vec<Self::Item> {
        self.0.started(cache)
    }

    fn listed(&mut self, id: &WatchId, cache: &Cache) -> Vec<Self::Item> {
        self.0.listed(id, cache)
    }

    fn refused(&mut self, id: &WatchId, cache: &Cache) -> Vec<Self::Item> {
        self.0.refused(id, cache)
    }

    fn done(
        &mut self,
        item: &Self::Item,
        request: &Request,
        outcome: &Outcome,
        cache: &Cache,
    ) -> Vec<Self::Item> {
        self.0.done(item, request, outcome, cache)
    }
}

fn sides(message: &'static str) -> Sides {
    let make = move || {
        let controller = ReflectionController::new(settings(), Conflicts::default());
        Immutable(controller, message)
    };
    Sides::with(Simulation::new(1).host(|| Connect).host(make))
}

const IMMUTABLE: &str = "data: Forbidden: field is immutable when `immutable` is set";

/// It could not be created again either.
#[test]
fn an_object_whose_change_is_invalid_for_another_reason_is_not_deleted() {
    let mut sides =
        sides("spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated");
    let secret = |value: &str| json!({"data": {"key": value}, "type": "Opaque"});
    sides.put_in_shop::<Secret>("web", secret("AAE="));
    sides.pass();
    sides.put_in_shop::<Secret>("web", secret("AAI="));
    sides.pass();

    assert_eq!(sides.remote::<Secret>("web")["data"]["key"], "AAE=");
    assert_eq!(sides.writes(), ["create Secret/web"]);
}

#[test]
fn an_object_with_another_value_of_an_immutable_field_is_created_again() {
    let mut sides = sides(IMMUTABLE);
    let secret = |value: &str| json!({"data": {"key": value}, "type": "Opaque", "immutable": true});
    sides.put_in_shop::<Secret>("web", secret("AAE="));
    sides.pass();
    sides.put_in_shop::<Secret>("web", secret("AAI="));
    sides.pass();

    assert_eq!(sides.remote::<Secret>("web")["data"]["key"], "AAI=");
    assert_eq!(
        sides.writes(),
        [
            "create Secret/web",
            "delete Secret/web",
            "create Secret/web"
        ]
    );
    sides.assert_stable();
}

/// The change was not refused: the API server keeps a ClusterIP `None` that an Apply does not name.
#[test]
fn a_headless_service_that_becomes_a_normal_one_is_created_again() {
    let mut sides = sides("");
    let service = |spec: Value| json!({"spec": spec});
    let ports = json!([{"port": 80}]);
    let headless = json!({"clusterIP": "None", "ports": ports.clone()});
    sides.put_in_shop::<Service>("web", service(headless));
    sides.pass();
    assert_eq!(sides.remote::<Service>("web")["spec"]["clusterIP"], "None");
    sides.put_in_shop::<Service>(
        "web",
        service(json!({"clusterIP": "10.0.0.7", "ports": ports})),
    );
    sides.pass();

    assert_eq!(
        sides.remote::<Service>("web")["spec"]["clusterIP"],
        json!(null)
    );
    assert_eq!(
        sides.writes(),
        [
            "create Service/web",
            "delete Service/web",
            "create Service/web"
        ]
    );
    sides.assert_stable();
}

/// A webhook or a rule of the CustomResourceDefinition may refuse a change. The object may be the only copy of data.
#[test]
fn a_custom_resource_whose_change_is_invalid_is_not_deleted() {
    let mut sides = sides(IMMUTABLE);
    put_budget(&mut sides, "web", budget(1));
    sides.pass();
    put_budget(&mut sides, "web", budget(5));
    sides.pass();

    let object = sides.remote::<PodDisruptionBudget>("web");
    assert_eq!(object["spec"]["minAvailable"], 1);
    assert_eq!(sides.writes(), ["create poddisruptionbudgets/web"]);
    let event = "FailedReflection PodDisruptionBudget/web: cluster milan refuses the reflected object: data: Forbidden: field is \
                 immutable when `immutable` is set";
    assert!(
        sides.events().contains(&event.to_owned()),
        "{:?}",
        sides.events()
    );
}
