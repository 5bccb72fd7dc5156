//! The two forms of Events, and Events of a hostile provider.

use crate::reflection::event::RemoteEvent;
use control_runtime::Key;
use k8s_openapi::api::core::v1::Event;
use proptest::prelude::*;
use serde_json::{Value, from_value, json};

fn remote(event: &Value) -> RemoteEvent {
    let mut event = event.clone();
    event["metadata"] = json!({"name": "web.1", "namespace": "shop-rome", "uid": "e"});
    event["involvedObject"]["kind"] = json!("ShadowPod");
    RemoteEvent::of(from_value::<Event>(event).unwrap())
}

fn reflected(event: &Value) -> Value {
    remote(event).reflected(&Key::new("shop", "web"), "u")
}

/// As client libraries write Events since Kubernetes 1.19.
#[test]
fn an_event_with_a_series_has_its_count_and_times() {
    let event = json!({
        "reportingComponent": "controller-manager",
        "reportingInstance": "controller-manager-1",
        "eventTime": "2026-11-21T07:20:00.123456Z",
        "series": {"count": 7, "lastObservedTime": "2026-11-21T07:25:00.654321Z"},
        "count": null,
    });
    let event = reflected(&event);

    assert_eq!(
        event["source"],
        json!({"component": "controller-manager (remote)"})
    );
    assert_eq!(event["count"], 7);
    assert_eq!(event["firstTimestamp"], "2026-11-21T07:20:00Z");
    assert_eq!(event["lastTimestamp"], "2026-11-21T07:25:00Z");
    for field in ["eventTime", "series", "reportingComponent"] {
        assert_eq!(event[field], Value::Null, "{field} needs further fields");
    }
}

#[test]
fn an_event_that_occurred_once_has_its_time() {
    let event = reflected(&json!({
        "reportingComponent": "controller-manager",
        "eventTime": "2026-11-21T07:20:00.123456Z",
    }));

    assert_eq!(event["count"], 1);
    assert_eq!(event["firstTimestamp"], event["lastTimestamp"]);
}

#[test]
fn events_of_a_pod_have_different_names_and_keep_theirs() {
    let pod = Key::new("shop", "w".repeat(253));
    let event = remote(&json!({}));
    let name = event.name(&pod, "u");

    assert_eq!(name, remote(&json!({"count": 2})).name(&pod, "u"));
    assert_ne!(name, event.name(&pod, "another"));
    assert_eq!(name.len(), 253);

    let cut = Key::new("shop", format!("{}--{}", "w".repeat(235), "w".repeat(16)));
    let expected = format!("{}.", "w".repeat(235));
    let name = event.name(&cut, "u");
    assert!(name.starts_with(&expected) && name.len() == 252, "{name}");
}

proptest! {
    /// The API server accepts the Event: its fields are those of the pod, and bounded.
    #[test]
    fn no_event_of_the_provider_is_about_another_object(
        texts in proptest::collection::vec(proptest::option::of(".{0,2000}"), 5),
        count in any::<Option<i32>>(),
        series in any::<Option<i32>>(),
    ) {
        let mut event = json!({
            "involvedObject": {"name": texts[0], "namespace": texts[1]},
            "reason": texts[2],
            "message": texts[3],
            "type": texts[4],
            "source": {"component": texts[1]},
            "count": count,
        });
        if series.is_some() {
            event["series"] = json!({"count": series});
        }
        let event = reflected(&event);

        let pod = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web", "uid": "u"});
        prop_assert_eq!(&event["involvedObject"], &pod);
        prop_assert!(["Normal", "Warning"].contains(&event["type"].as_str().unwrap()));
        prop_assert!(event["count"].as_i64().unwrap() >= 1);
        for (field, max) in [("reason", 128), ("message", 1024)] {
            let text = event[field].as_str().unwrap();
            prop_assert!(text.len() <= max);
            prop_assert!(!text.chars().any(|it| it.is_control() && it != '\n' && it != '\t'));
        }
        let component = event["source"]["component"].as_str().unwrap();
        prop_assert!(component.ends_with(" (remote)") && component.len() < 300);
    }
}
