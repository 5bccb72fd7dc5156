//! Effective requests.

use crate::shadow_pod::demand::Demand;
use control_api::quantity::amount;
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, from_value, json};

fn container(name: &str, cpu: &str) -> Value {
    json!({"name": name, "resources": {"requests": {"cpu": cpu}}})
}

fn sidecar(name: &str, cpu: &str) -> Value {
    let mut sidecar = container(name, cpu);
    sidecar["restartPolicy"] = json!("Always");
    sidecar
}

fn demand(spec: Value) -> Result<Demand, String> {
    Demand::of(&from_value::<PodSpec>(spec).unwrap())
}

#[track_caller]
fn assert_cpu(spec: Value, cpu: &str) {
    let demand = demand(spec.clone()).unwrap();
    assert_eq!(demand.amounts.get("cpu").copied(), amount(cpu), "{spec}");
    assert_eq!(demand.amounts["pods"], amount("1").unwrap());
}

#[test]
fn containers_are_added() {
    assert_cpu(
        json!({"containers": [container("a", "1"), container("b", "500m")]}),
        "1.5",
    );
}

#[test]
fn the_largest_init_container_counts_if_it_exceeds_the_containers() {
    let init = [container("i", "3"), container("j", "2")];
    assert_cpu(
        json!({"containers": [container("a", "1")], "initContainers": init}),
        "3",
    );
    assert_cpu(
        json!({"containers": [container("a", "4")], "initContainers": init}),
        "4",
    );
}

#[test]
fn sidecars_are_added_to_containers_and_to_later_init_containers() {
    let spec =
        |init: &[Value]| json!({"containers": [container("a", "1")], "initContainers": init});
    assert_cpu(spec(&[sidecar("s", "2")]), "3");
    assert_cpu(spec(&[sidecar("s", "2"), container("i", "2")]), "4");
    assert_cpu(spec(&[container("i", "2"), sidecar("s", "2")]), "3");
    assert_cpu(
        spec(&[
            sidecar("s", "2"),
            sidecar("t", "1"),
            container("i", "1500m"),
        ]),
        "4.5",
    );
}

#[test]
fn overhead_is_added_once() {
    let spec = json!({"containers": [container("a", "1")], "overhead": {"cpu": "250m"}});
    assert_cpu(spec.clone(), "1.25");
    let overhead = [("cpu".to_owned(), amount("1").unwrap())].into();
    let own = demand(spec).unwrap().with_overhead(&overhead);
    assert_eq!(own.amounts["cpu"], amount("1.25").unwrap());
    let of_class = demand(json!({"containers": [container("a", "1")]})).unwrap();
    assert_eq!(
        of_class.with_overhead(&overhead).amounts["cpu"],
        amount("2").unwrap()
    );
}

#[test]
fn a_limit_is_the_request_if_there_is_none() {
    let spec = json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "2", "nvidia.com/gpu": "1"}}}]});
    assert_cpu(spec.clone(), "2");
    assert_eq!(
        demand(spec).unwrap().amounts["nvidia.com/gpu"],
        amount("1").unwrap()
    );
}

#[test]
fn a_request_of_the_pod_as_a_whole_counts() {
    let spec =
        |resources: Value| json!({"containers": [container("a", "1")], "resources": resources});
    assert_cpu(spec(json!({"requests": {"cpu": "3"}})), "3");
    assert_cpu(
        spec(json!({"requests": {"cpu": "3"}, "limits": {"cpu": "3"}})),
        "3",
    );
    assert_cpu(spec(json!({"limits": {"cpu": "3"}})), "1");
    assert_cpu(
        json!({"containers": [{"name": "a"}], "resources": {"limits": {"cpu": "3"}}}),
        "3",
    );
}

#[test]
fn absurd_requests_are_refused_with_the_field() {
    let many: Vec<_> = (0..300)
        .map(|it| container(&it.to_string(), "1m"))
        .collect();
    let resources: serde_json::Map<_, _> =
        (0..70).map(|it| (format!("r{it}"), json!("1"))).collect();
    for (spec, expected) in [
        (
            json!({"containers": [container("a", "-1")]}),
            "containers[a].resources.requests.cpu is `-1`, which is negative",
        ),
        (
            json!({"containers": [container("a", "1e99")]}),
            "which is 2^63 or more",
        ),
        (
            json!({"containers": [container("a", "")]}),
            "which is not a quantity",
        ),
        (
            json!({"containers": [], "overhead": {"cpu": "-1"}}),
            "spec.pod.overhead.cpu is `-1`",
        ),
        (
            json!({"containers": [], "initContainers": [container("a\n", "x")]}),
            "initContainers[a\\n]",
        ),
        (
            json!({"containers": many}),
            "300 containers: use 256 at most",
        ),
        (
            json!({"containers": [{"name": "a", "resources": {"requests": resources}}]}),
            "70 different resources",
        ),
        (
            json!({"containers": [{"name": "a", "resources": {"limits": {"x".repeat(400): "1"}}}]}),
            "too long",
        ),
    ] {
        let refused = demand(spec).unwrap_err();
        assert!(refused.contains(expected), "{refused}");
    }
}
