//! Tells people by Events, without making the loop wait.

use crate::plan::Notice;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use std::time::Duration;
use tokio::sync::mpsc;

/// Who tells.
const CONTROLLER: &str = "liqo-controller-manager";

/// What waits to be told; more is dropped, since Events are for people.
const EVENTS_MAX: usize = 128;

/// How long the API server may take for one.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Longest note that the API server takes, in bytes.
const NOTE_LEN_MAX: usize = 1024;

/// Where Events go.
pub(super) struct Events {
    sender: mpsc::Sender<(ObjectReference, Notice)>,
}

impl Events {
    /// Starts the task that writes them.
    pub(super) fn start(client: Client, pod_name: &str) -> Self {
        let (sender, mut waiting) = mpsc::channel::<(ObjectReference, Notice)>(EVENTS_MAX);
        let reporter = Reporter {
            controller: CONTROLLER.to_owned(),
            instance: Some(pod_name.to_owned()),
        };
        let recorder = Recorder::new(client, reporter);
        tokio::spawn(async move {
            while let Some((reference, notice)) = waiting.recv().await {
                let event = event(&notice);
                let published = recorder.publish(&event, &reference);
                match tokio::time::timeout(TIMEOUT, published).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(%error, "failed to write an Event"),
                    Err(_) => tracing::debug!("the API server was too slow for an Event"),
                }
            }
        });

        Self { sender }
    }

    /// Tells of a notice.
    pub(super) fn publish(&self, reference: ObjectReference, notice: Notice) {
        let (kind, name, reason) = (notice.kind, &notice.key, notice.reason);
        if notice.is_warning {
            tracing::warn!(%kind, %name, reason, "{}", notice.note);
        } else {
            tracing::info!(%kind, %name, reason, "{}", notice.note);
        }
        if self.sender.try_send((reference, notice)).is_err() {
            tracing::debug!("dropped an Event: too many wait");
        }
    }
}

fn event(notice: &Notice) -> Event {
    let mut note = notice.note.clone();
    while note.len() > NOTE_LEN_MAX {
        note.pop();
    }

    Event {
        type_: if notice.is_warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: notice.reason.to_owned(),
        note: Some(note),
        action: "Reconcile".to_owned(),
        secondary: None,
    }
}
