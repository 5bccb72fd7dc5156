//! Random orders of creations and deletions, as by peerings that are interrupted and repeated.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Put(Value),
    /// Requests the deletion of an object, which its finalizers delay.
    Remove(Value),
    /// Ends a deletion that finalizers delay.
    Release(Value),
    Run(u64),
    /// A replica of the manager starts anew.
    Crash(usize),
    /// A replica of the manager becomes the leader.
    HandOver(usize),
}

/// States of all objects of a peering, some with finalizers.
fn states() -> Vec<Value> {
    let finalized = |mut object: Value| {
        object["metadata"]["finalizers"] = json!(["example.com/wait"]);
        object
    };
    vec![
        namespace(),
        role_binding(),
        configuration(),
        connection("Connecting"),
        faulty("Connected"),
        server(),
        client(),
        public_key(),
        finalized(tenant()),
        finalized(ready_tenant()),
        identity(),
        ready_identity(),
        secret(),
        finalized(slice("Accepted", "Any")),
        finalized(slice("Denied", "ReplicationForbidden")),
        finalized(renew()),
        finalized(namespace_map()),
        quota(),
        finalized(virtual_node("milan", json!({}))),
        virtual_node("other", json!({"createNode": false})),
        kubelet("milan", true),
        kubelet("milan", false),
        node("milan", true),
        node("milan", false),
        gateway_pod("a", false),
        gateway_pod("b", true),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let object = || prop::sample::select(states());
    prop_oneof![
        6 => object().prop_map(Step::Put),
        5 => object().prop_map(Step::Remove),
        2 => object().prop_map(Step::Release),
        4 => (1..20_u64).prop_map(Step::Run),
        1 => (0..2_usize).prop_map(Step::Crash),
        1 => (0..2_usize).prop_map(Step::HandOver),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_result_depends_on_the_objects_only(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut rome = Rome::with(seed, true);
        for step in steps {
            match step {
                Step::Put(object) => rome.put(object),
                Step::Remove(object) => rome.remove(&object),
                Step::Release(object) => {
                    if rome.get(&object).is_some() {
                        rome.edit(&object, json!({"metadata": {"finalizers": null}}));
                    }
                }
                Step::Run(millis) => drop(rome.simulation.run(Duration::from_millis(millis))),
                Step::Crash(replica) => rome.simulation.crash(replica),
                Step::HandOver(replica) => rome.simulation.hand_over(replica),
            }
        }
        // Longer than a request that a crash has interrupted.
        rome.simulation.pass(Duration::from_secs(60));

        let mut scratch = Rome::empty(seed, true);
        scratch.put(config_map("rome"));
        for object in states().into_iter().chain([gateway_pod("a", true)]) {
            if let Some(object) = rome.get(&object) {
                scratch.put(object);
            }
        }
        scratch.simulation.pass(Duration::from_secs(10));
        prop_assert_eq!(without_times(rome.summary()), without_times(scratch.summary()));
        prop_assert_eq!(rome.summary().is_some(), has_objects(&mut rome));
        prop_assert!(rome.simulation.redundant().is_empty());
        prop_assert!(rome.replan().is_empty());
    }
}

/// Returns whether any object of the peer is where it has an effect.
fn has_objects(rome: &mut Rome) -> bool {
    let is_tenant = rome.get(&namespace()).is_some();
    let mut states = states().into_iter();
    states.any(|object| {
        let is_of_peer = match object["kind"].as_str().unwrap() {
            "Namespace" | "RoleBinding" | "Pod" => false,
            "Node" => true,
            // Without the rights of the manager, it does not see the Secret.
            "Secret" => is_tenant && rome.get(&role_binding()).is_some(),
            _ => is_tenant,
        };
        is_of_peer && rome.get(&object).is_some()
    })
}

fn without_times(summary: Option<Value>) -> Option<(Value, Value, Value)> {
    let mut summary = summary?;
    let modules = ["networking", "authentication", "offloading"];
    let of_modules = modules.map(|it| format!("/status/modules/{it}/conditions"));
    for path in of_modules
        .iter()
        .map(String::as_str)
        .chain(["/status/conditions"])
    {
        let conditions = summary.pointer_mut(path).and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten() {
            condition["lastTransitionTime"] = json!("");
        }
    }
    let labels = summary["metadata"]["labels"].take();

    Some((labels, summary["spec"].take(), summary["status"].take()))
}
