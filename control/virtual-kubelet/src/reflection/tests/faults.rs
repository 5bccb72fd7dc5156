//! The controller while replicas crash, clusters are away and objects change.

use super::others::{budget, put_budget, set_status};
use super::side::{Connect, Sides, local, milan, remote, settings};
use crate::reflection::conflicts::Conflicts;
use crate::reflection::controller::ReflectionController;
use control_runtime::Cluster;
use control_runtime::simulation::Simulation;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1800);
const OBJECTS: usize = 3;
/// The place of the budget's status in [`contents`].
const STATUS: usize = 5;

#[derive(Clone, Debug)]
enum Fault {
    Put(usize, u8),
    Remove(usize),
    RemoveRemote(usize),
    ChangeRemote(usize, u8),
    Offload(bool),
    Partition(bool),
    Heal(bool),
    SwapCredentials,
    Crash(usize),
    HandOver(usize),
    Run(u64),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        5 => (0..OBJECTS, any::<u8>()).prop_map(|(object, value)| Fault::Put(object, value)),
        2 => (0..OBJECTS).prop_map(Fault::Remove),
        1 => (0..OBJECTS).prop_map(Fault::RemoveRemote),
        1 => (0..OBJECTS, any::<u8>()).prop_map(|(object, value)| Fault::ChangeRemote(object, value)),
        1 => any::<bool>().prop_map(Fault::Offload),
        1 => any::<bool>().prop_map(Fault::Partition),
        2 => any::<bool>().prop_map(Fault::Heal),
        1 => Just(Fault::SwapCredentials),
        1 => (0..2_usize).prop_map(Fault::Crash),
        1 => (0..2_usize).prop_map(Fault::HandOver),
        4 => (0_u64..40_000).prop_map(Fault::Run),
        6 => (0_u64..30).prop_map(Fault::Run),
    ]
}

fn name(object: usize) -> String {
    format!("object-{object}")
}

fn cluster(is_local: bool) -> Cluster {
    match is_local {
        true => Cluster::Local,
        false => milan(),
    }
}

fn offload(sides: &mut Sides, is_offloaded: bool) {
    let desired = match is_offloaded {
        true => json!({"shop": "shop-rome"}),
        false => json!({}),
    };
    sides.put_map(&desired, &json!({"shop": "Accepted"}));
}

fn inject(sides: &mut Sides, fault: &Fault) {
    match *fault {
        Fault::Put(object, value) => {
            let name = name(object);
            sides.put_in_shop::<ConfigMap>(&name, json!({"data": {"value": value.to_string()}}));
            sides.put_in_shop::<Secret>(&name, json!({"type": "Opaque", "stringData": {}, "data": {"value": format!("AA{:02}", value % 90 + 10)}}));
            let spec = json!({"type": "ClusterIP", "ports": [{"port": u16::from(value) + 1}]});
            sides.put_in_shop::<Service>(&name, json!({"spec": spec}));
            let rules = json!([{"host": format!("{value}.example")}]);
            sides.put_in_shop::<Ingress>(&name, json!({"spec": {"rules": rules}}));
            put_budget(sides, &name, budget(value));
        }
        Fault::Remove(object) => {
            let name = name(object);
            sides.remove::<ConfigMap>(&name);
            sides.remove::<Secret>(&name);
            sides.remove::<Service>(&name);
            sides.remove::<Ingress>(&name);
            sides.remove::<PodDisruptionBudget>(&name);
        }
        Fault::RemoveRemote(object) => {
            let server = sides.simulation.cluster(&milan());
            server.remove::<ConfigMap>(&remote(&name(object)));
        }
        Fault::ChangeRemote(object, value) => {
            set_status(sides, &name(object), value);
            let mut map = sides.remote::<ConfigMap>(&name(object));
            if map.is_object() {
                // Never a desired value, which would make a write in flight redundant.
                map["data"]["value"] = format!("theirs {value}").into();
                sides.put_remote::<ConfigMap>(&name(object), map);
            }
        }
        Fault::Offload(is_offloaded) => offload(sides, is_offloaded),
        Fault::Partition(is_local) => sides.simulation.partition(&cluster(is_local)),
        Fault::Heal(is_local) => sides.simulation.heal(&cluster(is_local)),
        Fault::SwapCredentials => sides.simulation.swap_credentials(&milan()),
        Fault::Crash(replica) => sides.simulation.crash(replica),
        Fault::HandOver(replica) => sides.simulation.hand_over(replica),
        Fault::Run(millis) => {
            sides.simulation.run(Duration::from_millis(millis));
        }
    }
}

/// Returns the content of an object in both clusters.
fn contents(sides: &mut Sides, object: usize) -> ([Value; 6], [Value; 6]) {
    let name = name(object);
    let server = sides.simulation.local();
    let field =
        |value: Option<&Value>, field: &str| value.map(|it| it[field].clone()).unwrap_or_default();
    let key = local(&name);
    let here = [
        field(server.get::<ConfigMap>(&key), "data"),
        field(server.get::<Secret>(&key), "data"),
        field(server.get::<Service>(&key), "spec"),
        field(server.get::<Ingress>(&key), "spec"),
        field(server.get::<PodDisruptionBudget>(&key), "spec"),
        field(server.get::<PodDisruptionBudget>(&key), "status"),
    ];
    let server = sides.simulation.cluster(&milan());
    let key = remote(&name);
    let there = [
        field(server.get::<ConfigMap>(&key), "data"),
        field(server.get::<Secret>(&key), "data"),
        field(server.get::<Service>(&key), "spec"),
        field(server.get::<Ingress>(&key), "spec"),
        field(server.get::<PodDisruptionBudget>(&key), "spec"),
        field(server.get::<PodDisruptionBudget>(&key), "status"),
    ];
    (here, there)
}

/// Asserts that both clusters have the same objects after faults.
fn check(seed: u64, is_offloaded: bool, faults: &[Fault]) -> Result<(), TestCaseError> {
    let make = || ReflectionController::new(settings(), Conflicts::default());
    let simulation = Simulation::new(seed).host(|| Connect).host(make);
    let mut sides = Sides::with(simulation.replicas(2));
    let foreign = json!({"metadata": {"labels": {"offloading.liqo.io/origin": "turin"}}});
    sides.put_remote::<ConfigMap>("foreign", foreign);
    let foreign = sides.remote::<ConfigMap>("foreign");
    for fault in faults {
        inject(&mut sides, fault);
    }
    for is_local in [true, false] {
        sides.simulation.heal(&cluster(is_local));
    }
    offload(&mut sides, is_offloaded);
    sides.simulation.settle(LIMIT)?;

    for object in 0..OBJECTS {
        let (mut here, mut there) = contents(&mut sides, object);
        if !is_offloaded {
            here = Default::default();
        } else if there[STATUS].is_null() {
            // A status of the provider stays after its object.
            here[STATUS] = there[STATUS].take();
        }
        prop_assert_eq!(there, here);
    }
    prop_assert_eq!(sides.remote::<ConfigMap>("foreign"), foreign);
    let redundant = sides.simulation.redundant();
    prop_assert!(redundant.is_empty(), "{:?}", redundant);
    let again = sides.simulation.replan(LIMIT)?;
    prop_assert!(again.is_empty(), "{:?}", again);

    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn both_clusters_have_the_same_objects_after_any_faults(
        seed: u64,
        is_offloaded: bool,
        faults in prop::collection::vec(fault(), 0..40),
    ) {
        check(seed, is_offloaded, &faults)?;
    }
}

#[test]
fn a_status_stays_while_the_remote_object_is_created_again() {
    let faults = [
        Fault::Put(0, 0),
        Fault::Run(140),
        Fault::ChangeRemote(0, 0),
        Fault::Run(13),
        Fault::Offload(false),
        Fault::Run(26),
    ];

    check(0, true, &faults).unwrap();
}

/// A new leader reads an object, and the watch reports a change of it before the response.
#[test]
fn a_change_that_overtakes_a_read_is_reflected() {
    let faults = [
        Fault::Run(87),
        Fault::Put(0, 0),
        Fault::Crash(0),
        Fault::Partition(false),
        Fault::Put(0, 1),
        Fault::Put(0, 0),
        Fault::Run(42),
        Fault::Put(2, 0),
        Fault::Run(43),
        Fault::Heal(false),
        Fault::Run(28),
        Fault::Put(2, 1),
    ];

    check(11_883_720_355_281_824_904, true, &faults).unwrap();
}

#[test]
fn a_new_leader_makes_the_writes_that_the_former_one_has_not_sent() {
    for seed in 0..100 {
        let make = || ReflectionController::new(settings(), Conflicts::default());
        let simulation = Simulation::new(seed).host(|| Connect).host(make);
        let mut sides = Sides::with(simulation.replicas(2));
        sides.pass();
        inject(&mut sides, &Fault::Put(0, 1));
        sides.simulation.pass(Duration::from_millis(seed / 4));
        sides.simulation.hand_over(1);
        sides.pass();

        let (here, there) = contents(&mut sides, 0);
        assert_eq!(here, there, "seed {seed}");
    }
}
