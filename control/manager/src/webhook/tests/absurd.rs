//! Bodies that no API server sends. A panic would end the process.

use super::fixture::{cache, decide, offloaded};
use crate::webhook::handler::Handler;
use crate::webhook::review::{Operation, Request, Review, UserInfo};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn a_body_that_is_no_review_is_refused_with_its_fault() {
    let deep = "[".repeat(100_000);
    let nested = format!(r#"{{"apiVersion": {deep}"#);
    for (body, fault) in [
        ("", "decode"),
        ("null", "decode"),
        ("[]", "decode"),
        (deep.as_str(), "decode"),
        (nested.as_str(), "decode"),
        (r#"{"apiVersion":"v1","kind":"Pod"}"#, "Pod of v1"),
        (
            r#"{"apiVersion":"admission.k8s.io/v2","kind":"AdmissionReview"}"#,
            "v2",
        ),
        (
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
            "request is missing",
        ),
        (
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"EAT"}}"#,
            "decode",
        ),
    ] {
        let error = Review::parse(body.as_bytes()).err().unwrap().to_string();
        assert!(error.contains(fault), "{error}");
    }
}

#[test]
fn the_response_has_the_version_and_the_uid_of_the_request_and_a_patch_in_base64() {
    use base64::Engine as _;

    for version in ["v1", "v1beta1"] {
        let body = json!({
            "apiVersion": format!("admission.k8s.io/{version}"),
            "kind": "AdmissionReview",
            "request": {
                "uid": "705ab4f5", "operation": "CREATE", "namespace": "shop",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "object": {"spec": {}}, "oldObject": null, "options": {"kind": "CreateOptions"},
            },
        });
        let cache = offloaded(
            json!({"podOffloadingStrategy": "LocalAndRemote"}),
            Value::Null,
        );

        let review = Review::parse(body.to_string().as_bytes()).unwrap();
        let (review, _) = review.decide(|request| decide(Handler::MutatePod, request, &cache));

        assert_eq!(review["apiVersion"], body["apiVersion"]);
        assert_eq!(review["kind"], "AdmissionReview");
        let response = &review["response"];
        assert_eq!(response["uid"], "705ab4f5");
        assert_eq!(response["allowed"], true);
        assert_eq!(response["patchType"], "JSONPatch");
        let patch = response["patch"].as_str().unwrap();
        let patch = base64::engine::general_purpose::STANDARD
            .decode(patch)
            .unwrap();
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        assert_eq!(patch[0]["path"], "/spec/tolerations");
    }
}

#[test]
fn a_refusal_has_a_status_with_a_bounded_message() {
    let body = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "1", "operation": "CREATE", "namespace": "ö".repeat(10_000), "object": {}},
    });

    let review = Review::parse(body.to_string().as_bytes()).unwrap();
    let (review, _) = review.decide(|request| decide(Handler::MutatePod, request, &cache()));

    let response = &review["response"];
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 403);
    assert!(response["status"]["message"].as_str().unwrap().len() <= 1024);
}

proptest! {
    #[test]
    fn no_object_makes_a_webhook_panic(
        object in absurd(),
        old_object in absurd(),
        is_update in any::<bool>(),
        username in "\\PC{0,80}",
    ) {
        let cache = offloaded(
            json!({"podOffloadingStrategy": "Remote"}),
            json!({"liqo.io/repatriation": "never"}),
        );
        let request = Request {
            uid: "1".to_owned(),
            operation: if is_update { Operation::Update } else { Operation::Create },
            namespace: "shop".to_owned(),
            user_info: UserInfo { username },
            object,
            old_object,
        };
        for handler in Handler::ALL {
            decide(handler, &request, &cache);
        }
    }
}

/// Any JSON, with the names of fields that the webhooks read.
fn absurd() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z]{0,3}|Exists|NoExecute|liqo|liqo.io/type|true".prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "metadata",
        "labels",
        "annotations",
        "liqo.io/creator-user",
        "deletionTimestamp",
        "spec",
        "pod",
        "template",
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
        "preference",
        "nodeSelectorTerms",
        "matchExpressions",
        "matchFields",
        "key",
        "operator",
        "effect",
        "tolerations",
        "containers",
        "initContainers",
        "resources",
        "nodeSelector",
        "liqo.io/type",
        "runtimeClassName",
    ]);
    leaf.prop_recursive(10, 200, 6, move |inner| {
        let name = name.clone().prop_map(str::to_owned);
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            3 => prop::collection::btree_map(name, inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}
