//! Comparison with an object of upstream's provider.

use super::Side;
use super::side::{MOMENT, NAMESPACE, key};
use control_api::ShadowPod;
use serde_json::{Value, json};

/// The pod's spec as upstream's virtual kubelet writes it, shortened.
fn spec() -> Value {
    json!({
        "automountServiceAccountToken": false,
        "containers": [{
            "command": ["sh", "-c", "sleep 3600"],
            "env": [{"name": "KUBERNETES_SERVICE_HOST", "value": "kubernetes.default"}],
            "image": "busybox:1.36",
            "imagePullPolicy": "IfNotPresent",
            "name": "c",
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "volumeMounts": [{
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "name": "kube-api-access-qdn68",
                "readOnly": true,
            }],
        }],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": true,
        "hostAliases": [{"hostnames": ["kubernetes.default", "kubernetes.default.svc"], "ip": "10.70.0.1"}],
        "restartPolicy": "Always",
        "securityContext": {},
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{
            "effect": "NoExecute",
            "key": "node.kubernetes.io/not-ready",
            "operator": "Exists",
            "tolerationSeconds": 300,
        }],
        "volumes": [{
            "name": "kube-api-access-qdn68",
            "projected": {"defaultMode": 420, "sources": [
                {"secret": {"items": [{"key": "kube-api-access-qdn68-3c469e", "path": "token"}], "name": "bb-token"}},
                {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt.rome"}},
                {"downwardAPI": {"items": [{
                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    "path": "namespace",
                }]}},
            ]},
        }],
    })
}

/// The objects are those of upstream's provider, before scheduler and kubelet change the pod. Upstream also copies the
/// annotation of `kubectl apply`, which is about another object. The annotation about changes is an addition of this project.
#[test]
fn the_pod_equals_upstreams_without_the_annotation_of_kubectl() {
    let mut milan = Side::new(3);
    milan.put_configuration("rome");
    let applied = "kubectl.kubernetes.io/last-applied-configuration";
    milan.put::<ShadowPod>(json!({
        "metadata": {
            "annotations": {applied: "{}", "example.com/note": "x"},
            "creationTimestamp": "2026-11-21T08:29:28Z",
            "labels": {
                "liqo.io/creator-user": "milan-a8a4c692b93b",
                "offloading.liqo.io/destination": "milan",
                "offloading.liqo.io/nodename": "milan",
                "offloading.liqo.io/origin": "rome",
            },
            "name": "bb",
            "namespace": NAMESPACE,
        },
        "spec": {"pod": spec()},
    }));
    milan.run(MOMENT);

    let owner = milan.object::<ShadowPod>(&key("bb")).unwrap();
    let mut pod = milan.pod("bb").unwrap();
    for field in ["uid", "resourceVersion"] {
        pod["metadata"].as_object_mut().unwrap().remove(field);
    }
    let mut expected = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "annotations": {"example.com/note": "x", "liqo.io/applies-changes": "true"},
            "labels": {
                "liqo.io/creator-user": "milan-a8a4c692b93b",
                "liqo.io/managed-by": "shadowpod",
                "offloading.liqo.io/destination": "milan",
                "offloading.liqo.io/nodename": "milan",
                "offloading.liqo.io/origin": "rome",
            },
            "name": "bb",
            "namespace": NAMESPACE,
            "ownerReferences": [{
                "apiVersion": "offloading.liqo.io/v1beta1",
                "blockOwnerDeletion": true,
                "controller": true,
                "kind": "ShadowPod",
                "name": "bb",
                "uid": owner["metadata"]["uid"],
            }],
        },
        "spec": spec(),
    });
    expected["spec"]["hostAliases"][0]["ip"] = json!("10.68.0.1");
    assert_eq!(pod, expected);
    assert!(milan.replanned().is_empty());
}
