//! The two forms of Events, and Events of a hostile provider.

use crate::reflection::event::reflected_fields;
use k8s_openapi::api::core::v1::Event;
use proptest::prelude::*;
use serde_json::{Value, from_value, json};

fn reflected(event: &Value) -> Value {
    reflected_fields(&from_value::<Event>(event.clone()).unwrap())
}

/// As client libraries write Events since Kubernetes 1.19.
#[test]
fn an_event_with_a_series_has_its_count_and_times() {
    let event = json!({
        "metadata": {}, "involvedObject": {},
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
        "metadata": {}, "involvedObject": {},
        "reportingComponent": "controller-manager",
        "eventTime": "2026-11-21T07:20:00.123456Z",
    }));

    assert_eq!(event["count"], 1);
    assert_eq!(event["firstTimestamp"], event["lastTimestamp"]);
}

proptest! {
    /// The API server accepts the Event.
    #[test]
    fn fields_of_a_hostile_provider_are_bounded(
        texts in proptest::collection::vec(proptest::option::of(".{0,2000}"), 5),
        count in any::<Option<i32>>(),
        series in any::<Option<i32>>(),
    ) {
        let mut event = json!({
            "metadata": {},
            "involvedObject": {"name": texts[0], "fieldPath": texts[1]},
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

        prop_assert!(["Normal", "Warning"].contains(&event["type"].as_str().unwrap()));
        prop_assert!(event["count"].as_i64().unwrap() >= 1);
        let field = event["involvedObject"]["fieldPath"].as_str().unwrap_or_default();
        prop_assert!(field.len() <= 253);
        for (field, max) in [("reason", 128), ("message", 1024)] {
            let text = event[field].as_str().unwrap();
            prop_assert!(text.len() <= max);
            prop_assert!(!text.chars().any(|it| it.is_control() && it != '\n' && it != '\t'));
        }
        let component = event["source"]["component"].as_str().unwrap();
        prop_assert!(component.ends_with(" (remote)") && component.len() < 300);
    }
}
