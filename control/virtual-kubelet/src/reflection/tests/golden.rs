//! Objects of upstream v1.2 from two peered clusters, `rome` the consumer and `milan` the provider, with networking off
//! and on.
//!
//! Exceptions: names of namespaces, fields that the provider's API server sets, the annotation of `kubectl apply`, which upstream
//! copies although it is about another object, and objects of the namespace `bench-off`, whose local objects were deleted, and
//! which upstream had left at the provider.

use super::peering;
use crate::pod::forge::reflected_config_map_name;
use crate::reflection::endpointslice::{Endpoints, Location};
use crate::reflection::token::{Token, TokenKey, TokenSecret, TokenSpec};
use crate::reflection::{configmap, endpointslice, ingress, secret, service, token};
use k8s_openapi::api::core::v1::{Pod, Secret};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn cases() -> BTreeMap<String, Value> {
    serde_json::from_str(include_str!("golden.json")).unwrap()
}

fn parse<K: DeserializeOwned>(value: &Value) -> K {
    serde_json::from_value(value.clone()).unwrap()
}

/// Compares the remote objects of a kind with those that `remote` computes of the local ones; returns their number.
fn compare(
    case: &Value,
    kind: &str,
    remote_name: impl Fn(&str) -> String,
    remote: impl Fn(&Value) -> Value,
) -> usize {
    let mut compared = 0;
    for local in case[kind]["local"].as_array().unwrap() {
        let name = remote_name(local["metadata"]["name"].as_str().unwrap());
        let namespace = &case["mapping"][local["metadata"]["namespace"].as_str().unwrap()];
        let remotes = case[kind]["remote"].as_array().unwrap().iter();
        let mut remotes = remotes.filter(|it| {
            it["metadata"]["name"] == name && it["metadata"]["namespace"] == *namespace
        });
        let mut expected = remotes.next().unwrap().clone();
        expected["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("namespace");
        if let Some(spec) = expected.get_mut("spec").and_then(Value::as_object_mut) {
            spec.retain(|field, _| !["clusterIP", "clusterIPs", "ipFamilies"].contains(&&**field));
        }
        expected.as_object_mut().unwrap().remove("status");
        if let Some(annotations) = expected["metadata"].get_mut("annotations") {
            let applied = "kubectl.kubernetes.io/last-applied-configuration";
            annotations.as_object_mut().unwrap().remove(applied);
        }
        let metadata = expected["metadata"].as_object_mut().unwrap();
        metadata.retain(|key, value| key != "annotations" || *value != json!({}));

        assert_eq!(remote(local), expected);
        compared += 1;
    }

    compared
}

#[test]
fn services_equal_upstreams() {
    let mut compared = 0;
    for case in cases().values() {
        compared += compare(case, "services", str::to_owned, |local| {
            json!(service::remote(&parse(local), &peering(), None))
        });
    }
    assert_eq!(compared, 3);
}

#[test]
fn ingresses_equal_upstreams_without_the_class_of_this_cluster() {
    let mut compared = 0;
    for case in cases().values() {
        compared += compare(case, "ingresses", str::to_owned, |local| {
            assert_eq!(local["spec"]["ingressClassName"], "nginx");
            json!(ingress::remote(&parse(local), &peering(), None))
        });
    }
    assert_eq!(compared, 2);
}

#[test]
fn config_maps_equal_upstreams_with_the_name_of_the_root_ca() {
    let mut compared = 0;
    for case in cases().values() {
        let name = |name: &str| reflected_config_map_name(name, "rome");
        compared += compare(case, "configmaps", name, |local| {
            json!(configmap::remote(&parse(local), &peering()))
        });
    }
    assert_eq!(compared, 4);
}

#[test]
fn secrets_equal_upstreams() {
    let mut compared = 0;
    for case in cases().values() {
        compared += compare(case, "secrets", str::to_owned, |local| {
            json!(secret::remote(&parse(local), &peering()).unwrap())
        });
    }
    assert_eq!(compared, 2);
}

#[test]
fn shadow_endpoint_slices_equal_upstreams() {
    let mut compared = 0;
    for case in cases().values() {
        let nodes = case["nodes"].as_array().unwrap();
        let locate = |name: &str| {
            let node = nodes.iter().find(|it| it["metadata"]["name"] == name);
            let labels = node.map(|it| &it["metadata"]["labels"]);
            match labels.map(|it| (it, &it["liqo.io/type"])) {
                Some((labels, type_)) if type_ == "virtual-node" => {
                    Location::Remote(labels["liqo.io/remote-cluster-id"].as_str().unwrap())
                }
                Some(_) => Location::Local,
                None => Location::Unknown,
            }
        };
        let context = Endpoints {
            pod_cidrs: &["10.244.0.0/16".parse().unwrap()],
            locate: &locate,
            own_address: &|_, _| None,
            translate: &|_| None,
            is_direct: false,
        };
        compared += compare(case, "endpointslices", str::to_owned, |local| {
            let mut remote = json!(endpointslice::remote(&parse(local), &peering(), &context));
            let endpoints = remote.pointer_mut("/spec/template/endpoints");
            let endpoints = endpoints.and_then(Value::as_array_mut);
            for endpoint in endpoints.into_iter().flatten() {
                // Upstream reflects `ready` only.
                let conditions = endpoint["conditions"].as_object_mut().unwrap();
                assert!(conditions.remove("serving").is_some());
                assert!(conditions.remove("terminating").is_some());
            }
            remote
        });
    }
    assert_eq!(compared, 3);
}

#[test]
fn secrets_with_tokens_equal_upstreams() {
    let mut compared = 0;
    for case in cases().values() {
        let remotes = case["secrets"]["remote"].as_array().unwrap().iter();
        for expected in
            remotes.filter(|it| it["metadata"]["name"].as_str().unwrap().ends_with("-token"))
        {
            let annotations = &expected["metadata"]["annotations"];
            let pods = case["pods"].as_array().unwrap().iter();
            let mut pods = pods.filter(|it| {
                it["metadata"]["uid"]
                    == annotations["offloading.liqo.io/service-account-for-pod-uid"]
            });
            let pod: Pod = parse(pods.next().unwrap());
            let data = parse::<Secret>(expected).data.unwrap();
            let (key, value) = data.first_key_value().unwrap();
            let spec = TokenSpec {
                audience: None,
                expiration_seconds: 3607,
            };
            let desired = TokenSecret {
                name: format!("{}-token", pod.metadata.name.as_ref().unwrap()),
                tokens: vec![TokenKey {
                    key: key.clone(),
                    token: spec.clone(),
                }],
            };
            let expiration = &annotations["offloading.liqo.io/service-account-expiration"];
            let issued = Token {
                value: String::from_utf8(value.0.clone()).unwrap(),
                expiration: expiration.as_str().unwrap().parse().unwrap(),
            };
            let peering = peering();
            let tokens = BTreeMap::from([(spec, issued)]);
            let mut remote =
                json!(token::remote(&pod, &desired, &tokens, (&peering, "milan")).unwrap());
            remote["metadata"]["namespace"] = expected["metadata"]["namespace"].clone();

            assert_eq!(remote, *expected);
            compared += 1;
        }
    }
    assert_eq!(compared, 3);
}
