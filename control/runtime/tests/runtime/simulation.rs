//! The example's controller, and others, in the simulation.

use crate::example::NodeAddresses;
use crate::peers::{Peers, kubeconfig};
use control_runtime::simulation::{Simulation, Unsettled};
use control_runtime::{
    Cache, Change, Cluster, Controller, Env, Key, Plan, Ref, Registration, Scope,
};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;

/// Limit of [`Simulation::settle`], in virtual time.
const LIMIT: Duration = Duration::from_secs(600);

const NODES: usize = 4;

fn node_key(number: usize) -> Key {
    Key::cluster(format!("rome-{number}"))
}

fn map_key(number: usize) -> Key {
    Key::new("addresses", format!("rome-{number}"))
}

fn put_node(simulation: &mut Simulation, number: usize, address: u8) {
    let address = format!("192.0.2.{address}");
    simulation.local().put::<Node>(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_key(number).name},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]}}),
    );
}

fn example(seed: u64) -> Simulation {
    let mut simulation = Simulation::new(seed).host(|| NodeAddresses);
    simulation.local().put_namespace("addresses");
    simulation
}

/// Returns the address of each node and in each map.
fn addresses(simulation: &mut Simulation) -> (Vec<Value>, Vec<Value>) {
    let local = simulation.local();
    let nodes = (0..NODES).map(|number| {
        let node = local.get::<Node>(&node_key(number));
        node.map_or(Value::Null, |it| {
            it["status"]["addresses"][0]["address"].clone()
        })
    });
    let maps = (0..NODES).map(|number| {
        let map = local.get::<ConfigMap>(&map_key(number));
        map.map_or(Value::Null, |it| it["data"]["addresses"].clone())
    });
    (nodes.collect(), maps.collect())
}

#[derive(Clone, Debug)]
enum Fault {
    PutNode(usize, u8),
    RemoveNode(usize),
    RemoveMap(usize),
    Partition,
    Heal,
    SwapCredentials,
    Crash(usize),
    HandOver(usize),
    Run(u64),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => (0..NODES, any::<u8>()).prop_map(|(node, address)| Fault::PutNode(node, address)),
        1 => (0..NODES).prop_map(Fault::RemoveNode),
        1 => (0..NODES).prop_map(Fault::RemoveMap),
        1 => Just(Fault::Partition),
        2 => Just(Fault::Heal),
        1 => Just(Fault::SwapCredentials),
        1 => (0..2_usize).prop_map(Fault::Crash),
        1 => (0..2_usize).prop_map(Fault::HandOver),
        6 => (0_u64..40_000).prop_map(Fault::Run),
        6 => (0_u64..30).prop_map(Fault::Run),
    ]
}

fn inject(simulation: &mut Simulation, leader: &mut usize, fault: &Fault) {
    match *fault {
        Fault::PutNode(node, address) => put_node(simulation, node, address),
        Fault::RemoveNode(node) => simulation.local().remove::<Node>(&node_key(node)),
        Fault::RemoveMap(node) => simulation.local().remove::<ConfigMap>(&map_key(node)),
        Fault::Partition => simulation.partition(&Cluster::Local),
        Fault::Heal => simulation.heal(&Cluster::Local),
        Fault::SwapCredentials => simulation.swap_credentials(&Cluster::Local),
        Fault::Crash(replica) => simulation.crash(replica),
        // A leader that is one already plans what it has sent once more.
        Fault::HandOver(replica) if replica == *leader => {}
        Fault::HandOver(replica) => {
            simulation.hand_over(replica);
            *leader = replica;
        }
        Fault::Run(millis) => {
            simulation.run(Duration::from_millis(millis));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_example_converges_after_any_faults(
        seed: u64,
        faults in prop::collection::vec(fault(), 0..40),
    ) {
        let mut simulation = example(seed).replicas(2);
        let mut leader = 0;
        for fault in &faults {
            inject(&mut simulation, &mut leader, fault);
        }
        simulation.heal(&Cluster::Local);
        simulation.settle(LIMIT)?;

        let (nodes, maps) = addresses(&mut simulation);
        prop_assert_eq!(nodes, maps);
        prop_assert!(simulation.redundant().is_empty(), "{:?}", simulation.redundant());
        let again = simulation.replan(LIMIT)?;
        prop_assert!(again.is_empty(), "{:?}", again);
    }
}

#[test]
fn each_change_is_one_write_in_any_order() -> Result<(), Unsettled> {
    for seed in 0..50 {
        let mut simulation = example(seed);
        for number in 0..NODES {
            put_node(&mut simulation, number, 1);
        }
        simulation.settle(LIMIT)?;
        assert_eq!(simulation.log().len(), NODES, "seed {seed}");

        put_node(&mut simulation, 0, 2);
        simulation.settle(LIMIT)?;
        assert_eq!(simulation.log().len(), NODES + 1, "seed {seed}");
        assert!(simulation.replan(LIMIT)?.is_empty());
    }
    Ok(())
}

#[test]
fn a_partition_is_survived_without_a_list_and_a_crash_with_one() -> Result<(), Unsettled> {
    let mut simulation = example(1);
    put_node(&mut simulation, 0, 1);
    simulation.settle(LIMIT)?;
    let lists = simulation.local().lists();

    simulation.partition(&Cluster::Local);
    put_node(&mut simulation, 0, 2);
    simulation.run(Duration::from_secs(60));
    let (_, maps) = addresses(&mut simulation);
    assert_eq!(maps[0], "192.0.2.1");
    simulation.heal(&Cluster::Local);
    simulation.settle(LIMIT)?;
    simulation.swap_credentials(&Cluster::Local);
    put_node(&mut simulation, 0, 3);
    simulation.settle(LIMIT)?;
    let (_, maps) = addresses(&mut simulation);
    assert_eq!(maps[0], "192.0.2.3");
    assert_eq!(simulation.local().lists(), lists);

    simulation.crash(0);
    simulation.settle(LIMIT)?;
    assert_eq!(simulation.local().lists(), 2 * lists);
    Ok(())
}

#[test]
fn a_standby_writes_nothing_until_it_takes_over() -> Result<(), Unsettled> {
    let mut simulation = example(1).replicas(2);
    put_node(&mut simulation, 0, 1);
    simulation.settle(LIMIT)?;
    assert!(simulation.log().iter().all(|sent| sent.replica == 0));
    let lists = simulation.local().lists();

    simulation.hand_over(1);
    put_node(&mut simulation, 0, 2);
    simulation.settle(LIMIT)?;

    assert_eq!(simulation.log().last().map(|sent| sent.replica), Some(1));
    let writes = simulation.log().len();
    assert_eq!((writes, simulation.local().lists()), (2, lists));
    Ok(())
}

#[test]
fn a_cluster_is_followed_from_the_plan_that_adds_it_and_listed_again_when_it_is_another() {
    let milan = Cluster::remote("milan");
    let mut simulation = Simulation::new(1).host(Peers::default);
    simulation.local().put_namespace("peers");
    let counter = |value: &str| {
        json!({"metadata": {"name": "counter", "namespace": "shared"},
            "data": {"value": value}})
    };
    let server = simulation.cluster(&milan);
    server.put_namespace("shared");
    server.put::<ConfigMap>(counter("1"));
    let data = ByteString(kubeconfig("http://192.0.2.1", "token").into_bytes());
    simulation.local().put::<Secret>(
        json!({"metadata": {"name": "milan", "namespace": "peers"}, "data": {"kubeconfig": data}}),
    );
    let copied = |simulation: &mut Simulation| {
        let copy = Key::new("shared", "copy");
        let copy = simulation.cluster(&milan).get::<ConfigMap>(&copy);
        copy.map(|copy| copy["data"]["value"].clone())
    };
    simulation.settle(LIMIT).expect("quiet");
    assert_eq!(copied(&mut simulation), Some("1".into()));

    simulation.replace_cluster(&milan);
    simulation.cluster(&milan).put_namespace("shared");
    simulation.cluster(&milan).put::<ConfigMap>(counter("2"));
    simulation.settle(LIMIT).expect("quiet");
    assert_eq!(copied(&mut simulation), Some("2".into()));

    simulation
        .local()
        .remove::<Secret>(&Key::new("peers", "milan"));
    simulation.settle(LIMIT).expect("quiet");
    simulation.cluster(&milan).put::<ConfigMap>(counter("3"));
    simulation.settle(LIMIT).expect("quiet");
    assert_eq!(copied(&mut simulation), Some("2".into()));
}

#[test]
fn an_older_crd_without_a_field_causes_no_endless_writes() -> Result<(), Unsettled> {
    let mut simulation = example(1);
    simulation.local().prune::<ConfigMap>("data");
    put_node(&mut simulation, 0, 1);

    simulation.settle(LIMIT)?;

    let (_, maps) = addresses(&mut simulation);
    assert_eq!(maps[0], Value::Null);
    assert!(
        simulation.log().len() <= 2,
        "{} writes",
        simulation.log().len()
    );
    Ok(())
}

/// Applies one field of a ConfigMap for each Secret, as its flaws say.
#[derive(Clone, Copy, Default)]
struct Flawed {
    /// Plans a write although the object has the field.
    repeats: bool,
    /// Requeues the item and writes again, forever.
    loops: bool,
}

impl Controller for Flawed {
    type Item = String;
    const NAME: &'static str = "flawed";
    const FIELD_MANAGER: &'static str = "flawed";

    fn resources(&self) -> Vec<Registration> {
        vec![
            Registration::whole::<Secret>(Scope::All),
            Registration::whole::<ConfigMap>(Scope::All).verbs(&["patch"]),
        ]
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<String> {
        vec![change.object.key.name.clone()]
    }

    fn plan(&mut self, name: &String, cache: &Cache, _: &mut Env<'_>) -> Plan<String> {
        let mut plan = Plan::default();
        let key = Key::new("addresses", name);
        let is_present = cache.local::<ConfigMap>(&key).is_some();
        if cache.local::<Secret>(&key).is_some() && (!is_present || self.repeats || self.loops) {
            let map = Ref::of::<ConfigMap>(&Cluster::Local, &key);
            plan.apply(map, json!({"data": {"secret": name}}));
        }
        if self.loops {
            plan.requeue.push((Duration::from_secs(1), name.clone()));
        }
        plan
    }
}

fn flawed(flawed: Flawed) -> Simulation {
    let mut simulation = Simulation::new(1).host(move || flawed);
    simulation.local().put_namespace("addresses");
    simulation
        .local()
        .put::<Secret>(json!({"metadata": {"name": "a", "namespace": "addresses"}}));
    simulation
}

#[test]
fn an_object_that_is_written_twice_is_found_by_the_log() -> Result<(), Unsettled> {
    let mut right = flawed(Flawed::default());
    right.settle(LIMIT)?;
    assert_eq!((right.log().len(), right.redundant().len()), (1, 0));

    let mut twice = flawed(Flawed {
        repeats: true,
        ..Flawed::default()
    });
    twice.settle(LIMIT)?;

    let redundant = twice.redundant();
    assert_eq!(redundant.len(), 1);
    assert_eq!(redundant[0].request.object().unwrap().key.name, "a");
    assert!(!twice.replan(LIMIT)?.is_empty());
    Ok(())
}

#[test]
fn a_controller_that_never_becomes_quiet_is_found() {
    let mut simulation = flawed(Flawed {
        loops: true,
        ..Flawed::default()
    });

    let unsettled = simulation.settle(LIMIT).expect_err("an endless loop");

    assert!(
        unsettled.to_string().contains("apply ConfigMap"),
        "{unsettled}"
    );
}

#[test]
fn field_sets_that_are_not_disjoint_are_found() -> Result<(), Unsettled> {
    /// Applies the same field under another name.
    struct Other(Flawed);

    impl Controller for Other {
        type Item = String;
        const NAME: &'static str = "other";
        const FIELD_MANAGER: &'static str = "other";

        fn resources(&self) -> Vec<Registration> {
            self.0.resources()
        }

        fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<String> {
            self.0.observe(change, cache)
        }

        fn plan(&mut self, name: &String, cache: &Cache, env: &mut Env<'_>) -> Plan<String> {
            self.0.plan(name, cache, env)
        }
    }
    let repeats = Flawed {
        repeats: true,
        ..Flawed::default()
    };
    let mut simulation = flawed(Flawed::default()).host(move || Other(repeats));

    simulation.settle(LIMIT)?;

    let shared = simulation.local().shared_fields();
    assert_eq!(
        shared,
        ["data.secret of configmaps addresses/a: flawed, other"]
    );
    Ok(())
}
