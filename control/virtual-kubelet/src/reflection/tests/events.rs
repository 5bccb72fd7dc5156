//! Events of the provider about reflected objects.

use super::side::{Connect, Sides, milan, settings};
use crate::reflection::conflicts::Conflicts;
use crate::reflection::controller::ReflectionController;
use crate::reflection::event::controller::{ObjectEvents, PodEvents};
use crate::reflection::event::drops::Drops;
use crate::reflection::event::settings::EventSettings;
use control_api::offloading::policy::Policy;
use control_runtime::Cluster;
use control_runtime::simulation::Simulation;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;

/// Returns both clusters with the reflected object `web` of each kind.
fn sides(seed: u64, policy: Policy) -> Sides {
    counted((seed, 2), policy, &Drops::default())
}

/// Returns both clusters with a number of replicas, and a metric of dropped Events.
fn counted((seed, replicas): (u64, usize), policy: Policy, drops: &Drops) -> Sides {
    let [of_pods, of_objects] = [drops; 2].map(Drops::clone);
    let events = EventSettings {
        reflection: settings(),
        node: None,
        policy,
    };
    let mut pod_events = EventSettings {
        node: Some("milan".to_owned()),
        ..events.clone()
    };
    pod_events.reflection.policies.clear();
    let simulation = Simulation::new(seed)
        .replicas(replicas)
        .host(|| Connect)
        .host(|| ReflectionController::new(settings(), Conflicts::default()))
        .host(move || PodEvents::new(pod_events.clone(), of_pods.clone()))
        .host(move || ObjectEvents::new(events.clone(), of_objects.clone()));
    let mut sides = Sides::with(simulation);
    sides.put_in_shop::<ConfigMap>("kube-root-ca.crt", json!({"data": {"ca.crt": "x"}}));
    sides.put_in_shop::<Service>("web", super::shop::service());
    sides.put_in_shop::<Ingress>("web", json!({"spec": {"rules": [{"host": "a.example"}]}}));
    sides.put_in_shop::<EndpointSlice>("web", super::shop::slice(&[]));
    sides
}

/// Creates an Event of the provider about an object, and returns its name.
fn report(sides: &mut Sides, kind: &str, object: &str, uid: &Value) -> String {
    report_in(sides, (None, kind), object, uid)
}

/// Creates an Event of the provider about an object of a version, and returns its name.
fn report_in(
    sides: &mut Sides,
    (version, kind): (Option<&str>, &str),
    object: &str,
    uid: &Value,
) -> String {
    let name = format!("{object}.{}", kind.to_lowercase());
    sides.put_remote::<Event>(
        &name,
        json!({
            "involvedObject": {"apiVersion": version, "kind": kind, "namespace": "shop-rome", "name": object, "uid": uid},
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
fn events_about_a_kind_that_a_flag_names_are_about_the_object_of_this_cluster() {
    let mut sides = sides(1, Policy::DenyList);
    super::others::put_budget(&mut sides, "web", super::others::budget(1));
    sides.pass();
    let uid = sides.remote::<PodDisruptionBudget>("web")["metadata"]["uid"].clone();
    let names = ["PodDisruptionBudget", "Certificate", "Service"];
    let names = names.map(|kind| report_in(&mut sides, (Some("policy/v1"), kind), "web", &uid));
    sides.pass();

    let key = super::side::local("web");
    let local = sides.simulation.local().get::<PodDisruptionBudget>(&key);
    let uid = local.unwrap()["metadata"]["uid"].clone();
    let expected = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "namespace": "shop", "name": "web", "uid": uid,
        "fieldPath": null,
    });
    assert_eq!(involved(&mut sides, &names[0]), expected);
    assert_eq!(involved(&mut sides, &names[1]), Value::Null);
    assert_eq!(involved(&mut sides, &names[2]), Value::Null);
    sides.assert_stable();
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

/// As by a request of before that the API server has received late.
#[test]
fn an_earlier_state_that_arrives_late_is_replaced() {
    let mut sides = sides(1, Policy::DenyList);
    sides.pass();
    let uid = sides.remote::<Service>("web")["metadata"]["uid"].clone();
    let name = report(&mut sides, "Service", "web", &uid);
    sides.pass();
    let key = super::side::local(&name);
    let written = sides
        .simulation
        .local()
        .get::<Event>(&key)
        .cloned()
        .unwrap();

    let mut earlier = written.clone();
    earlier["message"] = json!("earlier");
    sides.simulation.local().put::<Event>(earlier);
    sides.simulation.pass(Duration::from_secs(20));
    let now = sides
        .simulation
        .local()
        .get::<Event>(&key)
        .cloned()
        .unwrap();
    assert_eq!(now["message"], written["message"]);
}

#[test]
fn events_beyond_the_limit_of_an_object_are_counted() {
    let mut registry = Registry::with_prefix("liqo_virtual_kubelet");
    let drops = Drops::new(&mut registry);
    let mut sides = counted((1, 1), Policy::DenyList, &drops);
    sides.pass();
    for number in 0..70 {
        sides.put_remote::<Event>(
            &format!("web.{number}"),
            json!({
                "involvedObject": {"kind": "Service", "namespace": "shop-rome", "name": "web"},
                "type": "Normal", "reason": "Synced", "message": "x", "count": 1,
            }),
        );
    }
    sides.simulation.pass(Duration::from_secs(60));

    assert_eq!(sides.simulation.local().all::<Event>().len(), 64);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for (limit, count) in [("object", 6), ("writes", 0)] {
        let line = format!(
            "liqo_virtual_kubelet_reflection_dropped_events_total{{limit=\"{limit}\"}} {count}\n"
        );
        assert!(text.contains(&line), "{text}");
    }
}

const LIMIT: Duration = Duration::from_secs(1800);

#[derive(Clone, Debug)]
enum Fault {
    /// The Event of this number occurs so often.
    Report(usize, u8),
    Partition(bool),
    Heal(bool),
    Crash(usize),
    HandOver(usize),
    Run(u64),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        5 => (0..3_usize, 1..9_u8).prop_map(|(event, count)| Fault::Report(event, count)),
        1 => any::<bool>().prop_map(Fault::Partition),
        2 => any::<bool>().prop_map(Fault::Heal),
        1 => (0..2_usize).prop_map(Fault::Crash),
        1 => (0..2_usize).prop_map(Fault::HandOver),
        3 => (0_u64..30_000).prop_map(Fault::Run),
        6 => (0_u64..30).prop_map(Fault::Run),
    ]
}

fn cluster(is_local: bool) -> Cluster {
    if is_local { Cluster::Local } else { milan() }
}

fn inject(sides: &mut Sides, fault: &Fault) {
    match *fault {
        Fault::Report(event, count) => sides.put_remote::<Event>(
            &format!("web.{event}"),
            json!({
                "involvedObject": {"kind": "Service", "namespace": "shop-rome", "name": "web"},
                "type": "Normal", "reason": "Synced", "message": "x", "count": count,
            }),
        ),
        Fault::Partition(is_local) => sides.simulation.partition(&cluster(is_local)),
        Fault::Heal(is_local) => sides.simulation.heal(&cluster(is_local)),
        Fault::Crash(replica) => sides.simulation.crash(replica),
        Fault::HandOver(replica) => sides.simulation.hand_over(replica),
        Fault::Run(millis) => {
            sides.simulation.run(Duration::from_millis(millis));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn both_clusters_have_the_same_events_after_any_faults(
        seed: u64,
        faults in prop::collection::vec(fault(), 0..40),
    ) {
        let mut sides = sides(seed, Policy::DenyList);
        for fault in &faults {
            inject(&mut sides, fault);
        }
        for is_local in [true, false] {
            sides.simulation.heal(&cluster(is_local));
        }
        sides.simulation.settle(LIMIT)?;

        for event in 0..3 {
            let name = format!("web.{event}");
            let there = sides.remote::<Event>(&name)["count"].clone();
            let key = super::side::local(&name);
            let here = sides.simulation.local().get::<Event>(&key).cloned();
            prop_assert_eq!(&here.unwrap_or_default()["count"], &there, "{}", name);
        }
        let again = sides.simulation.replan(LIMIT)?;
        prop_assert!(again.is_empty(), "{:?}", again);
    }
}
