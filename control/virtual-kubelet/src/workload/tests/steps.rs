//! Latencies of the steps of pods.

use super::*;

fn seconds(rome: &mut Side, seconds: u64) {
    rome.simulation.pass(Duration::from_secs(seconds));
}

fn starting() -> Value {
    json!({"phase": "Pending"})
}

/// Returns the steps that have ended, with their durations in whole seconds. None ends twice.
fn steps(rome: &Side) -> Vec<(&'static str, f64)> {
    let samples = rome.durations.samples().into_iter();
    let once = samples.inspect(|(step, count, _)| assert_eq!(*count, 1, "{step}"));
    once.map(|(step, _, sum)| (step, sum.floor())).collect()
}

/// Creates a pod while the namespace is offloaded.
fn bind(seed: u64) -> Side {
    let mut rome = Side::new(seed);
    rome.put_map("Accepted");
    rome.pass();
    rome.put_pod("web");
    rome
}

fn delete(rome: &mut Side) {
    rome.simulation.local().remove::<Pod>(&pod_key());
}

#[test]
fn the_leader_measures_each_step_once() {
    for seed in 0..20 {
        let mut rome = bind(seed);
        seconds(&mut rome, 3);
        rome.set_remote("web", &starting());
        seconds(&mut rome, 5);
        rome.set_remote("web", &running("10.244.1.7"));
        seconds(&mut rome, 10);
        let started = [
            ("shadow_pod", 0.0),
            ("remote_pod", 2.0),
            ("remote_ready", 5.0),
            ("ready", 0.0),
        ];
        let measured = steps(&rome);
        assert_eq!(measured.len(), started.len(), "{measured:?}");
        for ((step, seconds), (expected, about)) in measured.into_iter().zip(started) {
            assert_eq!(step, expected);
            assert!(
                (about - 1.0..=about + 1.0).contains(&seconds),
                "{step}: {seconds} s"
            );
        }

        delete(&mut rome);
        seconds(&mut rome, 7);
        rome.remove_remote("web");
        assert_eq!(rome.pod("web"), Value::Null);
        let ended = steps(&rome).split_off(4);
        assert!(
            matches!(
                ended[..],
                [("remote_deleted", 6.0..=7.0), ("deleted", 0.0..=1.0)]
            ),
            "{ended:?}"
        );
    }
}

#[test]
fn a_new_leader_measures_only_steps_whose_start_it_sees() {
    let mut rome = bind(1);
    rome.pass();
    assert_eq!(rome.durations.samples().len(), 1, "of the ShadowPod");

    rome.simulation.hand_over(1);
    rome.set_remote("web", &starting());
    seconds(&mut rome, 5);
    assert_eq!(rome.durations.samples().len(), 1);
    rome.set_remote("web", &running("10.244.1.7"));
    seconds(&mut rome, 5);

    let names: Vec<_> = steps(&rome).into_iter().map(|(step, _)| step).collect();
    assert_eq!(names, ["shadow_pod", "remote_ready", "ready"]);
}

#[test]
fn a_process_that_starts_does_not_measure_steps_in_progress() {
    let mut rome = bind(2);
    rome.pass();
    rome.put_remote("web", &starting());
    let before = rome.durations.samples();

    rome.simulation.crash(0);
    seconds(&mut rome, 5);
    assert_eq!(rome.durations.samples(), before, "the lists are no changes");
    rome.put_remote("web", &running("10.244.1.7"));

    let names: Vec<_> = steps(&rome).into_iter().map(|(step, _)| step).collect();
    assert_eq!(names, ["shadow_pod", "remote_pod", "ready"]);
}

#[test]
fn a_pod_in_a_namespace_that_is_offloaded_later_is_measured_from_its_binding() {
    let mut rome = Side::new(3);
    rome.pass();
    rome.put_pod("web");
    seconds(&mut rome, 5);
    rome.put_map("Accepted");
    rome.pass();

    let measured = steps(&rome);
    assert!(
        matches!(measured[..], [("shadow_pod", 4.0..=6.0)]),
        "{measured:?}"
    );
}

#[test]
fn a_pod_without_a_remote_pod_has_no_steps_of_a_deletion() {
    let mut rome = bind(4);
    rome.pass();
    delete(&mut rome);
    rome.pass();

    assert_eq!(rome.pod("web"), Value::Null);
    let names: Vec<_> = steps(&rome).into_iter().map(|(step, _)| step).collect();
    assert_eq!(names, ["shadow_pod"]);
}
