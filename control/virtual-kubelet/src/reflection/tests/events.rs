//! Events of the provider about reflected objects.

use super::side::{Connect, Sides, milan, settings};
use crate::reflection::conflicts::Conflicts;
use crate::reflection::controller::ReflectionController;
use crate::reflection::event::controller::EventController;
use crate::reflection::event::settings::EventSettings;
use crate::reflection::policy::Policy;
use control_runtime::simulation::Simulation;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::Ingress;
use serde_json::{Value, json};

/// Returns both clusters with the reflected object `web` of each kind.
fn sides(seed: u64, policy: Policy) -> Sides {
    let of_events = EventSettings {
        reflection: settings(),
        node: None,
        policy,
    };
    let simulation = Simulation::new(seed)
        .host(|| Connect)
        .host(|| ReflectionController::new(settings(), Conflicts::default()))
        .host(move || EventController::new(of_events.clone()));
    let mut sides = Sides::with(simulation);
    sides.put_in_shop::<ConfigMap>("kube-root-ca.crt", json!({"data": {"ca.crt": "x"}}));
    sides.put_in_shop::<Service>("web", super::shop::service());
    sides.put_in_shop::<Ingress>("web", json!({"spec": {"rules": [{"host": "a.example"}]}}));
    sides.put_in_shop::<EndpointSlice>("web", super::shop::slice(&[]));
    sides
}

/// Creates an Event of the provider about an object, and returns its name.
fn report(sides: &mut Sides, kind: &str, object: &str, uid: &Value) -> String {
    let name = format!("{object}.{}", kind.to_lowercase());
    sides.put_remote::<Event>(
        &name,
        json!({
            "involvedObject": {"kind": kind, "namespace": "shop-rome", "name": object, "uid": uid},
            "type": "Warning", "reason": "Failed", "message": "no address", "count": 1,
        }),
    );
    name
}

fn involved(sides: &mut Sides, name: &str) -> Value {
    let key = super::side::local(name);
    let event = sides.simulation.local().get::<Event>(&key);
    event.cloned().unwrap_or_default()["involvedObject"].clone()
}

#[test]
fn events_about_reflected_objects_are_about_those_of_this_cluster() {
    for seed in 0..20 {
        let mut sides = sides(seed, Policy::DenyList);
        sides.pass();
        let uid = |object: Value| object["metadata"]["uid"].clone();
        let service = uid(sides.remote::<Service>("web"));
        let ingress = uid(sides.remote::<Ingress>("web"));
        let map = uid(sides.remote::<ConfigMap>("kube-root-ca.crt.rome"));
        let names = [
            report(&mut sides, "Service", "web", &service),
            report(&mut sides, "Ingress", "web", &ingress),
            report(&mut sides, "ConfigMap", "kube-root-ca.crt.rome", &map),
            report(&mut sides, "EndpointSlice", "web", &json!("of-its-own")),
        ];
        sides.pass();

        let local = |sides: &mut Sides, version: &str, kind: &str, name: &str, uid: Value| {
            let expected = json!({
                "apiVersion": version, "kind": kind, "namespace": "shop", "name": name, "uid": uid, "fieldPath": null,
            });
            let found = names.iter().map(|it| involved(sides, it));
            let found = Vec::from_iter(found);
            assert!(found.contains(&expected), "seed {seed}: {found:?}");
        };
        let key = super::side::local("web");
        let of = |object: Option<&Value>| uid(object.cloned().unwrap_or_default());
        let service = of(sides.simulation.local().get::<Service>(&key));
        local(&mut sides, "v1", "Service", "web", service);
        let ingress = of(sides.simulation.local().get::<Ingress>(&key));
        local(
            &mut sides,
            "networking.k8s.io/v1",
            "Ingress",
            "web",
            ingress,
        );
        let slice = of(sides.simulation.local().get::<EndpointSlice>(&key));
        local(
            &mut sides,
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "web",
            slice,
        );
        let root_ca = super::side::local("kube-root-ca.crt");
        let map = of(sides.simulation.local().get::<ConfigMap>(&root_ca));
        local(&mut sides, "v1", "ConfigMap", "kube-root-ca.crt", map);
        sides.assert_stable();
    }
}

#[test]
fn events_about_objects_that_are_not_reflected_are_not_reflected() {
    let mut sides = sides(1, Policy::DenyList);
    sides.put_in_shop::<ConfigMap>("theirs", json!({}));
    sides.put_remote::<ConfigMap>("theirs", json!({}));
    sides.pass();
    let uid = sides.remote::<ConfigMap>("theirs")["metadata"]["uid"].clone();
    let names = [
        report(&mut sides, "ConfigMap", "theirs", &uid),
        report(&mut sides, "Service", "web", &json!("of-an-earlier-one")),
        report(&mut sides, "Service", "other", &Value::Null),
        report(&mut sides, "Pod", "web", &Value::Null),
        report(&mut sides, "Node", "web", &Value::Null),
    ];
    sides.pass();

    for name in names {
        assert_eq!(involved(&mut sides, &name), Value::Null, "{name}");
    }
}

#[test]
fn with_an_allow_list_only_annotated_events_are_reflected() {
    let mut sides = sides(1, Policy::AllowList);
    sides.pass();
    let uid = sides.remote::<Service>("web")["metadata"]["uid"].clone();
    let name = report(&mut sides, "Service", "web", &uid);
    sides.pass();
    assert_eq!(involved(&mut sides, &name), Value::Null);

    let server = sides.simulation.cluster(&milan());
    let mut event = server
        .get::<Event>(&super::side::remote(&name))
        .cloned()
        .unwrap();
    event["metadata"]["annotations"] = json!({"liqo.io/allow-reflection": "true"});
    sides.put_remote::<Event>(&name, event);
    sides.pass();
    assert_eq!(involved(&mut sides, &name)["kind"], "Service");
}
