//! The deletion of virtual nodes.

use super::*;
use control_api::ForeignCluster;
use control_runtime::{Action, Request, Write};
use std::time::Duration;

/// Returns `rome` with a running virtual node and an offloaded pod.
fn running() -> Side {
    let mut rome = rome(1);
    start(&mut rome);
    put_pod(&mut rome, "web", &json!({}));
    rome
}

/// Creates an offloaded pod, whose termination takes until its finalizer is removed.
fn put_pod(rome: &mut Side, name: &str, metadata: &Value) {
    let mut pod = json!({
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": {"liqo.io/shadowPod": "true"},
            "finalizers": ["example.com/graceful"],
        },
        "spec": {"nodeName": "milan", "containers": []},
    });
    for (field, value) in metadata.as_object().unwrap() {
        pod["metadata"][field] = value.clone();
    }
    rome.put::<Pod>(pod);
}

/// Ends the termination of the offloaded pod.
fn terminate(rome: &mut Side) {
    let web = Key::new("shop", "web");
    rome.edit::<Pod>(&web, |pod| pod["metadata"]["finalizers"] = json!([]));
    rome.run(MOMENT);
}

fn kubelet_pod() -> Key {
    key("milan", "vk-milan-1")
}

/// Returns the writes since the request number `begin`, but not those of statuses and creations.
fn writes(rome: &Side, begin: usize) -> impl Iterator<Item = &Write> {
    let log = rome.simulation.log()[begin..].iter();
    let writes = log.filter_map(|sent| match &sent.request {
        Request::Write(write) => Some(write),
        Request::Read(_) | Request::Probe(_) => None,
    });
    writes.filter(|write| {
        write.subresource != Some("status") && !matches!(write.action, Action::Create(_))
    })
}

/// Returns these writes as `verb Kind`.
fn log(rome: &Side, begin: usize) -> Vec<String> {
    let writes = writes(rome, begin);
    writes
        .map(|write| format!("{} {}", write.action.verb(), write.object.resource.kind))
        .collect()
}

fn requests(rome: &Side) -> usize {
    rome.simulation.log().len()
}

#[test]
fn a_virtual_node_ends_in_order() {
    let mut rome = running();
    let first = requests(&rome);
    rome.remove::<ResourceSlice>(&milan());
    rome.run(MOMENT);
    assert_eq!(
        log(&rome, first),
        ["delete VirtualNode", "patch Node", "post Pod"]
    );
    assert_eq!(
        rome.conditions(&milan()),
        ["VirtualKubelet=Running", "Node=Draining"]
    );
    let node = rome.spec::<Node>(&Key::cluster("milan"));
    assert_eq!(node["unschedulable"], true);

    let second = requests(&rome);
    terminate(&mut rome);
    assert_eq!(log(&rome, second), ["delete Deployment"]);
    assert_eq!(
        rome.conditions(&milan()),
        ["VirtualKubelet=Deleting", "Node=Deleting"]
    );
    let binding = rome.object::<RoleBinding>(&tenant_binding()).unwrap();
    assert_eq!(
        binding["subjects"][0]["name"], "milan",
        "its pod still runs"
    );

    let third = requests(&rome);
    rome.simulation.local().terminate::<Pod>(&kubelet_pod());
    rome.run(MOMENT);
    let log = log(&rome, third);
    let at = |entry: &str| log.iter().position(|it| it == entry).unwrap();
    assert!(
        at("delete ClusterRoleBinding") < at("delete Node"),
        "{log:?}"
    );
    assert!(at("delete ServiceAccount") < at("delete Node"), "{log:?}");
    assert_eq!(log.last().unwrap(), "patch VirtualNode", "the finalizer");
    let bindings = log.iter().filter(|it| *it == "delete RoleBinding");
    assert_eq!(bindings.count(), 3);
    assert_eq!(rome.count::<VirtualNode>(), 0);
    assert_eq!(rome.count::<Node>(), 0);
    assert_eq!(rome.count::<ServiceAccount>(), 0);
    assert_eq!(rome.redundant().len(), 0);
    assert_eq!(rome.events(), [""; 0]);
}

#[test]
fn pods_of_daemon_sets_and_static_pods_and_those_of_other_nodes_are_not_evicted() {
    let mut rome = rome(1);
    start(&mut rome);
    let owner = json!([{
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": "d",
        "uid": "d",
        "controller": true,
    }]);
    put_pod(&mut rome, "daemon", &json!({"ownerReferences": owner}));
    put_pod(
        &mut rome,
        "static",
        &json!({"annotations": {"kubernetes.io/config.mirror": "x"}}),
    );
    put_pod(&mut rome, "elsewhere", &json!({}));
    rome.edit::<Pod>(&Key::new("shop", "elsewhere"), |pod| {
        pod["spec"]["nodeName"] = json!("worker");
    });
    let first = requests(&rome);
    rome.remove::<ResourceSlice>(&milan());
    rome.run(MOMENT);

    let log = log(&rome, first);
    assert_eq!(
        log,
        ["delete VirtualNode", "patch Node", "delete Deployment"]
    );
}

#[test]
fn a_refused_eviction_is_repeated_and_the_end_does_not_wait_for_ever() {
    let mut rome = running();
    let right = Some(("post", "pods"));
    rome.simulation.local().refuse_right(right, false);
    rome.remove::<ResourceSlice>(&milan());
    rome.run(MOMENT);
    assert_eq!(rome.conditions(&milan())[1], "Node=Draining");

    rome.run(Duration::from_secs(240));
    assert_eq!(rome.conditions(&milan())[1], "Node=Draining");
    let evictions = log(&rome, 0).iter().filter(|it| *it == "post Pod").count();
    assert!((5..30).contains(&evictions), "{evictions}");
    assert_eq!(rome.events(), [""; 0]);
    rome.run(Duration::from_secs(120));
    assert_eq!(rome.object::<Deployment>(&vk()), None);
    let events = rome.events();
    let expected = "VirtualNode milan DrainTimedOut: Node milan still has pods";
    assert!(events[0].starts_with(expected), "{events:?}");

    rome.simulation.local().terminate::<Pod>(&kubelet_pod());
    rome.run(MOMENT);
    assert_eq!(rome.count::<VirtualNode>(), 0);
    assert_eq!(rome.count::<Node>(), 0);
}

#[test]
fn a_virtual_kubelet_that_does_not_stop_does_not_keep_the_virtual_node() {
    let mut rome = rome(1);
    start(&mut rome);
    rome.remove::<ResourceSlice>(&milan());
    rome.run(Duration::from_secs(440));
    assert_eq!(rome.count::<VirtualNode>(), 1);
    assert_eq!(rome.count::<ClusterRoleBinding>(), 1);

    rome.run(Duration::from_secs(30));
    assert_eq!(rome.count::<VirtualNode>(), 0);
    assert_eq!(rome.count::<ClusterRoleBinding>(), 0, "the rights end");
    assert_eq!(rome.count::<RoleBinding>(), 1, "that of the manager");
    assert_eq!(rome.count::<Node>(), 0);
}

#[test]
fn pods_of_a_provider_that_is_declared_dead_are_not_terminated_gracefully() {
    let mut rome = running();
    rome.put::<ForeignCluster>(json!({
        "apiVersion": "core.liqo.io/v1beta1",
        "kind": "ForeignCluster",
        "metadata": {
            "name": "milan",
            "annotations": {"liqo.io/foreign-cluster-permanently-unreachable": "true"},
        },
        "spec": {"clusterID": "milan"},
    }));
    let first = requests(&rome);
    rome.remove::<ResourceSlice>(&milan());
    rome.run(MOMENT);
    let evictions: Vec<_> = writes(&rome, first)
        .filter_map(|write| match &write.action {
            Action::Post(body) => Some(&body["deleteOptions"]["gracePeriodSeconds"]),
            Action::Apply(_)
            | Action::Create(_)
            | Action::Update(_)
            | Action::Merge(_)
            | Action::Finalize(_)
            | Action::Delete => None,
        })
        .collect();
    assert!(!evictions.is_empty());
    assert!(evictions.iter().all(|it| **it == 0), "{evictions:?}");

    // Even if the pod and the virtual kubelet stay.
    rome.run(Duration::from_secs(100));
    assert_eq!(rome.count::<VirtualNode>(), 0);
    assert_eq!(rome.count::<Node>(), 0);
}

#[test]
fn a_virtual_node_without_its_kubelet_ends_at_once() {
    let mut refused = empty(1);
    let account = json!({"metadata": {"name": "milan", "namespace": "liqo-tenant-milan"}});
    refused.put::<ServiceAccount>(account);
    refused.put::<ResourceSlice>(golden::local());
    refused.run(MOMENT);
    let mut unstarted = rome(1);
    for (name, rome) in [("refused", &mut refused), ("unstarted", &mut unstarted)] {
        assert_eq!(rome.count::<VirtualNode>(), 1, "{name}");
        rome.remove::<ResourceSlice>(&milan());
        rome.run(MOMENT);
        assert_eq!(rome.count::<VirtualNode>(), 0, "{name}");
        assert_eq!(rome.count::<ClusterRoleBinding>(), 0, "{name}");
    }
}

#[test]
fn a_namespace_that_is_being_deleted_does_not_keep_its_virtual_node() {
    let mut rome = rome(1);
    start(&mut rome);
    let namespace = Key::cluster("liqo-tenant-milan");
    rome.edit::<Namespace>(&namespace, |it| {
        it["metadata"]["finalizers"] = json!(["kubernetes"]);
    });
    rome.remove::<Namespace>(&namespace);
    rome.remove::<RoleBinding>(&key("milan", "liqo-controller-manager-tenant"));
    rome.remove::<VirtualNode>(&milan());
    rome.run(MOMENT);

    assert_eq!(rome.count::<VirtualNode>(), 0);
    assert_eq!(rome.count::<Node>(), 0);
    assert_eq!(rome.count::<ClusterRoleBinding>(), 0);
}

#[test]
fn without_create_node_the_node_is_drained_and_the_virtual_kubelet_stays() {
    let mut rome = running();
    rome.edit::<VirtualNode>(&milan(), |it| it["spec"]["createNode"] = json!(false));
    rome.run(MOMENT);
    assert_eq!(
        rome.conditions(&milan()),
        ["VirtualKubelet=Running", "Node=Draining"]
    );
    assert!(arguments(&mut rome).contains(&"--create-node=false".to_owned()));

    terminate(&mut rome);
    assert_eq!(
        rome.conditions(&milan()),
        ["VirtualKubelet=Running", "Node=None"]
    );
    assert_eq!(rome.count::<Node>(), 0);
    assert_eq!(rome.count::<Deployment>(), 1);
    assert!(rome.replanned().is_empty());
}

#[test]
fn a_node_of_another_kind_with_the_name_survives() {
    let mut rome = rome(1);
    rome.put_node("milan", &json!({"kubernetes.io/hostname": "milan"}));
    rome.remove::<ResourceSlice>(&milan());
    rome.run(10 * MOMENT);

    assert_eq!(rome.count::<VirtualNode>(), 0);
    assert_eq!(rome.requests::<Node>(), 0);
}
