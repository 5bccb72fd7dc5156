//! The summary of a virtual node.

use super::*;
use crate::commands::info::boxes::draw;
use serde_json::from_value;

fn virtual_node() -> VirtualNode {
    from_value(json!({
        "apiVersion": "offloading.liqo.io/v1beta1", "kind": "VirtualNode",
        "metadata": {"name": "milan"},
        "spec": {"resourceQuota": {"hard": {"cpu": "20", "memory": "20Gi"}}},
    }))
    .unwrap()
}

fn node(ready: &str) -> Node {
    from_value(json!({
        "metadata": {"name": "milan"},
        "status": {
            "capacity": {"cpu": "10", "memory": "8Gi"},
            "conditions": [{"type": "Ready", "status": ready, "reason": "KubeletNotReady", "message": "no network"}],
        },
    }))
    .unwrap()
}

fn pod(phase: &str, cpu: &str, memory: &str) -> Pod {
    let requests = json!({"cpu": cpu, "memory": memory});
    from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "web", "resources": {"requests": requests}}]},
        "status": {"phase": phase},
    }))
    .unwrap()
}

fn map() -> NamespaceMap {
    from_value(json!({
        "apiVersion": "offloading.liqo.io/v1beta1", "kind": "NamespaceMap",
        "metadata": {"name": "milan"},
        "spec": {"desiredMapping": {"demo": "demo-rome", "shop": "shop-rome"}},
        "status": {"currentMapping": {
            "demo": {"phase": "Accepted", "remoteNamespace": "demo-rome"},
            "old": {"phase": "Terminating", "remoteNamespace": "old\u{1b}[31m-rome"},
        }},
    }))
    .unwrap()
}

fn pods() -> Vec<Pod> {
    vec![
        pod("Running", "1", "1536Mi"),
        pod("Pending", "500m", "512Mi"),
        pod("Failed", "4", "4Gi"),
        pod("Succeeded", "4", "4Gi"),
    ]
}

#[test]
fn pods_requests_and_namespaces_are_summarised() {
    let (virtual_node, node, pods, map) = (virtual_node(), node("True"), pods(), map());
    let workload = Workload::of(Objects {
        virtual_node: &virtual_node,
        node: Some(Some(&node)),
        pods: Some(&pods),
        map: Some(Some(&map)),
    });

    let text = draw("Virtual nodes", &workload.items());
    let lines: Vec<&str> = text
        .lines()
        .map(|line| line.trim_end_matches(['|', ' ']))
        .collect();
    assert_eq!(
        lines[1..lines.len() - 1],
        [
            "|  Node:             ready",
            "|  Pods:             1 running, 1 pending, 1 failed",
            "|  Requested cpu:    1.5 of 10 (15%)",
            "|  Requested memory: 2Gi of 8Gi (25%)",
            "|  Offloaded namespaces",
            "|      demo → demo-rome: Accepted",
            "|      old → old [31m-rome: Terminating",
            "|      shop → shop-rome: Pending",
        ]
    );
    let mut value = json!({"name": "milan"});
    workload.add_to(&mut value);
    assert_eq!(value["node"], json!({"ready": true}));
    assert_eq!(
        value["pods"],
        json!({"running": 1, "pending": 1, "failed": 1})
    );
    assert_eq!(
        value["requested"]["memory"],
        json!({"requested": "2Gi", "capacity": "8Gi", "percent": 25})
    );
    assert_eq!(value["namespaces"][0]["phase"], "Accepted");
}

#[test]
fn a_node_that_is_not_ready_has_its_reason_and_the_quota_is_its_capacity() {
    let (virtual_node, unready, pods) = (virtual_node(), node("False"), pods());
    let objects = Objects {
        virtual_node: &virtual_node,
        node: Some(Some(&unready)),
        pods: Some(&pods),
        map: Some(None),
    };
    let mut value = json!({});
    Workload::of(objects).add_to(&mut value);
    let expected = "condition Ready is False: KubeletNotReady (no network)";
    assert_eq!(value["node"], json!({"ready": false, "problem": expected}));

    let missing = Workload::of(Objects {
        node: Some(None),
        ..objects
    });
    missing.add_to(&mut value);
    assert_eq!(value["node"]["problem"], "it does not exist");
    assert_eq!(value["requested"]["cpu"]["capacity"], "20");
}

#[test]
fn parts_that_the_user_may_not_read_are_left_out() {
    let virtual_node = virtual_node();
    let workload = Workload::of(Objects {
        virtual_node: &virtual_node,
        node: None,
        pods: None,
        map: None,
    });
    let mut value = json!({"name": "milan"});

    workload.add_to(&mut value);

    assert_eq!(value, json!({"name": "milan"}));
    assert!(workload.items().is_empty());
}
