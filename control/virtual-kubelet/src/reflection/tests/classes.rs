//! Classes that the VirtualNode no longer offers. A change of them restarts the virtual kubelet.

use super::immutable::Immutable;
use super::side::{Connect, Sides, milan, settings};
use crate::reflection::conflicts::Conflicts;
use crate::reflection::controller::ReflectionController;
use crate::reflection::settings::Settings;
use control_runtime::simulation::Simulation;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Message of the policy in `charts/liqo/templates/policies/reflection.yaml`.
const WITHDRAWN: &str =
    "denied request: spec.ingressClassName: the provider does not offer this class";

const OTHER_HOST: &str =
    "denied request: spec.rules: spec.ingressHosts permits the hosts a.example only";

type Shared = Arc<Mutex<Settings>>;

fn shared(class: Option<&str>) -> Shared {
    let class = class.map(str::to_owned);
    Arc::new(Mutex::new(Settings {
        ingress_class: class.clone(),
        load_balancer_class: class,
        ..settings()
    }))
}

fn controller(shared: &Shared) -> ReflectionController {
    ReflectionController::new(shared.lock().unwrap().clone(), Conflicts::default())
}

/// Returns both clusters, whose VirtualNode offers a class.
fn sides(class: Option<&str>) -> (Sides, Shared) {
    let shared = shared(class);
    let settings = Arc::clone(&shared);
    let make = move || controller(&settings);
    let sides = Sides::with(Simulation::new(1).host(|| Connect).host(make));

    (sides, shared)
}

/// Returns both clusters, whose VirtualNode offers the class `fast`, and whose provider refuses each Apply with a message.
fn refusing(message: &'static str) -> (Sides, Shared) {
    let shared = shared(Some("fast"));
    let settings = Arc::clone(&shared);
    let make = move || Immutable(controller(&settings), message);
    let sides = Sides::with(Simulation::new(1).host(|| Connect).host(make));

    (sides, shared)
}

/// Withdraws the classes, as a VirtualNode without them does.
fn withdraw(sides: &mut Sides, shared: &Shared) {
    shared.lock().unwrap().ingress_class = None;
    shared.lock().unwrap().load_balancer_class = None;
    sides.simulation.crash(0);
    sides.pass();
}

fn ingress(host: &str) -> Value {
    json!({"spec": {"rules": [{"host": host}]}})
}

fn balancer() -> Value {
    json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}})
}

fn class_of_ingress(sides: &mut Sides) -> Value {
    sides.remote::<Ingress>("web")["spec"]["ingressClassName"].clone()
}

#[test]
fn objects_lose_a_class_that_is_withdrawn() {
    // The creation has set the class, or a later change.
    for is_changed in [false, true] {
        let (mut sides, shared) = sides(Some("fast"));
        sides.put_in_shop::<Ingress>("web", ingress("a.example"));
        sides.put_in_shop::<Service>("web", balancer());
        sides.pass();
        if is_changed {
            sides.put_in_shop::<Ingress>("web", ingress("b.example"));
            sides.pass();
        }
        assert_eq!(class_of_ingress(&mut sides), "fast");
        let balancer = sides.remote::<Service>("web");
        assert_eq!(balancer["spec"]["loadBalancerClass"], "fast");

        withdraw(&mut sides, &shared);

        assert_eq!(class_of_ingress(&mut sides), Value::Null);
        let balancer = sides.remote::<Service>("web");
        assert_eq!(balancer["spec"]["loadBalancerClass"], Value::Null);
        sides.assert_stable();
    }
}

/// The virtual kubelet does not know whether it has set the class before. Its write has no effect, and is not repeated.
#[test]
fn the_default_class_of_the_provider_stays_after_a_restart() {
    let (mut sides, shared) = sides(None);
    let default = |object: &mut Value| object["spec"]["ingressClassName"] = "default".into();
    sides
        .simulation
        .cluster(&milan())
        .set_defaults::<Ingress>(default);
    sides.put_in_shop::<Ingress>("web", ingress("a.example"));
    sides.pass();
    assert_eq!(sides.writes(), ["create Ingress/web"]);

    withdraw(&mut sides, &shared);

    assert_eq!(class_of_ingress(&mut sides), "default");
    assert_eq!(sides.writes(), ["create Ingress/web", "apply Ingress/web"]);
    sides.simulation.pass(Duration::from_secs(600));
    assert_eq!(sides.writes().len(), 2);
}

/// The policy of the provider refuses each change of an object that still has the class.
#[test]
fn an_object_whose_class_the_provider_refuses_is_created_again_without_it() {
    for is_deleted in [true, false] {
        let message = if is_deleted { WITHDRAWN } else { OTHER_HOST };
        let (mut sides, shared) = refusing(message);
        sides.put_in_shop::<Ingress>("web", ingress("a.example"));
        sides.pass();

        withdraw(&mut sides, &shared);

        let class = class_of_ingress(&mut sides);
        let expected = if is_deleted {
            Value::Null
        } else {
            json!("fast")
        };
        assert_eq!(class, expected);
    }
}

#[test]
fn an_object_whose_new_class_the_provider_refuses_stays() {
    let (mut sides, shared) = refusing(WITHDRAWN);
    sides.put_in_shop::<Ingress>("web", ingress("a.example"));
    sides.pass();
    shared.lock().unwrap().ingress_class = Some("other".to_owned());
    sides.simulation.crash(0);
    sides.pass();

    assert_eq!(class_of_ingress(&mut sides), "fast");
    assert_eq!(sides.writes(), ["create Ingress/web"]);
}
