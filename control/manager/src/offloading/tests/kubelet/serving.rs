//! Approval of the serving certificates of virtual kubelets.

use super::*;
use crate::offloading::tests::Edit;
use control_credentials::{ClusterKey, KeyType, serving};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use std::time::Duration;

const POD: &str = "vk-milan-6585c8c86-qxz2w";

/// When the requests are sent: the time after [`rome`], since 1970.
const CREATED: &str = "1970-01-01T00:00:02Z";

fn csr() -> Key {
    Key::cluster("csr-1")
}

/// Creates the pod of the virtual kubelet, and returns its UID.
fn put_pod(rome: &mut Side, address: Option<&str>) -> String {
    rome.put::<Pod>(json!({
        "metadata": {
            "name": POD,
            "namespace": "liqo-tenant-milan",
            "labels": {
                "offloading.liqo.io/component": "virtual-kubelet",
                "liqo.io/virtual-node": "milan",
                "pod-template-hash": "6585c8c86",
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "vk-milan-6585c8c86",
                "uid": "u",
                "controller": true,
            }],
        },
        "spec": {"nodeName": "worker", "containers": []},
        "status": {"phase": "Running", "podIP": address},
    }));
    let pod = rome.object::<Pod>(&key("milan", POD)).unwrap();
    pod["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Sends the request of the virtual kubelet, after a change.
fn request(rome: &mut Side, uid: &str, change: impl FnOnce(&mut Value)) {
    let key = ClusterKey::generate(KeyType::Ed25519, [7; 32]).unwrap();
    let address = "10.244.0.5".parse().unwrap();
    let text = serving::create(&key, "milan", address).unwrap();
    let mut request = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "csr-1", "creationTimestamp": CREATED},
        "spec": {
            "request": ByteString(text.into_bytes()),
            "signerName": "kubernetes.io/kubelet-serving",
            "usages": ["digital signature", "server auth"],
            "username": "system:serviceaccount:liqo-tenant-milan:milan",
            "extra": {
                "authentication.kubernetes.io/pod-name": [POD],
                "authentication.kubernetes.io/pod-uid": [uid],
            },
        },
    });
    change(&mut request);
    rome.put::<CertificateSigningRequest>(request);
}

fn conditions(rome: &mut Side) -> Value {
    let request = rome.object::<CertificateSigningRequest>(&csr()).unwrap();
    request["status"]["conditions"].clone()
}

fn is_approved(rome: &mut Side) -> bool {
    conditions(rome)[0]["type"] == "Approved"
}

fn writes(rome: &Side) -> usize {
    rome.requests::<CertificateSigningRequest>()
}

#[test]
fn the_request_of_a_virtual_kubelet_is_approved_once_as_by_upstream() {
    let mut rome = rome(1);
    let uid = put_pod(&mut rome, Some("10.244.0.5"));
    request(&mut rome, &uid, |_| {});
    rome.run(MOMENT);

    let expected = json!([{
        "type": "Approved",
        "status": "True",
        "reason": "LiqoApproval",
        "message": "This CSR was approved by Liqo",
    }]);
    assert_eq!(conditions(&mut rome), expected);
    assert_eq!(writes(&rome), 1);
    assert_eq!(rome.events(), [""; 0]);
    assert!(rome.replanned().is_empty());
}

#[test]
fn a_request_is_approved_when_its_pod_and_the_address_appear() {
    let mut rome = rome(1);
    request(&mut rome, "e3c1c145", |_| {});
    rome.run(MOMENT);
    assert_eq!((writes(&rome), rome.events().len()), (0, 0));

    let uid = put_pod(&mut rome, None);
    rome.edit::<CertificateSigningRequest>(&csr(), |it| {
        it["spec"]["extra"]["authentication.kubernetes.io/pod-uid"] = json!([uid]);
    });
    rome.run(MOMENT);
    assert_eq!((writes(&rome), rome.events().len()), (0, 0));

    put_pod(&mut rome, Some("10.244.0.5"));
    rome.run(MOMENT);
    assert!(is_approved(&mut rome));
    rome.run(Duration::from_secs(60));
    assert_eq!(rome.events(), [""; 0]);
}

#[test]
fn a_pod_that_stays_unknown_is_reported() {
    let mut rome = rome(1);
    request(&mut rome, "e3c1c145", |_| {});
    rome.run(Duration::from_secs(29));
    assert_eq!(rome.events(), [""; 0]);
    rome.run(Duration::from_secs(3));

    let expected = "VirtualNode milan CSRNotApproved: CertificateSigningRequest csr-1 is not approved: the pod that spec.extra \
                    names does not exist, or has another UID";
    assert_eq!(rome.events(), [expected]);
    assert_eq!(writes(&rome), 0);
}

#[test]
fn a_request_that_breaks_a_rule_is_left_alone_and_reported() {
    let edits: [Edit; 3] = [
        ("spec.signerName is not", |it| {
            it["spec"]["signerName"] = json!("kubernetes.io/kube-apiserver-client-kubelet");
        }),
        ("spec.usages are not exactly", |it| {
            it["spec"]["usages"] = json!(["client auth", "digital signature"]);
        }),
        ("spec.request is invalid", |it| {
            it["spec"]["request"] = json!(ByteString(vec![0xff; 100_000]));
        }),
    ];
    for (part, edit) in edits {
        let mut rome = rome(1);
        let uid = put_pod(&mut rome, Some("10.244.0.5"));
        request(&mut rome, &uid, edit);
        rome.run(MOMENT);

        assert_eq!(conditions(&mut rome), Value::Null, "{part}");
        assert_eq!(writes(&rome), 0, "{part}");
        let events = rome.events();
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(events[0].contains(part), "{events:?}");
        assert!(events[0].len() < 1000, "{events:?}");
    }
}

#[test]
fn requests_of_others_cause_no_event() {
    for user in [
        "system:node:milan",
        "system:serviceaccount:liqo-tenant-milan:naples",
        "system:serviceaccount:liqo-tenant-naples:milan",
    ] {
        let mut rome = rome(1);
        let uid = put_pod(&mut rome, Some("10.244.0.5"));
        request(&mut rome, &uid, |it| it["spec"]["username"] = json!(user));
        rome.run(Duration::from_secs(60));

        assert_eq!(writes(&rome), 0, "{user}");
        assert_eq!(rome.events(), [""; 0], "{user}");
    }
}

#[test]
fn a_decided_request_is_left_alone() {
    for decision in ["Denied", "Approved", "Failed"] {
        let mut rome = rome(1);
        let uid = put_pod(&mut rome, Some("10.244.0.5"));
        request(&mut rome, &uid, |it| {
            it["status"] = json!({"conditions": [{"type": decision, "status": "True"}]});
        });
        rome.run(MOMENT);

        assert_eq!(writes(&rome), 0, "{decision}");
    }
}

#[test]
fn a_request_is_left_alone_while_a_node_of_the_cluster_has_the_name() {
    let mut rome = rome(1);
    let uid = put_pod(&mut rome, Some("10.244.0.5"));
    rome.put_node("milan", &json!({}));
    rome.run(MOMENT);
    request(&mut rome, &uid, |_| {});
    rome.run(MOMENT);
    assert_eq!(writes(&rome), 0);
    let events = rome.events();
    assert!(
        events.iter().any(|it| it.contains("CSRNotApproved")),
        "{events:?}"
    );

    rome.remove::<Node>(&Key::cluster("milan"));
    rome.run(MOMENT);
    assert!(is_approved(&mut rome));
}

#[test]
fn a_request_is_left_alone_without_own_deployment_or_virtual_node() {
    let mut rome = rome(1);
    let uid = put_pod(&mut rome, Some("10.244.0.5"));
    rome.edit::<Deployment>(&vk(), |it| {
        it["metadata"]["labels"]["liqo.io/managed"] = json!("false");
    });
    rome.run(MOMENT);
    request(&mut rome, &uid, |_| {});
    rome.run(MOMENT);
    assert_eq!(writes(&rome), 0);

    let mut without = empty(1);
    let uid = put_pod(&mut without, Some("10.244.0.5"));
    request(&mut without, &uid, |_| {});
    without.run(Duration::from_secs(60));
    assert_eq!((writes(&without), without.events().len()), (0, 0));
}

#[test]
fn a_new_leader_approves_what_waits() {
    let mut rome = rome(1);
    let uid = put_pod(&mut rome, Some("10.244.0.5"));
    rome.run(MOMENT);
    request(&mut rome, &uid, |_| {});
    rome.run_with_faults();

    assert!(is_approved(&mut rome));
}
