//! Objects of upstream v1.2 from two peered clusters, `milan` the provider and `rome` the consumer.

use super::context;
use crate::pod::forge::{self, HomeApiServer};
use crate::pod::status;
use control_api::offloading::virtual_node::OffloadingPatch;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// A pod of `rome`, its ShadowPod, and the status of the pod of `milan`.
type Case = BTreeMap<String, Value>;

fn cases() -> BTreeMap<String, Case> {
    let mut cases: BTreeMap<String, Case> =
        serde_json::from_str(include_str!("golden.json")).unwrap();
    for case in cases.values_mut() {
        case.values_mut().for_each(remove_null);
    }
    cases
}

/// Removes fields whose value is null, which is the same as their absence.
fn remove_null(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, it| !it.is_null());
            fields.values_mut().for_each(remove_null);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn local(case: &Case) -> Pod {
    serde_json::from_value(case["local"].clone()).unwrap()
}

/// Returns the ShadowPod that this project creates, as JSON.
fn forged(case: &Case, applies_changes: bool) -> Value {
    // Networking is on in the clusters whose pods have aliases.
    let has_aliases = case["shadow"]["spec"]["pod"]["hostAliases"].is_array();
    let addresses = [IpAddr::V4(Ipv4Addr::new(10, 70, 0, 1))];
    let count = if has_aliases { 1 } else { 0 };
    let namespace = case["shadow"]["metadata"]["namespace"].as_str().unwrap();
    let patch = OffloadingPatch::default();
    let context = forge::Context {
        namespace,
        creator: Some("milan-a8a4c692b93b"),
        api_server: HomeApiServer::Alias {
            port: 443,
            addresses: &addresses[..count],
        },
        applies_changes,
        ..context(&patch)
    };
    serde_json::to_value(forge::shadow_pod(&local(case), &context)).unwrap()
}

/// Exceptions: identity and status, which the API server and the provider write, the annotation with the UID of the pod, which
/// upstream lacks, and the annotation of `kubectl apply`, which upstream copies although it is about another object.
#[test]
fn shadow_pods_equal_upstreams() {
    for (name, case) in cases() {
        let mut expected = case["shadow"].clone();
        expected.as_object_mut().unwrap().remove("status");
        let metadata = expected["metadata"].as_object_mut().unwrap();
        for field in ["creationTimestamp", "generation", "resourceVersion", "uid"] {
            metadata.remove(field).unwrap();
        }
        if let Some(annotations) = metadata.get_mut("annotations") {
            let applied = "kubectl.kubernetes.io/last-applied-configuration";
            annotations.as_object_mut().unwrap().remove(applied);
        }
        metadata.retain(|key, value| key != "annotations" || *value != json!({}));

        let mut forged = forged(&case, false);
        let metadata = forged["metadata"].as_object_mut().unwrap();
        let annotations = metadata["annotations"].as_object_mut().unwrap();
        let uid = annotations.remove("liqo.io/pod-uid");
        assert_eq!(uid.as_ref(), Some(&case["local"]["metadata"]["uid"]));
        metadata.retain(|key, value| key != "annotations" || *value != json!({}));
        assert_eq!(forged, expected, "{name}");
    }
}

#[test]
fn an_ephemeral_container_is_the_only_difference_for_a_provider_that_runs_it() {
    let case = &cases()["bb, with an ephemeral container"];

    let mut forged_for_ours = forged(case, true);
    let pod = forged_for_ours["spec"]["pod"].as_object_mut().unwrap();
    let ephemeral = pod.remove("ephemeralContainers").unwrap();

    assert_eq!(ephemeral[0]["name"], "debugger-5dxjk");
    assert_eq!(forged_for_ours, forged(case, false));
}

/// Without exceptions: `rome` remaps 10.244.0.0/16 of `milan` to 10.71.0.0/16 once their networks are connected.
#[test]
fn statuses_equal_upstreams() {
    for (name, case) in cases() {
        let expected = &case["local"]["status"];
        let remote: PodStatus = serde_json::from_value(case["remote"]["status"].clone()).unwrap();
        let is_remapped = expected["podIP"].as_str().unwrap().starts_with("10.71.");
        let map_ip = |ip: IpAddr| match ip {
            IpAddr::V4(ip) if is_remapped => {
                let [_, _, c, d] = ip.octets();
                Some(IpAddr::V4(Ipv4Addr::new(10, 71, c, d)))
            }
            IpAddr::V4(_) | IpAddr::V6(_) => Some(ip),
        };
        let mut pod = local(&case);
        // The first status: only the QoS class exists.
        pod.status = Some(PodStatus {
            qos_class: pod.status.unwrap().qos_class,
            ..PodStatus::default()
        });
        // Upstream's virtual kubelet does not carry ephemeral containers.
        let spec = pod.spec.as_ref().unwrap();
        let is_carried = spec.ephemeral_containers.is_none();
        let context = status::Context {
            pod: &pod,
            map_ip: &map_ip,
            is_unavailable: false,
            host_ip: Some(expected["hostIP"].as_str().unwrap().parse().unwrap()),
            generation: is_carried.then_some(1),
            restarts: 0,
            reported: &BTreeSet::new(),
            now: Timestamp::UNIX_EPOCH,
        };

        let status = serde_json::to_value(status::local(&remote, &context)).unwrap();

        assert_eq!(&status, expected, "{name}");
    }
}

#[test]
fn the_key_and_the_name_of_the_secret_are_those_of_the_volume() {
    let case = &cases()["bb, with an ephemeral container"];
    let pod = local(case);

    let tokens = forge::token::tokens(&pod, forge::ApiServerSupport::TokenApi);
    let keys: Vec<_> = tokens.iter().map(forge::token::Token::key).collect();

    let volume = &case["shadow"]["spec"]["pod"]["volumes"][0];
    let secret = &volume["projected"]["sources"][0]["secret"];
    assert_eq!(keys, [secret["items"][0]["key"].as_str().unwrap()]);
    assert_eq!(
        forge::token::token_secret_name("bb"),
        secret["name"].as_str().unwrap()
    );
    assert_eq!(tokens[0].expiration_seconds, 3607);
    assert_eq!(tokens[0].audience, None);
}
