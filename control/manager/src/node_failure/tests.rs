//! A provider with two controllers, the pods of ShadowPods and their end on failed nodes, in virtual time.

use super::{Metrics, NodeFailureController};
use crate::shadow_pod::{Settings, ShadowPodController};
use control_api::ShadowPod;
use control_runtime::simulation::Simulation;
use control_runtime::{Action, Key, Request};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use serde_json::{Value, json};
use std::time::Duration;

/// Long enough for the requests that a change causes.
const MOMENT: Duration = Duration::from_secs(2);

struct Milan {
    simulation: Simulation,
    metrics: Metrics,
}

impl Milan {
    /// Creates a provider with a ShadowPod of `rome`, whose pod is on node `n1`, which is ready.
    fn new(seed: u64) -> Self {
        let metrics = Metrics::default();
        let pods = || {
            ShadowPodController::new(Settings {
                namespace: "liqo".to_owned(),
                enforces_resources: false,
            })
        };
        let counted = metrics.clone();
        let simulation = Simulation::new(seed)
            .host(pods)
            .host(move || NodeFailureController::new(counted.clone()))
            .replicas(2);
        let mut milan = Self {
            simulation,
            metrics,
        };
        let peer = json!({"liqo.io/remote-cluster-id": "rome"});
        let tenant = json!({"name": "liqo-tenant-rome",
            "labels": {"liqo.io/remote-cluster-id": "rome", "liqo.io/tenant-namespace": "true"}});
        let remote = json!({"name": "demo-rome", "labels": peer,
            "annotations": {"liqo.io/managed-by-namespace-map": "liqo-tenant-rome/milan"}});
        let server = milan.simulation.local();
        server.put::<Namespace>(json!({"metadata": tenant}));
        server.put::<Namespace>(json!({"metadata": remote}));
        server.put::<ShadowPod>(json!({
            "metadata": {"name": "a", "namespace": "demo-rome", "labels": {"offloading.liqo.io/origin": "rome"}},
            "spec": {"pod": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "busybox"}]}},
        }));
        milan.set_ready("n1", Some("True"));
        milan.run();
        milan.edit(|pod| {
            pod["spec"]["nodeName"] = json!("n1");
            pod["status"] = json!({"phase": "Running"});
        });
        milan.run();
        milan
    }

    fn run(&mut self) {
        self.simulation.pass(MOMENT);
    }

    /// Sets the condition `Ready` of a node; `None` removes it.
    fn set_ready(&mut self, name: &str, status: Option<&str>) {
        let conditions: Vec<_> = status
            .iter()
            .map(|status| json!({"type": "Ready", "status": status}))
            .collect();
        self.simulation
            .local()
            .put::<Node>(json!({"metadata": {"name": name}, "status": {"conditions": conditions}}));
    }

    fn pod(&mut self) -> Value {
        let pod = self.simulation.local().get::<Pod>(&key());
        pod.cloned().unwrap_or_default()
    }

    fn edit(&mut self, edit: impl FnOnce(&mut Value)) {
        let mut pod = self.pod();
        edit(&mut pod);
        self.simulation.local().put::<Pod>(pod);
    }

    /// Deletes the pod gracefully, as the control plane does after the tolerations of a failed node.
    fn delete(&mut self) {
        self.simulation.local().remove::<Pod>(&key());
    }

    /// Returns the number of deletions that were sent.
    fn deletions(&self) -> usize {
        let log = self.simulation.log().iter();
        log.filter(
            |sent| matches!(&sent.request, Request::Write(it) if it.action == Action::Delete),
        )
        .count()
    }

    fn events(&self) -> Vec<&'static str> {
        let events = self.simulation.events(0).iter();
        let events = events.filter(|it| it.object.resource.kind == "Pod");
        events.map(|it| it.reason).collect()
    }
}

fn key() -> Key {
    Key::new("demo-rome", "a")
}

#[test]
fn a_pod_that_a_failed_node_cannot_terminate_is_created_again() {
    for (seed, status) in [(1, "Unknown"), (2, "False")] {
        let mut milan = Milan::new(seed);
        let before = milan.pod()["metadata"]["uid"].clone();
        milan.set_ready("n1", Some(status));
        milan.run();
        assert_eq!(milan.pod()["metadata"]["uid"], before, "it may come back");

        milan.delete();
        milan.run();

        let after = milan.pod();
        assert_ne!(after["metadata"]["uid"], before, "{status}");
        assert_eq!(after["metadata"]["deletionTimestamp"], Value::Null);
        assert_eq!(after["spec"]["nodeName"], Value::Null);
        assert_eq!((milan.deletions(), milan.metrics.deleted()), (1, 1));
        assert_eq!(milan.events(), ["NodeFailed"]);
        assert!(milan.simulation.redundant().is_empty());
    }
}

#[test]
fn a_node_that_fails_while_its_pod_terminates_counts_likewise() {
    let mut milan = Milan::new(3);
    let before = milan.pod()["metadata"]["uid"].clone();
    milan.delete();
    milan.run();
    assert_eq!(milan.deletions(), 0, "the kubelet terminates it");

    milan.set_ready("n1", Some("Unknown"));
    milan.run();

    assert_ne!(milan.pod()["metadata"]["uid"], before);
}

#[test]
fn a_new_leader_deletes_what_the_former_one_has_not() {
    let mut milan = Milan::new(4);
    let before = milan.pod()["metadata"]["uid"].clone();
    milan
        .simulation
        .local()
        .refuse_right(Some(("delete", "pods")), false);
    milan.set_ready("n1", Some("Unknown"));
    milan.delete();
    milan.run();
    assert_eq!(milan.pod()["metadata"]["uid"], before);
    assert_eq!(milan.metrics.deleted(), 0, "a refusal");

    milan.simulation.crash(0);
    milan.simulation.hand_over(1);
    milan.simulation.local().refuse_right(None, false);
    milan.simulation.pass(Duration::from_secs(120));

    assert_ne!(milan.pod()["metadata"]["uid"], before);
}

#[test]
fn a_pod_that_waits_for_finalizers_is_deleted_once() {
    let mut milan = Milan::new(5);
    milan.edit(|pod| pod["metadata"]["finalizers"] = json!(["example.com/wait"]));
    milan.set_ready("n1", Some("Unknown"));
    milan.delete();
    milan.run();

    assert_eq!(milan.pod()["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(milan.deletions(), 1);
    let again = milan.simulation.replan(Duration::from_secs(600)).unwrap();
    assert!(again.is_empty(), "{again:?}");
}

#[test]
fn pods_of_others_and_pods_whose_node_may_terminate_them_stay() {
    type Case = (&'static str, fn(&mut Milan));
    let cases: [Case; 4] = [
        ("the node is ready", |milan| {
            milan.set_ready("n1", Some("True"));
        }),
        ("the node has just joined", |milan| {
            milan.set_ready("n1", None);
        }),
        ("another node has failed", |milan| {
            milan.set_ready("n2", Some("Unknown"));
        }),
        ("the pod is of another owner", |milan| {
            milan.edit(|pod| {
                pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1",
                    "kind": "ReplicaSet", "name": "a", "uid": "1", "controller": true}]);
            });
            milan.set_ready("n1", Some("Unknown"));
        }),
    ];
    for (case, change) in cases {
        let mut milan = Milan::new(6);
        let before = milan.pod()["metadata"]["uid"].clone();
        change(&mut milan);
        milan.delete();
        milan.run();

        assert_eq!(milan.pod()["metadata"]["uid"], before, "{case}");
        assert_eq!((milan.deletions(), milan.events().len()), (0, 0), "{case}");
    }
}
