//! The links at the provider.

use super::fixture::{
    broken, facts, found, link, of, pod, remote, serving, shadow, warning, with_counterparts,
};
use crate::commands::info::pod::Report;
use crate::commands::info::pod::chain::Chain;
use crate::commands::info::pod::facts::{Facts, Provider, Read};
use crate::commands::info::pod::link::State;
use serde_json::{Value, json};

const LOCAL: (&str, &str, &str) = ("Pod", "web", "local-uid");
const SHADOW: (&str, &str, &str) = ("ShadowPod", "web", "shadow-uid");
const REMOTE: (&str, &str, &str) = ("Pod", "web", "remote-uid");

#[test]
fn a_provider_that_does_not_respond_leaves_what_this_cluster_knows() {
    let facts = Facts {
        provider: Provider::Unreachable("the connection timed out".to_owned()),
        ..facts()
    };

    let (name, reason) = broken(&facts);

    assert_eq!(name, "provider");
    assert!(reason.starts_with("the connection timed out; "), "{reason}");
    let shadow = link(&facts, "shadowPod");
    assert_eq!(shadow.shown().1, State::Unknown);
    assert!(shadow.find("created").is_some(), "by the label of the pod");
    assert_eq!(link(&facts, "remotePod").shown().1, State::Unknown);
    assert_eq!(link(&facts, "pod").find("phase"), Some("Running"));
    assert_eq!(
        link(&facts, "network").find("addressHere"),
        Some("10.71.1.7")
    );
    assert_eq!(link(&facts, "namespace").shown().1, State::Whole);
}

#[test]
fn credentials_that_may_not_be_read_leave_the_chain_unknown() {
    let facts = Facts {
        provider: Provider::NotUsable("request this right".to_owned()),
        ..facts()
    };
    let report = Report(Chain::of(&facts));

    let error = report.check().unwrap_err().to_string();
    assert!(
        error.contains("is unknown from: Provider milan: request this right"),
        "{error}"
    );
}

#[test]
fn tokens_that_are_not_reflected_break_the_chain_before_the_shadow_pod_exists() {
    let failure = (
        "FailedSATokensReflection",
        "tokens are not reflected to cluster milan",
    );
    let mut facts = with_counterparts(|it| {
        it.shadow = Read::Absent;
        it.pod = Read::Absent;
    });
    let (name, _) = broken(&facts);
    assert_eq!(name, "shadowPod", "without an Event");

    facts.events = vec![of(warning(LOCAL, failure, 1))];
    let (name, reason) = broken(&facts);
    assert_eq!(name, "tokens");
    assert!(reason.ends_with("to cluster milan"), "{reason}");

    // The pod no longer waits for them.
    let created = Facts {
        events: facts.events,
        ..super::fixture::facts()
    };
    assert_eq!(Chain::of(&created).end(), None);
    assert!(link(&created, "tokens").find("lastFailure").is_some());
}

#[test]
fn the_newest_refusal_of_the_shadow_pod_is_shown() {
    let mut facts = with_counterparts(|it| {
        it.shadow = Read::Absent;
        it.pod = Read::Absent;
    });
    let refusal = |message, second| of(warning(LOCAL, ("FailedReflection", message), second));
    let earlier = warning(("Pod", "web", "earlier-uid"), ("FailedReflection", "x"), 9);
    facts.events = vec![
        refusal("old", 1),
        refusal("new", 3),
        refusal("older", 2),
        of(earlier),
    ];

    let (name, reason) = broken(&facts);

    assert_eq!(
        (name, reason.as_str()),
        ("shadowPod", "FailedReflection: new")
    );
}

#[test]
fn an_exceeded_quota_is_named_at_the_shadow_pod() {
    let message = "cpu is exceeded: the pod requests 4, and 0.5 of 2 are left";
    let refused = |event: Value| {
        with_counterparts(|it| {
            it.pod = Read::Absent;
            it.events = found(json!([event]));
        })
    };

    let (name, reason) = broken(&refused(warning(SHADOW, ("FailedCreatePod", message), 1)));
    assert_eq!(name, "shadowPod");
    assert_eq!(reason, format!("FailedCreatePod: {message}"));

    let other = ("ShadowPod", "web", "earlier-uid");
    let facts = refused(warning(other, ("FailedCreatePod", message), 1));
    let (name, reason) = broken(&facts);
    assert_eq!(name, "remotePod", "the Event is of an earlier ShadowPod");
    assert!(reason.contains("has not created it"), "{reason}");
}

#[test]
fn a_shadow_pod_of_another_cluster_or_node_is_not_of_the_pod() {
    for label in ["offloading.liqo.io/origin", "offloading.liqo.io/nodename"] {
        let mut other = shadow();
        other["metadata"]["labels"][label] = "other".into();
        let (name, reason) = broken(&with_counterparts(|it| it.shadow = found(other)));

        assert_eq!(name, "shadowPod");
        assert!(reason.contains("is not of this pod"), "{reason}");
    }
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({
        "phase": "Pending",
        "containerStatuses": [{
            "name": "web", "image": "web:1", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason, "message": message}},
        }],
    })
}

#[test]
fn a_remote_pod_that_does_not_serve_has_a_reason() {
    let unscheduled = json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"},
    ]});
    let mut unready = serving();
    unready["conditions"][0] = json!({"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "[web]"});
    for (status, expected) in [
        (
            waiting("ImagePullBackOff", "pull access denied"),
            "ImagePullBackOff: pull access denied",
        ),
        (waiting("ContainerCreating", ""), "it has not started yet"),
        (unscheduled, "0/2 nodes are available"),
        (unready, "it is not ready: ContainersNotReady [web]"),
        (
            json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}),
            "it has failed: Evicted low on memory",
        ),
    ] {
        let facts = with_counterparts(|it| it.pod = found(remote(&status)));
        let (name, reason) = broken(&facts);

        assert_eq!(name, "remotePod");
        assert!(reason.contains(expected), "{expected}\n{reason}");
    }
}

#[test]
fn a_remote_pod_that_is_being_created_has_its_newest_warning() {
    let facts = with_counterparts(|it| {
        it.pod = found(remote(&waiting("ContainerCreating", "")));
        let mount = ("FailedMount", "secret web-token not found");
        it.events = found(json!([warning(REMOTE, mount, 1)]));
    });

    let (name, reason) = broken(&facts);

    assert_eq!(name, "remotePod");
    assert_eq!(reason, "FailedMount: secret web-token not found");
}

#[test]
fn a_pod_that_has_ended_needs_no_counterparts() {
    let mut pod = pod();
    pod["status"]["phase"] = "Succeeded".into();
    let facts = Facts {
        pod: of(pod),
        ..with_counterparts(|it| {
            it.shadow = Read::Absent;
            it.pod = Read::Absent;
        })
    };

    assert_eq!(Chain::of(&facts).end(), None);
}

#[test]
fn an_object_that_may_not_be_read_is_unknown() {
    let facts = with_counterparts(|it| it.pod = Read::Failed("pods is forbidden".to_owned()));

    let remote = link(&facts, "remotePod");

    assert_eq!(
        remote.shown(),
        ("remotePod", State::Unknown, "pods is forbidden")
    );
    assert!(Report(Chain::of(&facts)).check().is_err());
}

#[test]
fn texts_of_the_provider_control_no_terminal() {
    let hostile = "\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\nERRO: fake";
    let facts = with_counterparts(|it| {
        it.version = hostile.to_owned();
        let mut shadow = shadow();
        shadow["metadata"]["labels"]["liqo.io/creator-user"] = hostile.into();
        it.shadow = found(shadow);
        let mut pod = remote(&waiting(hostile, &hostile.repeat(1000)));
        pod["spec"]["nodeName"] = hostile.into();
        pod["status"]["podIP"] = hostile.into();
        it.pod = found(pod);
    });
    let report = Report(Chain::of(&facts));

    let error = report.check().unwrap_err().to_string();
    let boxes = report.boxes();
    let is_hostile = |it: char| it.is_control() && it != '\n' || it == '\u{202e}';
    assert!(
        !error.contains(is_hostile) && !error.contains('\n'),
        "{error:?}"
    );
    assert!(!boxes.contains(is_hostile), "{boxes:?}");
    assert!(boxes.lines().all(|line| line.starts_with(['┌', '|', '└'])));
    assert!(error.len() < 3 * 1024, "messages are cut");
    let mut texts = Vec::new();
    collect(&report.value(), &mut texts);
    assert!(
        texts.iter().any(|it| it.contains("owned")),
        "they are shown"
    );
    assert!(
        texts
            .iter()
            .all(|it| !it.contains(is_hostile) && !it.contains('\n'))
    );
}

fn collect(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|it| collect(it, texts)),
        Value::Object(fields) => fields.values().for_each(|it| collect(it, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
