//! The order in which a withdrawn namespace ends: the objects of its consumer, its pods, and then itself.

use super::{Side, key};
use control_api::{NamespaceMap, ShadowEndpointSlice, ShadowPod};
use control_runtime::Key;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use serde_json::{Value, json};
use std::time::Duration;

/// Root CA of `rome` in its namespaces.
const ROOT_CA: &str = "kube-root-ca.crt.rome";

/// Returns `milan`, whose consumer `rome` has offloaded `shop` and reflected objects into it.
fn milan(seed: u64) -> Side {
    let mut milan = Side::new("milan", seed);
    milan.put_peer("rome");
    milan.put_replica("rome", "milan", &json!({"shop": "shop-rome"}));
    milan.edit::<NamespaceMap>(&map(), |map| {
        map["metadata"]["annotations"] = json!({"liqo.io/removes-reflected-objects": "true"});
    });
    milan.put::<ConfigMap>(object(ROOT_CA));
    milan.put::<ShadowEndpointSlice>(with_spec("web"));
    milan.put::<ShadowPod>(with_spec("web"));
    let mut pod = object("web");
    pod["metadata"]["labels"] = json!({"liqo.io/managed-by": "shadowpod"});
    milan.put::<Pod>(pod);
    milan.pass();
    milan
}

fn map() -> Key {
    key("rome", "milan")
}

fn object(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop-rome"}})
}

fn with_spec(name: &str) -> Value {
    let mut object = object(name);
    object["spec"] = json!({});
    object
}

fn withdraw(milan: &mut Side) {
    milan.edit::<NamespaceMap>(&map(), |map| map["spec"] = json!({}));
}

fn remove<K: kube::Resource<DynamicType = ()>>(milan: &mut Side, name: &str) {
    milan.remove::<K>(&Key::new("shop-rome", name));
}

fn exists(milan: &mut Side) -> bool {
    milan.namespace("shop-rome").is_object()
}

fn phase(milan: &mut Side) -> Value {
    milan.object::<NamespaceMap>(&map())["status"]["currentMapping"]["shop"]["phase"].clone()
}

#[test]
fn a_withdrawn_namespace_is_deleted_after_the_objects_and_pods_in_it() {
    for seed in 0..10 {
        let mut milan = milan(seed);
        withdraw(&mut milan);
        assert_eq!(phase(&mut milan), "Terminating");
        let removals: [fn(&mut Side); 4] = [
            |milan| remove::<ShadowPod>(milan, "web"),
            |milan| remove::<ShadowEndpointSlice>(milan, "web"),
            |milan| remove::<ConfigMap>(milan, ROOT_CA),
            |milan| remove::<Pod>(milan, "web"),
        ];
        for removal in removals {
            assert!(exists(&mut milan), "seed {seed}");
            removal(&mut milan);
        }

        assert!(!exists(&mut milan), "seed {seed}");
        assert_eq!(phase(&mut milan), Value::Null);
        milan.assert_stable();
    }
}

#[test]
fn the_root_ca_may_be_the_last_object() {
    let mut milan = milan(1);
    withdraw(&mut milan);
    remove::<Pod>(&mut milan, "web");
    remove::<ShadowPod>(&mut milan, "web");
    remove::<ShadowEndpointSlice>(&mut milan, "web");
    assert!(exists(&mut milan));

    let before = milan.requests::<ConfigMap>();
    milan.pass();
    let reads = milan.requests::<ConfigMap>() - before;
    assert!(
        (4..=20).contains(&reads),
        "{reads} reads of two replicas in 2 s"
    );
    milan
        .simulation
        .local()
        .remove::<ConfigMap>(&Key::new("shop-rome", ROOT_CA));
    milan.simulation.pass(Duration::from_millis(400));
    assert!(!exists(&mut milan));
}

#[test]
fn a_consumer_that_removes_nothing_delays_the_deletion_for_ten_seconds() {
    let mut milan = milan(2);
    withdraw(&mut milan);
    milan.simulation.pass(Duration::from_secs(5));
    assert!(exists(&mut milan));
    milan.simulation.pass(Duration::from_secs(4));
    assert!(!exists(&mut milan));
}

#[test]
fn pods_that_do_not_end_delay_the_deletion_for_a_minute() {
    let mut milan = milan(3);
    withdraw(&mut milan);
    remove::<ShadowPod>(&mut milan, "web");
    remove::<ShadowEndpointSlice>(&mut milan, "web");
    remove::<ConfigMap>(&mut milan, ROOT_CA);
    milan.simulation.pass(Duration::from_secs(45));
    assert!(exists(&mut milan));
    milan.simulation.pass(Duration::from_secs(10));
    assert!(!exists(&mut milan));
}

/// Kubernetes waits 5 s itself before it looks at the pods of the namespace.
#[test]
fn the_deletion_begins_shortly_before_the_last_pod_ends() {
    let mut milan = milan(9);
    let end = milan.simulation.time() + Duration::from_secs(30);
    milan.edit::<Pod>(&Key::new("shop-rome", "web"), |pod| {
        pod["metadata"]["deletionTimestamp"] = json!(end.to_string());
        pod["metadata"]["finalizers"] = json!(["test/running"]);
    });
    withdraw(&mut milan);
    remove::<ShadowPod>(&mut milan, "web");
    remove::<ShadowEndpointSlice>(&mut milan, "web");
    remove::<ConfigMap>(&mut milan, ROOT_CA);

    while exists(&mut milan) {
        assert!(milan.simulation.time() < end, "it waits for the end");
        milan.simulation.pass(Duration::from_millis(500));
    }

    let rest = end.duration_since(milan.simulation.time()).as_secs_f64();
    assert!((1.0..=4.0).contains(&rest), "{rest} s before the end");
}

#[test]
fn the_wait_is_limited_also_if_the_root_ca_cannot_be_read() {
    let mut milan = milan(4);
    remove::<ShadowPod>(&mut milan, "web");
    remove::<ShadowEndpointSlice>(&mut milan, "web");
    let right = ("get", "configmaps");
    milan.simulation.local().refuse_right(Some(right), false);
    withdraw(&mut milan);
    milan.simulation.pass(Duration::from_secs(10));

    assert!(!exists(&mut milan));
}

#[test]
fn a_namespace_that_is_offloaded_again_stays_and_waits_anew() {
    let mut milan = milan(5);
    let uid = milan.namespace("shop-rome")["metadata"]["uid"].clone();
    withdraw(&mut milan);
    milan.simulation.pass(Duration::from_secs(5));
    milan.edit::<NamespaceMap>(&map(), |map| {
        map["spec"] = json!({"desiredMapping": {"shop": "shop-rome"}});
    });
    milan.simulation.pass(Duration::from_secs(60));
    assert_eq!(milan.namespace("shop-rome")["metadata"]["uid"], uid);
    assert_eq!(phase(&mut milan), "Accepted");

    withdraw(&mut milan);
    milan.simulation.pass(Duration::from_secs(5));
    assert!(exists(&mut milan));
}

/// Upstream's consumers leave the objects to the deletion of the namespace.
#[test]
fn nothing_is_awaited_of_a_consumer_that_does_not_announce_it() {
    let mut milan = milan(6);
    milan.edit::<NamespaceMap>(&map(), |map| map["metadata"]["annotations"] = Value::Null);
    withdraw(&mut milan);
    assert!(!exists(&mut milan));
}

#[test]
fn nothing_is_awaited_at_the_end_of_the_peering() {
    let mut milan = milan(7);
    withdraw(&mut milan);
    milan.remove::<NamespaceMap>(&map());
    assert!(!exists(&mut milan));
}

/// A provider that no longer permits the name does not depend on its consumer.
#[test]
fn nothing_is_awaited_if_the_provider_refuses_the_entry() {
    let mut milan = milan(8);
    milan.put::<control_api::TenantPolicy>(json!({
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "TenantPolicy",
        "metadata": {"name": "rome", "namespace": "liqo"},
        "spec": {"namespaces": {"deniedNames": ["shop*"]}},
    }));
    milan.pass();
    assert!(!exists(&mut milan));
}

#[test]
fn withdrawn_namespaces_end_despite_crashes_and_partitions() {
    for seed in 0..20 {
        let mut milan = milan(seed);
        let mut object = milan.object::<NamespaceMap>(&map());
        object["spec"] = json!({});
        milan.put::<NamespaceMap>(object);
        milan.pass_with_faults();

        assert_eq!(
            milan.object::<Namespace>(&Key::cluster("shop-rome")),
            Value::Null
        );
        assert_eq!(phase(&mut milan), Value::Null, "seed {seed}");
        milan.assert_stable();
    }
}

#[test]
fn a_cluster_without_virtual_kubelets_announces_nothing() {
    for has_virtual_kubelets in [true, false] {
        let mut rome = Side::with_kubelets("rome", 1, has_virtual_kubelets);
        rome.put_peer("milan");
        rome.put_node("milan", "milan", &json!({}));
        rome.offload("shop", &json!({}));

        let map = rome.object::<NamespaceMap>(&key("milan", "milan"));
        let annotation = &map["metadata"]["annotations"]["liqo.io/removes-reflected-objects"];
        assert_eq!(*annotation == "true", has_virtual_kubelets);
    }
}
