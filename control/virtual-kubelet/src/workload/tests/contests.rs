//! ShadowPods that another client of the provider changes.

use super::*;

/// Changes a label of the ShadowPod, as another client does, and returns the writes in the time after it.
fn change(rome: &mut Side, label: &str, millis: u64) -> usize {
    let writes = |rome: &Side| rome.writes::<ShadowPod>() - rome.reads::<ShadowPod>();
    let before = writes(rome);
    let mut shadow = rome.shadow("web");
    shadow["metadata"]["labels"][label] = json!("theirs");
    shadow["metadata"]["managedFields"] = json!([
        {"manager": "workload.liqo.io", "operation": "Update", "time": "2026-11-27T10:00:00Z"},
        {"manager": "their-webhook", "operation": "Update", "time": "2026-11-27T10:00:01Z"},
    ]);
    rome.provider().put::<ShadowPod>(shadow);
    rome.simulation.pass(Duration::from_millis(millis));
    writes(rome) - before
}

#[test]
fn labels_that_another_client_changes_again_and_again_are_restored_once_a_minute() {
    let mut rome = rome(1);
    let number = |it: u32| format!("number-{it}");
    let quick: usize = (0..30).map(|it| change(&mut rome, &number(it), 100)).sum();
    assert_eq!(quick, 4);
    let note = "FailedReflection: the field manager their-webhook of the provider changes the ShadowPod again and again";
    assert!(
        rome.events().iter().any(|it| it.starts_with(note)),
        "{:?}",
        rome.events()
    );
    let slow: usize = (0..10).map(|_| change(&mut rome, "app", 30_000)).sum();
    assert!((4..=6).contains(&slow), "{slow} writes in 5 min");

    // A change in this cluster does not wait.
    change(&mut rome, "app", 100);
    rome.simulation.pass(Duration::from_millis(100));
    rome.edit::<Pod>(&pod_key(), |pod| {
        pod["metadata"]["labels"]["version"] = json!("2")
    });
    let labels = rome.shadow("web")["metadata"]["labels"].clone();
    assert_eq!(
        (&labels["app"], &labels["version"]),
        (&json!("web"), &json!("2"))
    );

    rome.simulation.pass(Duration::from_secs(300));
    assert_eq!(change(&mut rome, "app", 100), 1, "once is no contest");
}
