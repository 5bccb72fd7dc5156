use super::{container, running, status};
use crate::pod::status::Restarts;
use k8s_openapi::api::core::v1::PodStatus;
use serde_json::json;

fn counts(counts: &[(&str, i32)]) -> PodStatus {
    let statuses: Vec<_> = counts
        .iter()
        .map(|(name, count)| {
            let mut status = container(name, &running());
            status["restartCount"] = json!(count);
            status
        })
        .collect();
    status(&json!({"containerStatuses": statuses}))
}

#[test]
fn a_remote_pod_that_stays_adds_nothing() {
    let mut restarts = Restarts::default();
    let new = PodStatus::default();

    assert_eq!(restarts.observe(&new, "1", &counts(&[("a", 0)])), 0);
    assert_eq!(
        restarts.observe(&counts(&[("a", 0)]), "1", &counts(&[("a", 2)])),
        0
    );
}

#[test]
fn each_new_remote_pod_is_a_restart() {
    let mut restarts = Restarts::default();
    let local = PodStatus::default();

    restarts.observe(&local, "1", &counts(&[("a", 2), ("b", 3)]));
    assert_eq!(restarts.observe(&local, "2", &PodStatus::default()), 4);
    assert_eq!(restarts.observe(&local, "2", &counts(&[("a", 1)])), 4);
    assert_eq!(restarts.observe(&local, "3", &PodStatus::default()), 6);
}

#[test]
fn a_virtual_kubelet_that_has_started_infers_the_restarts() {
    for (local, remote, expected) in [
        (counts(&[]), counts(&[("a", 2)]), 0),
        (counts(&[("a", 2)]), counts(&[("a", 2)]), 0),
        (
            counts(&[("a", 6), ("b", 4)]),
            counts(&[("a", 2), ("b", 0)]),
            4,
        ),
        (counts(&[("a", 6)]), counts(&[]), 6),
        (counts(&[("a", 1)]), counts(&[("a", 2)]), 0),
    ] {
        assert_eq!(Restarts::default().observe(&local, "1", &remote), expected);
    }
}

#[test]
fn absurd_counters_do_not_overflow() {
    let mut restarts = Restarts::default();
    let local = counts(&[("a", i32::MAX)]);

    assert_eq!(
        restarts.observe(&local, "1", &counts(&[("a", i32::MIN)])),
        i32::MAX
    );
    restarts.observe(&local, "1", &counts(&[("a", i32::MAX)]));
    assert_eq!(
        restarts.observe(&local, "2", &counts(&[("a", -5)])),
        i32::MAX
    );
    assert_eq!(
        restarts.observe(&local, "3", &counts(&[("a", -5)])),
        i32::MAX
    );
}
