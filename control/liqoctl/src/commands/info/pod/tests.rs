//! The chain of a pod, link by link.

mod fixture;
mod provider;
mod read;

use super::chain::Chain;
use super::facts::{Facts, Provider, Read};
use super::link::State;
use super::*;
use crate::commands::info::query;
use control_api::NamespaceOffloading;
use fixture::{broken, facts, foreign, found, link, map, node, of, offloading, pod, virtual_node};
use serde_json::{Value, json};

#[test]
fn a_whole_chain_shows_every_link() {
    let expected = "\
┌─ Pod demo/web ───────────────────────────────────────────────────────────────────┐
|  ✔    Pod demo/web                                                               |
|      phase: Running                                                              |
|  ✔    Scheduling                                                                 |
|      node: milan                                                                 |
|  ✔    Virtual node milan                                                         |
|      provider: milan                                                             |
|      Node:     ready                                                             |
|  ✔    Provider milan                                                             |
|      apiServer: https://172.18.2.2:6443                                          |
|      version:   v1.35.0                                                          |
|  ✔    Namespace demo                                                             |
|      strategy:        LocalAndRemote                                             |
|      phase:           Ready                                                      |
|      remoteNamespace: demo-rome                                                  |
|  ✔    Tokens                                                                     |
|      needed: token of ServiceAccount web, root CA                                |
|  ✔    ShadowPod demo-rome/web                                                    |
|      phase:   Running                                                            |
|      creator: rome-a8a4c692b93b                                                  |
|  ✔    Remote pod demo-rome/web                                                   |
|      phase:      Running                                                         |
|      node:       milan-worker                                                    |
|      addresses:  10.244.1.7                                                      |
|      containers: web running, 2 restarts                                         |
|  ✔    Network                                                                    |
|      tunnel:            Healthy                                                  |
|      addressAtProvider: 10.244.1.7                                               |
|      addressHere:       10.71.1.7                                                |
└──────────────────────────────────────────────────────────────────────────────────┘
";
    let report = Report(Chain::of(&facts()));

    assert_eq!(report.boxes(), expected);
    assert!(report.check().is_ok());
    let value = report.value();
    assert_eq!(value["whole"], true);
    assert_eq!(value["pod"], json!({"namespace": "demo", "name": "web"}));
    let names = value["chain"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|it| it["link"].as_str().unwrap()).collect();
    let expected = [
        "pod",
        "scheduling",
        "virtualNode",
        "provider",
        "namespace",
        "tokens",
        "shadowPod",
        "remotePod",
        "network",
    ];
    assert_eq!(names, expected);
    assert_eq!(value["chain"][7]["details"]["node"], "milan-worker");
}

#[test]
fn a_broken_chain_fails_with_the_link_and_its_reason() {
    let facts = Facts {
        map: found(map("CreationLoopBackOff")),
        ..facts()
    };
    let report = Report(Chain::of(&facts));

    let error = report.check().unwrap_err().to_string();
    assert!(
        error.starts_with(
            "the chain of pod demo/web is broken at: Namespace demo: the provider cannot create"
        ),
        "{error}"
    );
    let value = report.value();
    assert_eq!(value["whole"], false);
    assert_eq!(value["end"]["link"], "namespace");
    let reason = query::get(&value, "end.reason", None).unwrap();
    assert!(reason.contains("offload with another name"), "{reason}");
    let boxes = report.boxes();
    assert!(boxes.contains("|  ✖    Namespace demo"), "{boxes}");
    assert!(boxes.contains("|  -    ShadowPod"), "{boxes}");
    let longest = boxes.lines().map(|it| it.chars().count()).max();
    assert_eq!(longest, Some(84), "reasons are wrapped");
}

/// Returns facts of a pod that is not scheduled.
fn unscheduled(offloading: Read<NamespaceOffloading>) -> Facts {
    let mut pod = pod();
    pod["spec"]["nodeName"] = Value::Null;
    pod["status"] = json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient cpu.",
    }]});
    Facts {
        pod: of(pod),
        offloading,
        node: Read::Absent,
        virtual_node: Read::Absent,
        foreign: Read::Absent,
        map: Read::Absent,
        provider: Provider::NotTried,
        ..facts()
    }
}

fn with_strategy(strategy: &str) -> Read<NamespaceOffloading> {
    let mut offloading = offloading();
    offloading["spec"]["podOffloadingStrategy"] = strategy.into();
    found(offloading)
}

#[test]
fn an_unscheduled_pod_has_the_schedulers_message_and_the_hindrance_of_its_namespace() {
    let facts = unscheduled(with_strategy("Remote"));
    let (link, reason) = broken(&facts);
    assert_eq!(link, "scheduling");
    assert_eq!(
        reason,
        "the pod is not scheduled: 0/3 nodes are available: 3 Insufficient cpu."
    );
    assert_eq!(Chain::of(&facts).links.len(), 2, "nothing follows");

    let (_, reason) = broken(&unscheduled(Read::Absent));
    assert!(
        reason.ends_with("(namespace demo is not offloaded: run `liqoctl offload namespace demo`)"),
        "{reason}"
    );
    let (_, reason) = broken(&unscheduled(with_strategy("Local")));
    assert!(reason.contains("offloading is Local"), "{reason}");

    let mut new = unscheduled(with_strategy("Remote"));
    new.pod.status = None;
    let (_, reason) = broken(&new);
    assert_eq!(reason, "the scheduler has not processed the pod yet");
}

#[test]
fn a_pod_on_a_node_of_this_cluster_is_not_offloaded_for_a_reason() {
    for (offloading, expected) in [
        (Read::Absent, "namespace demo is not offloaded"),
        (with_strategy("Local"), "is Local: use Remote"),
        (
            with_strategy("LocalAndRemote"),
            "lets the scheduler choose: use the strategy Remote",
        ),
        (with_strategy("Remote"), "it was created before"),
    ] {
        let mut node = node();
        node["metadata"]["labels"] = json!({});
        let facts = Facts {
            offloading,
            node: found(node),
            virtual_node: Read::Absent,
            ..facts()
        };

        let (link, reason) = broken(&facts);

        assert_eq!(link, "scheduling");
        assert!(
            reason.starts_with("the pod is not offloaded, milan is a node of this cluster: "),
            "{reason}"
        );
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn a_virtual_node_that_is_not_ready_names_the_condition() {
    let mut unready = node();
    unready["status"]["conditions"] = json!([
        {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "not ready"},
        {"type": "NetworkUnavailable", "status": "True", "reason": "LiqoNetworkingDown", "message": "down"},
    ]);
    let (link, reason) = broken(&Facts {
        node: found(unready),
        ..facts()
    });
    assert_eq!(link, "virtualNode");
    assert!(
        reason.contains("Ready is False: KubeletNotReady (not ready); condition NetworkUnavailable is True: LiqoNetworkingDown"),
        "{reason}"
    );

    let mut draining = virtual_node();
    draining["status"]["conditions"][1]["status"] = "Draining".into();
    let (_, reason) = broken(&Facts {
        virtual_node: found(draining),
        ..facts()
    });
    assert_eq!(reason, "Node is in state Draining");

    let (_, reason) = broken(&Facts {
        virtual_node: Read::Absent,
        ..facts()
    });
    assert!(
        reason.contains("VirtualNode milan does not exist"),
        "{reason}"
    );
}

#[test]
fn a_namespace_without_counterpart_names_its_phase_and_the_providers_condition() {
    let mut failed = offloading();
    failed["status"]["remoteNamespacesConditions"]["milan"] = json!([
        {"type": "Ready", "status": "False", "reason": "CreationFailed", "message": "it exists"},
    ]);
    let with_map = |object: Value| Facts {
        map: found(object),
        offloading: found(failed.clone()),
        ..facts()
    };
    let mut other = map("Accepted");
    other["status"]["currentMapping"]["demo"]["remoteNamespace"] = "kube-system".into();
    let mut unanswered = map("Accepted");
    unanswered["status"] = json!({});
    let mut unselected = map("Accepted");
    unselected["spec"] = json!({});
    for (object, expected) in [
        (
            map("CreationLoopBackOff"),
            "namespace: CreationFailed: it exists",
        ),
        (map("Terminating"), "the provider deletes"),
        (
            other,
            "reports the remote namespace kube-system instead of demo-rome",
        ),
        (unanswered, "has not replied"),
        (
            unselected,
            "spec.clusterSelector of its NamespaceOffloading must select",
        ),
    ] {
        let facts = with_map(object);
        let (name, reason) = broken(&facts);

        assert_eq!(name, "namespace");
        assert!(reason.contains(expected), "{expected}\n{reason}");
        for later in ["shadowPod", "remotePod"] {
            assert_eq!(link(&facts, later).shown().1, State::NotReached);
        }
    }

    let (name, reason) = broken(&Facts {
        offloading: Read::Absent,
        ..facts()
    });
    assert_eq!(name, "namespace");
    assert!(reason.contains("no longer offloaded"), "{reason}");
}

#[test]
fn an_interrupted_tunnel_and_a_missing_address_break_the_network() {
    let (link, reason) = broken(&Facts {
        foreign: found(foreign("Error")),
        ..facts()
    });
    assert_eq!((link, reason.as_str()), ("network", "no handshake arrives"));

    let mut pod = pod();
    pod["status"]["podIP"] = Value::Null;
    let mut disconnected = foreign("Established");
    disconnected["status"]["modules"]["networking"]["enabled"] = false.into();
    let (link, reason) = broken(&Facts {
        pod: of(pod.clone()),
        ..facts()
    });
    assert_eq!(link, "network");
    assert!(reason.contains("no address in this cluster"), "{reason}");

    // Without networking, pods have no address in other clusters.
    let facts = Facts {
        pod: of(pod),
        foreign: found(disconnected),
        ..facts()
    };
    assert_eq!(Chain::of(&facts).end(), None);
}

#[test]
fn a_pod_is_named_with_its_namespace_or_with_a_flag() {
    let named = |text| Named::parse(text).unwrap();
    assert_eq!(
        named("demo/web").namespace(None, "default").unwrap(),
        "demo"
    );
    assert_eq!(
        named("demo/web").namespace(Some("demo"), "demo").unwrap(),
        "demo"
    );
    assert_eq!(
        named("web").namespace(Some("shop"), "shop").unwrap(),
        "shop"
    );
    assert_eq!(
        named("web.1").namespace(None, "default").unwrap(),
        "default"
    );
    let other = named("demo/web");
    let error = other.namespace(Some("shop"), "shop").unwrap_err();
    assert!(error.to_string().contains("use one of them"));
    for text in ["", "demo/", "/web", "a/b/c", "We", "demo/..", "-a", "web?x"] {
        assert!(Named::parse(text).is_err(), "{text}");
    }
}
