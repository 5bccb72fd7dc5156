//! Finds Events. PURE.

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::jiff::Timestamp;

/// An object that Events are about.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    pub(super) kind: &'a str,
    /// UID, by which Events of an earlier object of the same name are left out.
    pub(super) uid: Option<&'a str>,
}

impl<'a> About<'a> {
    /// Returns the Events about a pod.
    pub(super) fn pod(pod: &'a Pod) -> Self {
        Self {
            kind: "Pod",
            uid: pod.metadata.uid.as_deref(),
        }
    }
}

/// Returns reason and message of the newest warning about an object that has one of the reasons, or any if there are none.
pub(super) fn newest(events: &[Event], about: About<'_>, reasons: &[&str]) -> Option<String> {
    let is_about = |event: &&Event| {
        let object = &event.involved_object;
        let uids = (object.uid.as_deref(), about.uid);
        let is_other = matches!(uids, (Some(one), Some(other)) if one != other);
        object.kind.as_deref() == Some(about.kind) && !is_other
    };
    let has_reason = |event: &&Event| {
        let reason = event.reason.as_deref().unwrap_or_default();
        reasons.is_empty() || reasons.contains(&reason)
    };
    let warnings = events
        .iter()
        .filter(|it| it.type_.as_deref() == Some("Warning"));
    let newest = warnings
        .filter(is_about)
        .filter(has_reason)
        .max_by_key(|it| time(it))?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();

    Some(format!(
        "{}: {}",
        text(&newest.reason),
        text(&newest.message)
    ))
}

/// Returns when an Event was observed last.
fn time(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref();
    let series = series.and_then(|it| it.last_observed_time.as_ref());
    let micro = series.or(event.event_time.as_ref()).map(|it| it.0);
    let last = event.last_timestamp.as_ref().map(|it| it.0);

    micro.max(last)
}
