use crate::pod::forge::{Context, Metadata, metadata};
use crate::pod::tests::{context, pod};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

fn with_labels(labels: &[(&str, &str)]) -> Pod {
    let mut pod = pod(&json!({}), &json!({"note": "1", "secret-note": "2"}));
    let labels = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    pod.metadata.labels = Some(labels.collect());
    pod
}

fn labels(metadata: &Metadata) -> Vec<(&str, &str)> {
    let labels = metadata.labels.iter();
    labels
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

const MARKERS: [(&str, &str); 3] = [
    ("offloading.liqo.io/destination", "milan"),
    ("offloading.liqo.io/nodename", "milan"),
    ("offloading.liqo.io/origin", "rome"),
];

#[test]
fn labels_of_this_cluster_only_are_not_reflected() {
    let pod = with_labels(&[
        ("app", "web"),
        ("liqo.io/shadowPod", "true"),
        ("liqo.io/remote-unavailable", "true"),
        ("liqo.io/creator-user", "another-user"),
    ]);

    let metadata = metadata(&pod, &context(&super::patch(json!({}))));

    assert_eq!(
        labels(&metadata),
        [&[("app", "web")][..], &MARKERS].concat()
    );
}

#[test]
fn the_creator_is_a_label_if_a_label_can_have_its_name() {
    let pod = with_labels(&[("liqo.io/creator-user", "another-user")]);
    let patch = super::patch(json!({}));
    let of = |creator: &str| {
        let context = Context {
            creator: Some(creator),
            ..context(&patch)
        };
        metadata(&pod, &context)
            .labels
            .remove("liqo.io/creator-user")
    };

    let longest = "a".repeat(63);
    for name in ["milan-a8a4c692b93b", "a", "A.b_c-9", &longest] {
        assert_eq!(of(name).as_deref(), Some(name));
    }
    let too_long = "a".repeat(64);
    for name in [
        "",
        "-a",
        "a-",
        "system:serviceaccount:a:b",
        "ä",
        "aäb",
        &too_long,
    ] {
        assert_eq!(of(name), None, "{name}");
    }
}

#[test]
fn annotations_of_providers_and_of_kubectl_are_not_reflected() {
    let mut pod = with_labels(&[]);
    let annotations = pod.metadata.annotations.get_or_insert_default();
    for key in [
        "liqo.io/applies-changes",
        "liqo.io/change-refused",
        "kubectl.kubernetes.io/last-applied-configuration",
    ] {
        annotations.insert(key.to_owned(), "x".to_owned());
    }

    let metadata = metadata(&pod, &context(&super::patch(json!({}))));

    let annotations: Vec<_> = metadata.annotations.keys().collect();
    assert_eq!(annotations, ["note", "secret-note"]);
}

#[test]
fn keys_of_the_patch_are_not_reflected() {
    let pod = with_labels(&[("app", "web"), ("team", "a")]);
    let patch = super::patch(json!({
        "annotationsNotReflected": ["secret-note"],
        "labelsNotReflected": ["team"],
    }));

    let metadata = metadata(&pod, &context(&patch));

    assert_eq!(
        labels(&metadata),
        [&[("app", "web")][..], &MARKERS].concat()
    );
    let annotations: Vec<_> = metadata.annotations.keys().collect();
    assert_eq!(annotations, ["note"]);
}

#[test]
fn neither_the_pod_nor_the_patch_changes_the_markers() {
    let pod = with_labels(&[
        ("offloading.liqo.io/origin", "naples"),
        ("offloading.liqo.io/destination", "naples"),
        ("offloading.liqo.io/nodename", "naples"),
    ]);
    let keys = MARKERS.map(|(key, _)| key);
    let patch = super::patch(json!({"labelsNotReflected": keys}));

    let metadata = metadata(&pod, &context(&patch));

    assert_eq!(labels(&metadata), MARKERS);
}
