//! ShadowPods whose pod the cache lacks.

use super::*;
use control_runtime::Request;

/// Returns the number of deletions of ShadowPods that were sent.
fn deletions(rome: &Side) -> usize {
    let log = rome.simulation.log().iter();
    let writes = log.filter_map(|sent| match &sent.request {
        Request::Write(write) if write.action.verb() == "delete" => Some(write),
        Request::Write(_) | Request::Read(_) | Request::Probe(_) => None,
    });
    writes
        .filter(|it| it.object.resource.kind == "ShadowPod")
        .count()
}

/// Creates the ShadowPod of a pod, as the leader before has done.
fn put_shadow(rome: &mut Side, name: &str) -> Value {
    let uid = rome.pod(name)["metadata"]["uid"].clone();
    rome.provider().put::<ShadowPod>(json!({
        "apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod",
        "metadata": {"name": name, "namespace": "shop-rome", "annotations": {"liqo.io/pod-uid": uid}, "labels": {
            "offloading.liqo.io/nodename": "milan", "offloading.liqo.io/origin": "rome",
            "offloading.liqo.io/destination": "milan"}},
        "spec": {},
    }));
    rome.shadow(name)["metadata"]["uid"].clone()
}

#[test]
fn a_shadow_pod_stays_while_the_cache_lacks_its_pod() {
    let mut rome = rome(1);
    rome.simulation.partition(&Cluster::Local);
    rome.put_pod("late");
    let uid = put_shadow(&mut rome, "late");
    rome.simulation.pass(Duration::from_secs(40));
    assert_eq!(rome.shadow("late")["metadata"]["uid"], uid);

    rome.simulation.heal(&Cluster::Local);
    rome.simulation.pass(Duration::from_secs(120));
    assert_eq!(rome.shadow("late")["metadata"]["uid"], uid);
    assert_eq!(deletions(&rome), 0);
}

/// For instance the next pod of a StatefulSet.
#[test]
fn a_shadow_pod_stays_while_the_cache_has_an_earlier_pod_of_the_name() {
    for is_terminating in [false, true] {
        let mut rome = Side::new(2);
        rome.put_map("Accepted");
        rome.put_pod("web");
        rome.pass();
        if is_terminating {
            rome.put_remote("web", &running("10.244.1.7"));
            rome.simulation.local().remove::<Pod>(&pod_key());
            rome.pass();
        }
        rome.simulation.partition(&Cluster::Local);
        rome.simulation.local().terminate::<Pod>(&pod_key());
        rome.put_pod("web");
        let key = Key::new("shop-rome", "web");
        rome.provider().terminate::<ShadowPod>(&key);
        let before = deletions(&rome);
        let uid = put_shadow(&mut rome, "web");
        rome.simulation.pass(Duration::from_secs(40));
        rome.simulation.heal(&Cluster::Local);
        rome.simulation.pass(Duration::from_secs(120));

        assert_eq!(rome.shadow("web")["metadata"]["uid"], uid);
        assert_eq!(deletions(&rome), before);
    }
}

/// For instance the pod of a StatefulSet, after a deletion by force while no virtual kubelet ran.
#[test]
fn a_shadow_pod_whose_pod_runs_on_another_node_is_deleted() {
    let mut rome = rome(5);
    rome.simulation.crash(0);
    rome.simulation.crash(1);
    rome.simulation.local().terminate::<Pod>(&pod_key());
    rome.put::<Pod>(json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"nodeName": "worker", "containers": [{"name": "web", "image": "web:1"}]},
    }));
    rome.pass();

    assert_eq!(rome.shadow("web"), Value::Null);
    assert!(rome.pod("web").is_object());
}

#[test]
fn a_pod_whose_end_the_watch_has_reported_is_not_read() {
    let mut rome = rome(3);
    rome.simulation.local().terminate::<Pod>(&pod_key());
    rome.pass();

    assert_eq!(rome.shadow("web"), Value::Null);
    assert_eq!(rome.reads::<Pod>(), 0);
}

#[test]
fn a_shadow_pod_whose_pod_has_ended_before_the_start_is_deleted_after_one_read() {
    let mut rome = rome(4);
    rome.simulation.crash(0);
    rome.simulation.crash(1);
    rome.simulation.local().terminate::<Pod>(&pod_key());
    rome.pass();

    assert_eq!(rome.shadow("web"), Value::Null);
    assert!((1..=2).contains(&rome.reads::<Pod>()), "one per replica");
}
