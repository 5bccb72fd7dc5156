//! Shows the objects that the virtual kubelets could not reflect, by their Events.
//!
//! The Events are the one place that has all causes: the provider has another object of the name, another field manager changes
//! the reflected one, the provider refuses it, or does not know its kind. A virtual kubelet repeats the Event of a conflict every
//! 30 minutes, so the Event exists as long as the conflict does.

use super::boxes::Item;
use crate::cluster::Cluster;
use crate::failure::is_forbidden;
use anyhow::Result;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Reason of the Events.
const REASON: &str = "FailedReflection";

/// Events that are read.
const EVENTS_MAX: u32 = 500;

/// Objects that boxes show.
const SHOWN_MAX: usize = 10;

/// Longest cause in a box, in characters.
const CAUSE_LEN_MAX: usize = 300;

/// An object that was not reflected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unreflected {
    kind: String,
    namespace: String,
    name: String,
    cause: String,
    /// When the Event was observed last.
    at: Option<Timestamp>,
}

/// Returns the objects with such Events, which Kubernetes keeps for an hour; none if the user may not list Events.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(super) async fn find(cluster: &Cluster) -> Result<Vec<Unreflected>> {
    let api = Api::<Event>::all(cluster.client.clone());
    let selector = format!("reason={REASON}");
    let params = ListParams::default().fields(&selector).limit(EVENTS_MAX);
    match api.list(&params).await {
        Ok(events) => Ok(newest(events.items)),
        Err(error) if is_forbidden(&error) => Ok(Vec::new()),
        Err(error) => Err(cluster.failed("list Events")(error)),
    }
}

/// Returns the newest Event of each object.
fn newest(events: Vec<Event>) -> Vec<Unreflected> {
    let mut objects = BTreeMap::<_, Unreflected>::new();
    for event in events.into_iter().map(Unreflected::of) {
        let key = (
            event.namespace.clone(),
            event.kind.clone(),
            event.name.clone(),
        );
        let known = objects.get(&key);
        if known.is_none_or(|known| known.at < event.at) {
            objects.insert(key, event);
        }
    }

    objects.into_values().collect()
}

impl Unreflected {
    fn of(event: Event) -> Self {
        let object = event.involved_object;
        let series = event.series.and_then(|it| it.last_observed_time);
        let micro = series.or(event.event_time).map(|it| it.0);
        Self {
            kind: object.kind.unwrap_or_default(),
            namespace: object.namespace.unwrap_or_default(),
            name: object.name.unwrap_or_default(),
            cause: event.message.unwrap_or_default(),
            at: micro.max(event.last_timestamp.map(|it| it.0)),
        }
    }

    fn item(&self) -> Item {
        let object = format!("{} {}/{}", self.kind, self.namespace, self.name);
        let cause = self.cause.chars();
        let cause = cause.map(|it| if it.is_control() { ' ' } else { it });
        let mut lines = vec![Item::Line(cause.take(CAUSE_LEN_MAX).collect())];
        if let Some(at) = self.at {
            lines.push(Item::entry("Last seen", at.to_string()));
        }
        Item::section(object, lines)
    }
}

/// Returns the objects for `-o` and `--get`.
pub(super) fn value(found: &[Unreflected]) -> Value {
    let of = |it: &Unreflected| {
        json!({
            "kind": it.kind,
            "namespace": it.namespace,
            "name": it.name,
            "cause": it.cause,
            "lastSeen": it.at.map(|at| at.to_string()),
        })
    };
    found.iter().map(of).collect()
}

/// Returns the first objects for boxes.
pub(super) fn items(found: &[Unreflected]) -> Vec<Item> {
    let mut items: Vec<_> = found
        .iter()
        .take(SHOWN_MAX)
        .map(Unreflected::item)
        .collect();
    if let Some(more) = found.len().checked_sub(SHOWN_MAX).filter(|it| *it > 0) {
        items.push(Item::Line(format!(
            "and {more} more: kubectl get events -A --field-selector reason={REASON}"
        )));
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::info::boxes::draw;

    fn event(name: &str, message: &str, seconds: u32) -> Event {
        let event = json!({
            "metadata": {"name": format!("{name}.{seconds}")},
            "reason": REASON,
            "message": message,
            "involvedObject": {"kind": "ConfigMap", "namespace": "shop", "name": name},
            "eventTime": "2026-11-27T10:00:00.000000Z",
            "series": {"count": 2, "lastObservedTime": format!("2026-11-27T10:00:{seconds:02}.000000Z")},
        });
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn each_object_is_shown_once_with_its_newest_event() {
        let events = vec![
            event("web", "first\x1b[31m", 1),
            event("api", "other", 5),
            event("web", "second", 3),
            event("web", "between", 2),
        ];

        let found = newest(events);

        let text = draw("Objects", &items(&found));
        let at = |text_part: &str| text.find(text_part).unwrap_or_else(|| panic!("{text}"));
        assert!(at("ConfigMap shop/api") < at("ConfigMap shop/web"));
        assert!(text.contains("second") && !text.contains("first"));
        assert!(text.contains("Last seen: 2026-11-27T10:00:03Z"), "{text}");
        assert_eq!(value(&found)[1]["cause"], "second");
    }

    #[test]
    fn many_objects_are_counted_and_terminals_receive_no_control_characters() {
        let events = (0..15).map(|it| event(&format!("web-{it:02}"), "a\x1b[31m", 1));

        let found = newest(events.collect());

        let text = draw("Objects", &items(&found));
        assert!(text.contains("web-09") && !text.contains("web-10"));
        assert!(
            text.contains("and 5 more") && !text.contains('\x1b'),
            "{text}"
        );
    }
}
