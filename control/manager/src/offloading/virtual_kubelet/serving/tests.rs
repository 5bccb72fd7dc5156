//! One test for each rule: a valid request is changed so that it breaks only this one.

use super::*;
use control_credentials::{ClusterKey, KeyType, serving};
use k8s_openapi::ByteString;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Request of upstream's virtual kubelet v1.2.
const UPSTREAM: &str = include_str!("../../../../../credentials/known/upstream.serving.csr.pem");

const RSA_KEY: &str = include_str!("../../../../../credentials/known/rsa.key.pem");

const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 244, 0, 5));

/// The objects of a request, as JSON.
struct Objects {
    request: Value,
    virtual_node: Key,
    node: Option<Value>,
    deployment: Option<Value>,
    pod: Option<Value>,
}

/// Parses an object, in which `null` stands for a missing member.
fn parsed<T: DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(without_nulls(object.clone())).unwrap()
}

fn without_nulls(mut value: Value) -> Value {
    if let Some(members) = value.as_object_mut() {
        members.retain(|_, member| !member.is_null());
    }
    match value {
        Value::Object(members) => {
            let members = members.into_iter();
            members.map(|(key, it)| (key, without_nulls(it))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => scalar,
    }
}

fn pem(node: &str, address: IpAddr) -> Value {
    let key = ClusterKey::generate(KeyType::Ed25519, [7; 32]).unwrap();
    encoded(&serving::create(&key, node, address).unwrap())
}

fn encoded(text: &str) -> Value {
    json!(ByteString(text.as_bytes().to_vec()))
}

/// Returns a request that may be approved.
fn objects() -> Objects {
    Objects {
        request: json!({
            "metadata": {"name": "csr-1"},
            "spec": {
                "request": pem("milan", ADDRESS),
                "signerName": "kubernetes.io/kubelet-serving",
                "usages": ["server auth", "digital signature"],
                "username": "system:serviceaccount:peers:milan",
                "extra": {
                    "authentication.kubernetes.io/pod-name": ["vk-milan-6585c8c86-qxz2w"],
                    "authentication.kubernetes.io/pod-uid": ["e3c1c145"],
                },
            },
        }),
        virtual_node: Key::new("peers", "milan"),
        node: Some(
            json!({"metadata": {"name": "milan", "labels": {"liqo.io/type": "virtual-node"}}}),
        ),
        deployment: Some(json!({"metadata": {"name": "vk-milan", "namespace": "peers"}})),
        pod: Some(json!({
            "metadata": {
                "name": "vk-milan-6585c8c86-qxz2w",
                "namespace": "peers",
                "uid": "e3c1c145",
                "labels": {"liqo.io/virtual-node": "milan", "pod-template-hash": "6585c8c86"},
                "ownerReferences": [{
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "vk-milan-6585c8c86",
                    "uid": "u",
                    "controller": true,
                }],
            },
            "status": {"phase": "Running", "podIP": "10.244.0.5"},
        })),
    }
}

impl Objects {
    fn check(&self) -> Result<(), Violation> {
        let request = parsed(&self.request);
        let node = self.node.as_ref().map(parsed);
        let deployment = self.deployment.as_ref().map(parsed);
        let pod = self.pod.as_ref().map(parsed);

        Requested {
            request: &request,
            virtual_node: &self.virtual_node,
            node: node.as_ref(),
            deployment: deployment.as_ref(),
            pod: pod.as_ref(),
        }
        .check()
    }

    fn pod(&mut self) -> &mut Value {
        self.pod.as_mut().unwrap()
    }
}

/// Returns the verdict about a request after a change.
fn after(change: impl FnOnce(&mut Objects)) -> Result<(), Violation> {
    let mut objects = objects();
    change(&mut objects);
    objects.check()
}

#[test]
fn a_request_of_a_pod_of_the_virtual_kubelet_may_be_approved() {
    assert_eq!(after(|_| {}), Ok(()));
    assert_eq!(
        after(|it| it.node = None),
        Ok(()),
        "the Node is created later"
    );
}

/// Upstream names the usage of RSA keys with its ECDSA key. The rule excludes it, no other rule does.
#[test]
fn upstreams_request_may_be_approved_without_the_usage_of_rsa_keys() {
    let upstream = |it: &mut Objects| it.request["spec"]["request"] = encoded(UPSTREAM);
    let with_usage = |it: &mut Objects| {
        upstream(it);
        it.request["spec"]["usages"] =
            json!(["digital signature", "key encipherment", "server auth"]);
    };

    assert_eq!(after(upstream), Ok(()));
    assert_eq!(after(with_usage), Err(Violation::Usages));
}

#[test]
fn a_request_for_another_signer_is_left_alone() {
    for signer in [
        "kubernetes.io/kube-apiserver-client",
        "example.com/serving",
        "",
    ] {
        let verdict = after(|it| it.request["spec"]["signerName"] = json!(signer));
        assert_eq!(verdict, Err(Violation::Signer), "{signer}");
    }
}

#[test]
fn a_request_of_another_user_is_left_alone() {
    for user in [
        "system:serviceaccount:peers:naples",
        "system:serviceaccount:peer:milan",
        "system:serviceaccount:liqo-tenant-milan:milan",
        "system:serviceaccount:peers:milan:x",
        "system:serviceaccount:peers:",
        "system:serviceaccount::milan",
        "system:serviceaccount:peers",
        "system:serviceaccounts:peers:milan",
        "system:node:milan",
        "admin",
        "",
    ] {
        let verdict = after(|it| it.request["spec"]["username"] = json!(user));
        assert_eq!(verdict, Err(Violation::Username), "{user}");
    }
}

#[test]
fn the_name_of_a_namespace_decides_nothing() {
    let verdict = after(|it| {
        it.virtual_node.namespace = "default".to_owned();
        it.request["spec"]["username"] = json!("system:serviceaccount:default:milan");
    });

    assert_eq!(verdict, Ok(()));
}

#[test]
fn a_request_that_is_no_request_is_left_alone() {
    let text = "-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n";
    for content in [
        String::new(),
        "x".repeat(1 << 20),
        text.to_owned(),
        text.replace("MAA=", &"A".repeat(1 << 20)),
        format!("{UPSTREAM}{UPSTREAM}"),
        UPSTREAM.replace("MIIBDz", "MIIBDj"),
    ] {
        let verdict = after(|it| it.request["spec"]["request"] = encoded(&content));
        assert!(matches!(verdict, Err(Violation::Request(_))), "{verdict:?}");
    }
}

#[test]
fn a_subject_of_another_node_is_left_alone() {
    for node in ["naples", "milan.", "", "milan2"] {
        let verdict = after(|it| it.request["spec"]["request"] = pem(node, ADDRESS));
        assert_eq!(
            verdict,
            Err(Violation::Subject("milan".to_owned())),
            "{node}"
        );
    }
}

#[test]
fn the_name_of_a_node_that_is_not_virtual_is_left_alone() {
    for labels in [
        json!(null),
        json!({}),
        json!({"liqo.io/type": "worker"}),
        json!({"kubernetes.io/hostname": "milan"}),
    ] {
        let verdict = after(|it| {
            it.node = Some(json!({"metadata": {"name": "milan", "labels": labels}}));
        });
        assert_eq!(
            verdict,
            Err(Violation::Node("milan".to_owned())),
            "{labels}"
        );
    }
}

#[test]
fn a_user_without_the_token_of_one_pod_is_left_alone() {
    let name = "authentication.kubernetes.io/pod-name";
    let uid = "authentication.kubernetes.io/pod-uid";
    for (key, value) in [
        (uid, json!(null)),
        (uid, json!([])),
        (uid, json!(["e3c1c145", "e3c1c145"])),
        (uid, json!(["e3c1c145", "other"])),
        (name, json!([])),
        (name, json!(["vk-milan-6585c8c86-qxz2w", "other"])),
    ] {
        let verdict = after(|it| it.request["spec"]["extra"][key] = value.clone());
        assert_eq!(verdict, Err(Violation::Claim), "{key}: {value}");
    }
    let verdict = after(|it| it.request["spec"]["extra"] = json!(null));
    assert_eq!(verdict, Err(Violation::Claim));
}

#[test]
fn a_token_of_another_pod_is_left_alone() {
    let gone = after(|it| it.pod = None);
    let replaced = after(|it| it.pod()["metadata"]["uid"] = json!("other"));
    let unnamed = after(|it| it.pod()["metadata"]["uid"] = json!(null));
    let renamed = after(|it| it.pod()["metadata"]["name"] = json!("vk-milan-6585c8c86-other"));

    for verdict in [gone, replaced, unnamed, renamed] {
        assert_eq!(verdict, Err(Violation::PodMissing));
    }
}

#[test]
fn a_pod_that_terminates_or_has_ended_is_left_alone() {
    let terminating = after(|it| {
        it.pod()["metadata"]["deletionTimestamp"] = json!("2026-11-21T07:15:28Z");
    });
    assert_eq!(terminating, Err(Violation::PodEnded));
    for phase in ["Succeeded", "Failed"] {
        let verdict = after(|it| it.pod()["status"]["phase"] = json!(phase));
        assert_eq!(verdict, Err(Violation::PodEnded), "{phase}");
    }
}

#[test]
fn a_pod_of_another_virtual_node_is_left_alone() {
    for label in [json!("naples"), json!(null)] {
        let verdict =
            after(|it| it.pod()["metadata"]["labels"]["liqo.io/virtual-node"] = label.clone());
        assert_eq!(verdict, Err(Violation::PodOwner), "{label}");
    }
}

#[test]
fn a_virtual_node_without_deployment_is_left_alone() {
    assert_eq!(after(|it| it.deployment = None), Err(Violation::PodOwner));
}

#[test]
fn a_pod_of_another_controller_is_left_alone() {
    for (field, value) in [
        ("apiVersion", json!("apps/v2")),
        ("apiVersion", json!("example.com/v1")),
        ("kind", json!("StatefulSet")),
        ("name", json!("vk-milan")),
        ("name", json!("vk-milan-6585c8c86-1")),
        ("name", json!("vk-naples-6585c8c86")),
        ("controller", json!(false)),
        ("controller", json!(null)),
    ] {
        let verdict = after(|it| it.pod()["metadata"]["ownerReferences"][0][field] = value.clone());
        assert_eq!(verdict, Err(Violation::PodOwner), "{field}: {value}");
    }
    let without = after(|it| it.pod()["metadata"]["ownerReferences"] = json!([]));
    assert_eq!(without, Err(Violation::PodOwner));
    let unlabelled = after(|it| it.pod()["metadata"]["labels"]["pod-template-hash"] = json!(null));
    assert_eq!(unlabelled, Err(Violation::PodOwner));
}

#[test]
fn a_pod_without_address_is_left_alone() {
    for address in [json!(null), json!(""), json!("milan")] {
        let verdict = after(|it| it.pod()["status"]["podIP"] = address.clone());
        assert_eq!(verdict, Err(Violation::PodAddressMissing), "{address}");
    }
}

#[test]
fn another_alternative_name_is_left_alone() {
    let verdict = after(|it| {
        it.request["spec"]["request"] = pem("milan", "10.244.0.6".parse().unwrap());
    });
    assert_eq!(verdict, Err(Violation::AlternativeNames(ADDRESS)));

    let moved = after(|it| it.pod()["status"]["podIP"] = json!("10.244.0.9"));
    let expected = Violation::AlternativeNames("10.244.0.9".parse().unwrap());
    assert_eq!(moved, Err(expected));
}

#[test]
fn other_usages_are_left_alone() {
    for usages in [
        json!([]),
        json!(["server auth"]),
        json!(["digital signature"]),
        json!(["digital signature", "server auth", "client auth"]),
        json!(["digital signature", "client auth"]),
        json!(["digital signature", "server auth", "server auth"]),
        json!(["digital signature", "server auth", "key encipherment"]),
        json!(["digital signature", "server auth", "any"]),
        json!(["digital signature", "server auth", "cert sign"]),
    ] {
        let verdict = after(|it| it.request["spec"]["usages"] = usages.clone());
        assert_eq!(verdict, Err(Violation::Usages), "{usages}");
    }
}

#[test]
fn an_rsa_key_may_also_encipher_keys() {
    let key = ClusterKey::from_pem(RSA_KEY.as_bytes()).unwrap();
    let request = encoded(&serving::create(&key, "milan", ADDRESS).unwrap());
    let verdict = |usages: Value| {
        after(|it| {
            it.request["spec"]["request"] = request.clone();
            it.request["spec"]["usages"] = usages;
        })
    };

    let further = json!(["digital signature", "key encipherment", "server auth"]);
    assert_eq!(verdict(further), Ok(()));
    assert_eq!(verdict(json!(["digital signature", "server auth"])), Ok(()));
    for usages in [
        json!([
            "key encipherment",
            "key encipherment",
            "digital signature",
            "server auth"
        ]),
        json!(["key encipherment", "server auth"]),
    ] {
        assert_eq!(verdict(usages), Err(Violation::Usages));
    }
}

#[test]
fn only_requests_of_service_accounts_that_wait_are_found_by_requester() {
    let found = |change: fn(&mut Value)| {
        let mut request = objects().request;
        change(&mut request);
        waiting_requester(&parsed(&request))
    };

    assert_eq!(found(|_| {}), ["peers/milan"]);
    assert_eq!(
        found(|it| it["spec"]["username"] = json!("system:node:x")),
        [""; 0]
    );
    let decided = found(|it| {
        it["status"] = json!({"conditions": [{"type": "Denied", "status": "True"}]});
    });
    assert_eq!(decided, [""; 0]);
}
