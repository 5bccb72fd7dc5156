//! The fields of an Event that are reflected.

use crate::pod::status::cut;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// Limits of Kubernetes for new Events, in bytes.
const MESSAGE_LEN_MAX: usize = 1024;
const REASON_LEN_MAX: usize = 128;

/// Longest name of an object, of a component and of a field that is reflected, in bytes.
pub(super) const NAME_LEN_MAX: usize = 253;

/// The fields of an Event that are reflected. Both forms of Events have them: with a series, and with a count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Content {
    pub(super) is_warning: bool,
    pub(super) reason: String,
    pub(super) message: String,
    component: String,
    count: i32,
    /// Times in seconds since 1970.
    first: Option<i64>,
    last: Option<i64>,
    /// Part of the object, such as `spec.containers{web}`.
    field: Option<String>,
}

/// End of the component that has reported an Event of the provider, as upstream's.
const REMOTE: &str = " (remote)";

impl Content {
    /// Reads the fields of an Event. Texts are bounded, because the provider may be hostile.
    pub(super) fn of(event: &Event) -> Self {
        let text = |text: Option<&String>, max: usize| cut(text.map_or("", String::as_str), max);
        let series = event.series.as_ref();
        let seconds = |it: Timestamp| it.as_second();
        let at = event.event_time.as_ref().map(|it| seconds(it.0));
        let time = |it: Option<&Time>| it.map(|it| seconds(it.0));
        let source = event.source.as_ref();
        let component = source.and_then(|it| it.component.as_ref());
        let component = component.filter(|it| !it.is_empty());
        let observed = series.and_then(|it| it.last_observed_time.as_ref());
        let count = series.and_then(|it| it.count).or(event.count);
        let field = event.involved_object.field_path.as_ref();

        Self {
            is_warning: event.type_.as_deref() != Some("Normal"),
            reason: text(event.reason.as_ref(), REASON_LEN_MAX),
            message: text(event.message.as_ref(), MESSAGE_LEN_MAX),
            component: text(
                component.or(event.reporting_component.as_ref()),
                NAME_LEN_MAX,
            ),
            count: count.unwrap_or(1).max(1),
            first: time(event.first_timestamp.as_ref()).or(at),
            last: observed
                .map(|it| seconds(it.0))
                .or_else(|| time(event.last_timestamp.as_ref()))
                .or(at),
            field: field.map(|it| cut(it, NAME_LEN_MAX)),
        }
    }

    /// Returns the content as this cluster has it.
    pub(super) fn reflected(&self) -> Self {
        // This cluster's Event is read with the same limit.
        let component = cut(&self.component, NAME_LEN_MAX - REMOTE.len());
        Self {
            component: component + REMOTE,
            ..self.clone()
        }
    }

    /// Returns the time when the Event was observed last.
    pub(super) fn last(&self) -> Option<Time> {
        Timestamp::from_second(self.last?).ok().map(Time)
    }

    /// Returns the fields of an Event. The reference to the object lacks its kind and name.
    pub(super) fn fields(&self) -> Value {
        let time = |it: Option<i64>| Timestamp::from_second(it?).ok().map(Time);
        json!({
            "involvedObject": {"fieldPath": self.field},
            "type": if self.is_warning { "Warning" } else { "Normal" },
            "reason": self.reason,
            "message": self.message,
            "source": {"component": self.component},
            "count": self.count,
            "firstTimestamp": time(self.first),
            "lastTimestamp": time(self.last),
        })
    }
}
