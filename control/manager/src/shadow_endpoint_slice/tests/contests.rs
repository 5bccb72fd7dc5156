//! EndpointSlices that another client of the provider changes.

use super::{Side, endpoint, milan, web};
use control_runtime::{Action, Request};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Removes the endpoints, as another controller of the provider does.
fn edit(milan: &mut Side) {
    let mut slice = milan.slice("web");
    slice["endpoints"] = json!([]);
    slice["metadata"]["managedFields"] = json!([
        {"manager": "shadow-endpointslice-controller", "operation": "Update", "time": "2026-11-27T10:00:00Z"},
        {"manager": "their-operator", "operation": "Update", "time": "2026-11-27T10:00:01Z"},
    ]);
    milan.put::<EndpointSlice>(slice);
}

/// Returns `milan` with a slice that another controller has changed too often.
fn contested(seed: u64) -> Side {
    let mut milan = milan(seed);
    for _ in 0..5 {
        edit(&mut milan);
        milan.simulation.pass(SECOND);
    }
    assert_eq!(milan.contested(), 1);
    milan
}

/// Returns the number of writes of EndpointSlices.
fn writes(milan: &Side) -> usize {
    let log = milan.simulation.log().iter();
    let writes = log.filter(|sent| match &sent.request {
        Request::Write(write) => {
            write.object.resource.kind == "EndpointSlice" && write.action != Action::Delete
        }
        Request::Read(_) | Request::Probe(_) => false,
    });
    writes.count()
}

#[test]
fn a_slice_that_is_changed_again_and_again_is_restored_three_times_and_then_each_minute() {
    let mut milan = milan(1);
    let before = writes(&milan);
    for _ in 0..3 {
        edit(&mut milan);
        milan.simulation.pass(SECOND);
        assert_eq!(milan.endpoints(), ["10.71.0.1"]);
    }
    edit(&mut milan);
    milan.simulation.pass(50 * SECOND);
    assert_eq!(milan.endpoints(), [""; 0]);
    assert_eq!(writes(&milan) - before, 3);
    assert_eq!(milan.contested(), 1);
    let note =
        "the field manager their-operator changes the EndpointSlice demo-rome/web of the provider";
    assert!(
        milan.has_event("EndpointSliceContested", note),
        "{:?}",
        milan.events()
    );

    // The other one goes on for ten minutes.
    for _ in 0..120 {
        edit(&mut milan);
        milan.simulation.pass(5 * SECOND);
    }
    let count = writes(&milan) - before;
    assert!((12..=14).contains(&count), "{count}");

    milan.simulation.pass(240 * SECOND);
    assert_eq!(milan.endpoints(), ["10.71.0.1"]);
    assert_eq!(milan.contested(), 0);
    edit(&mut milan);
    milan.simulation.pass(SECOND);
    assert_eq!(milan.endpoints(), ["10.71.0.1"]);
    milan.assert_settled();
}

#[test]
fn a_change_of_the_consumer_is_written_at_once_although_the_slice_is_contested() {
    let mut milan = contested(2);
    assert_eq!(milan.endpoints(), [""; 0]);

    milan.put_shadow("web", json!([endpoint("10.244.0.2")]));
    milan.simulation.pass(SECOND);

    assert_eq!(milan.endpoints(), ["10.71.0.2"]);
    assert_eq!(milan.contested(), 0);
}

#[test]
fn a_slice_that_is_deleted_again_and_again_is_created_each_minute() {
    let mut milan = milan(3);
    let before = writes(&milan);
    for _ in 0..60 {
        milan.simulation.local().remove::<EndpointSlice>(&web());
        milan.simulation.pass(SECOND);
    }
    let count = writes(&milan) - before;
    assert!((3..=4).contains(&count), "{count}");
    assert!(milan.has_event("EndpointSliceContested", "a client changes"));

    milan.simulation.pass(120 * SECOND);
    assert_eq!(milan.endpoints(), ["10.71.0.1"]);
}

/// The consumer may delete its slice and create it again several times within a minute.
#[test]
fn slices_that_the_consumer_creates_again_are_no_contest() {
    let mut milan = milan(4);
    for _ in 0..6 {
        milan.edit_shadow(|it| it["spec"]["template"]["addressType"] = json!("IPv6"));
        assert!(milan.slice("web").is_null());
        milan.edit_shadow(|it| it["spec"]["template"]["addressType"] = json!("IPv4"));
        assert_eq!(milan.endpoints(), ["10.71.0.1"]);
    }
    assert_eq!(milan.contested(), 0);
}

#[test]
fn another_replica_counts_its_own_contests() {
    let mut milan = contested(5);

    milan.simulation.crash(0);
    milan.simulation.pass(60 * SECOND);

    assert_eq!(milan.contested(), 0);
    assert_eq!(milan.endpoints(), ["10.71.0.1"]);
}
