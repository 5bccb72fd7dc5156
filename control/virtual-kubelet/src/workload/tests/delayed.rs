use super::{pod_key, running};
use crate::side::Side;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::time::Duration;

/// Less than the time for which a status may wait.
const SHORT: Duration = Duration::from_millis(400);

fn starting(conditions: &Value) -> Value {
    json!({"phase": "Pending", "conditions": conditions})
}

fn condition(type_: &str, status: &str) -> Value {
    json!({"type": type_, "status": status, "lastTransitionTime": "2026-11-21T07:20:00Z"})
}

/// Changes the status of the remote pod, and returns the writes of the pod in the time after it.
fn report(rome: &mut Side, status: &Value, time: Duration) -> usize {
    let before = rome.writes::<Pod>();
    rome.set_remote("web", status);
    rome.simulation.pass(time);
    rome.writes::<Pod>() - before
}

fn rome(seed: u64) -> Side {
    let mut rome = Side::new(seed);
    rome.put_map("Accepted");
    rome.put_pod("web");
    rome.pass();
    rome.put_remote("web", &starting(&json!([])));
    rome.pass();
    rome
}

#[test]
fn statuses_of_a_start_are_one_write_and_that_of_its_end_is_not_delayed() {
    let mut rome = rome(1);
    let scheduled = condition("PodScheduled", "True");
    let waiting = json!([scheduled, condition("Ready", "False")]);

    assert_eq!(report(&mut rome, &starting(&json!([scheduled])), SHORT), 0);
    assert_eq!(report(&mut rome, &starting(&waiting), SHORT), 0);
    assert_eq!(report(&mut rome, &running("10.244.1.7"), SHORT), 1);

    assert_eq!(rome.pod("web")["status"]["phase"], "Running");
    let before = rome.writes::<Pod>();
    rome.pass();
    assert_eq!(rome.writes::<Pod>(), before, "nothing is left");
}

#[test]
fn the_label_of_an_offloaded_pod_is_written_with_its_first_status() {
    let mut rome = Side::new(5);
    rome.put_map("Accepted");
    rome.put_pod("web");
    rome.simulation.pass(SHORT);
    assert_eq!(rome.writes::<Pod>(), 0);

    assert_eq!(report(&mut rome, &running("10.244.1.7"), SHORT), 1);

    let pod = rome.pod("web");
    assert_eq!(
        pod["metadata"]["labels"],
        json!({"app": "web", "liqo.io/shadowPod": "true"})
    );
    assert_eq!(pod["status"]["phase"], "Running");
}

#[test]
fn the_label_of_an_offloaded_pod_waits_no_longer_than_a_second() {
    let mut rome = Side::new(6);
    rome.put_map("Accepted");
    rome.put_pod("web");
    rome.pass();

    assert_eq!(
        rome.pod("web")["metadata"]["labels"]["liqo.io/shadowPod"],
        "true"
    );
    assert_eq!(rome.writes::<Pod>(), 1);
}

#[test]
fn a_status_that_says_nothing_new_waits_for_the_next_one() {
    let mut rome = rome(4);
    let mut waiting = starting(&json!([condition("PodScheduled", "True")]));

    assert_eq!(report(&mut rome, &waiting, Duration::from_secs(4)), 0);
    waiting["containerStatuses"] =
        json!([{"name": "web", "state": {"waiting": {"reason": "ContainerCreating"}}}]);
    assert_eq!(report(&mut rome, &waiting, SHORT), 1);
    waiting["startTime"] = json!("2026-11-21T07:20:00Z");
    assert_eq!(report(&mut rome, &waiting, Duration::from_secs(9)), 0);
    rome.simulation.pass(Duration::from_secs(2));
    assert_eq!(
        rome.pod("web")["status"]["startTime"],
        "2026-11-21T07:20:00Z"
    );
}

#[test]
fn a_status_waits_no_longer_than_a_second_while_others_follow() {
    let mut rome = rome(2);
    let mut writes = 0;
    for number in 0..10 {
        let message =
            json!([{"type": "PodScheduled", "status": "False", "message": format!("{number}")}]);
        writes += report(&mut rome, &starting(&message), SHORT);
    }

    assert!((3..=4).contains(&writes), "{writes} writes in 4 s");
}

#[test]
fn a_pod_that_is_no_longer_ready_is_reported_at_once_unless_it_is_deleted() {
    let mut rome = rome(3);
    report(&mut rome, &running("10.244.1.7"), SHORT);
    let mut unready = running("10.244.1.7");
    unready["conditions"] = json!([condition("Ready", "False")]);

    assert_eq!(report(&mut rome, &unready, SHORT), 1);
    assert_eq!(report(&mut rome, &running("10.244.1.7"), SHORT), 1);
    rome.simulation.local().remove::<Pod>(&pod_key());
    rome.simulation.pass(SHORT);
    assert_eq!(report(&mut rome, &unready, SHORT), 0);
}

#[test]
fn the_end_of_a_deleted_pod_is_reported_if_a_finalizer_waits_for_it() {
    for (finalizers, writes) in [
        (json!([]), 0),
        (json!(["batch.kubernetes.io/job-tracking"]), 1),
    ] {
        let mut rome = rome(5);
        report(&mut rome, &running("10.244.1.7"), SHORT);
        let mut pod = rome.pod("web");
        pod["metadata"]["finalizers"] = finalizers;
        rome.simulation.local().put::<Pod>(pod);
        rome.simulation.local().remove::<Pod>(&pod_key());
        rome.simulation.pass(SHORT);
        let mut ended = running("10.244.1.7");
        ended["phase"] = json!("Succeeded");

        assert_eq!(report(&mut rome, &ended, SHORT), writes);
    }
}

#[test]
fn a_pod_that_flaps_is_written_no_more_often_than_others() {
    let mut rome = rome(7);
    let mut unready = running("10.244.1.7");
    unready["conditions"] = json!([condition("Ready", "False")]);
    let states = [running("10.244.1.7"), unready];
    let short = Duration::from_millis(100);

    let flaps = (0..100).map(|it| report(&mut rome, &states[it % 2], short));
    let writes: usize = flaps.sum();

    assert!((5..=18).contains(&writes), "{writes} writes in 10 s");
    rome.pass();
    let ready = rome.pod("web")["status"]["conditions"][0].clone();
    assert_eq!(ready["status"], "False", "the last state is written");
    rome.simulation.pass(Duration::from_secs(60));
    assert_eq!(report(&mut rome, &states[0], SHORT), 1, "at once again");
}

/// A webhook may refuse the status, for instance.
#[test]
fn a_status_that_the_api_server_refuses_is_repeated_at_growing_intervals() {
    let mut rome = rome(8);
    let waiting = |reason: &str| {
        let mut status = starting(&json!([condition("PodScheduled", "True")]));
        status["containerStatuses"] =
            json!([{"name": "web", "state": {"waiting": {"reason": reason}}}]);
        status
    };
    let refused = Some(("patch", "pods"));
    rome.simulation.local().refuse_right(refused, true);

    let first = report(&mut rome, &waiting("First"), Duration::from_secs(60));
    assert!((3..=12).contains(&first), "{first} writes in 1 min");
    let before = rome.writes::<Pod>();
    rome.simulation.pass(Duration::from_secs(600));
    let later = rome.writes::<Pod>() - before;
    assert!((8..=16).contains(&later), "{later} writes in 10 min");

    // Another status is tried as soon as others are, and its success ends the backoff.
    rome.simulation.local().refuse_right(None, false);
    assert_eq!(report(&mut rome, &waiting("Second"), 3 * SHORT), 1);
    let container = rome.pod("web")["status"]["containerStatuses"][0].clone();
    assert_eq!(container["state"]["waiting"]["reason"], "Second");
    let refused = Some(("patch", "pods"));
    rome.simulation.local().refuse_right(refused, true);
    assert!(report(&mut rome, &waiting("Third"), 10 * SHORT) > 1);
}
