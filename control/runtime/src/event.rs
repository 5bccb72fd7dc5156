//! Publishes Events without delaying the controllers.

use crate::controller::Event;
use control_client::object::{Cluster, Ref};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{self, EventType, Recorder, Reporter};
use prometheus_client::metrics::counter::Counter;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;
use tokio::sync::mpsc;

/// Events that wait to be sent. Further ones are dropped, and published when a plan returns them again.
const WAITING_MAX: usize = 128;

/// Time limit for sending one.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Longest note that the API accepts, in bytes.
const NOTE_LEN_MAX: usize = 1024;

/// Longest name of an object from which the name of an Event is derived, in bytes: a dot and 16 digits follow, and names have
/// 253 bytes at most.
const OBJECT_NAME_LEN_MAX: usize = 236;

/// Events that are remembered, so that an equal one is not published again.
const REMEMBERED_MAX: usize = 1024;

/// Events of one reason about an object with different notes. Further notes count as repetitions of the last one, because peers
/// choose some of them.
const NOTES_MAX: usize = 8;

/// Publishes Events of one process.
#[derive(Debug)]
pub(crate) struct Events {
    sender: mpsc::Sender<(usize, ObjectReference, Event)>,
    last: Last,
    notes: Notes,
    dropped: Counter,
}

impl Events {
    /// Starts the task that sends Events about objects of the local cluster. Counts those that are not
    /// published in `dropped`.
    pub(crate) fn start(
        client: Client,
        controller: &str,
        instance: &str,
        dropped: Counter,
    ) -> Self {
        let (sender, mut waiting) = mpsc::channel::<(usize, ObjectReference, Event)>(WAITING_MAX);
        let reporter = Reporter {
            controller: controller.to_owned(),
            instance: Some(instance.to_owned()),
        };
        // A Recorder counts an Event with another note as a repetition, and the first note stays.
        let recorders = [(); NOTES_MAX].map(|()| Recorder::new(client.clone(), reporter.clone()));
        let failed = dropped.clone();
        tokio::spawn(async move {
            while let Some((series, reference, event)) = waiting.recv().await {
                let (body, reference) = described(body(&event), reference);
                let published = recorders[series].publish(&body, &reference);
                match tokio::time::timeout(TIMEOUT, published).await {
                    Ok(Ok(())) => continue,
                    Ok(Err(error)) => tracing::debug!(%error, "failed to publish an Event"),
                    Err(_) => tracing::debug!("the API server did not accept an Event in time"),
                }
                failed.inc();
            }
        });

        Self {
            sender,
            last: Last::default(),
            notes: Notes::default(),
            dropped,
        }
    }

    /// Logs and publishes an Event, unless it repeats the last one about the object.
    pub(crate) fn publish(&mut self, event: Event, uid: Option<String>) {
        if !self.last.is_news(&event) && !event.is_repeated {
            return;
        }
        let (object, reason) = (&event.object, event.reason);
        if event.is_warning {
            tracing::warn!(%object, reason, "{}", event.note);
        } else {
            tracing::info!(%object, reason, "{}", event.note);
        }
        // An Event is about an object of the cluster that stores it.
        if event.object.cluster != Cluster::Local {
            return self.last.remember(&event);
        }
        let Ok(permit) = self.sender.try_reserve() else {
            self.dropped.inc();
            return tracing::debug!("dropped an Event: too many are waiting");
        };
        self.last.remember(&event);
        let series = self.notes.series(&event);
        permit.send((series, reference(&event.object, uid), event));
    }
}

/// The last Event about each object, for a limited number of objects.
#[derive(Debug, Default)]
struct Last(BTreeMap<Ref, (&'static str, String)>);

impl Last {
    /// Returns whether an Event differs from the last one about its object.
    fn is_news(&self, event: &Event) -> bool {
        let last = self.0.get(&event.object);
        last.is_none_or(|(reason, note)| *reason != event.reason || *note != event.note)
    }

    fn remember(&mut self, event: &Event) {
        if self.0.len() >= REMEMBERED_MAX && !self.0.contains_key(&event.object) {
            self.0.clear();
        }
        let last = (event.reason, event.note.clone());
        self.0.insert(event.object.clone(), last);
    }
}

/// The hashes of the notes of each reason about an object, for a limited number of them.
#[derive(Debug, Default)]
struct Notes(BTreeMap<(Ref, &'static str), Vec<u64>>);

impl Notes {
    /// Returns the number of an Event's note among those of its reason and object, less than [`NOTES_MAX`].
    fn series(&mut self, event: &Event) -> usize {
        let key = (event.object.clone(), event.reason);
        if self.0.len() >= REMEMBERED_MAX && !self.0.contains_key(&key) {
            self.0.clear();
        }
        let mut hasher = DefaultHasher::new();
        event.note.hash(&mut hasher);
        let hash = hasher.finish();
        let notes = self.0.entry(key).or_default();
        let known = notes.iter().position(|it| *it == hash);
        known.unwrap_or_else(|| {
            notes.truncate(NOTES_MAX - 1);
            notes.push(hash);
            notes.len() - 1
        })
    }
}

fn reference(object: &Ref, uid: Option<String>) -> ObjectReference {
    let namespace = &object.key.namespace;
    ObjectReference {
        api_version: Some(object.resource.api_version()),
        kind: Some(object.resource.kind.to_string()),
        name: Some(object.key.name.clone()),
        namespace: (!namespace.is_empty()).then(|| namespace.clone()),
        uid,
        ..ObjectReference::default()
    }
}

/// Limits the name of the Event, which [`Recorder`] derives from that of its object. An Event about an object with a longer
/// name has the name of the controller, and refers to the object as a related one.
fn described(
    mut body: events::Event,
    mut reference: ObjectReference,
) -> (events::Event, ObjectReference) {
    let is_long = |name: &String| name.len() > OBJECT_NAME_LEN_MAX;
    if reference.name.as_ref().is_some_and(is_long) {
        body.secondary = Some(reference.clone());
        reference.name = None;
    }

    (body, reference)
}

fn body(event: &Event) -> events::Event {
    let mut note = event.note.clone();
    note.truncate(note.floor_char_boundary(NOTE_LEN_MAX));
    events::Event {
        type_: if event.is_warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: event.reason.to_owned(),
        note: Some(note),
        action: "Reconcile".to_owned(),
        secondary: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_client::object::Key;
    use k8s_openapi::api::core::v1::Node;

    fn event(name: &str, note: &str) -> Event {
        Event {
            object: Ref::of::<Node>(&Cluster::Local, &Key::cluster(name)),
            is_warning: true,
            reason: "Broken",
            note: note.to_owned(),
            is_repeated: false,
        }
    }

    impl Last {
        fn take(&mut self, event: &Event) -> bool {
            let is_news = self.is_news(event);
            self.remember(event);
            is_news
        }
    }

    #[test]
    fn an_event_is_published_when_it_differs_from_the_last_one() {
        let mut last = Last::default();

        assert!(last.take(&event("rome-1", "one")));
        assert!(!last.take(&event("rome-1", "one")));
        assert!(last.take(&event("rome-2", "one")));
        assert!(last.take(&event("rome-1", "two")));
        assert!(last.take(&event("rome-1", "one")));
    }

    #[test]
    fn a_limited_number_of_objects_is_remembered() {
        let mut last = Last::default();
        for number in 0..3 * REMEMBERED_MAX {
            assert!(last.take(&event(&number.to_string(), "one")));
        }

        assert_eq!(last.0.len(), REMEMBERED_MAX);
    }

    #[test]
    fn each_note_has_a_series_up_to_a_limit() {
        let mut notes = Notes::default();
        let mut series = |name: &str, note: &str| notes.series(&event(name, note));

        assert_eq!(series("rome-1", "one"), 0);
        assert_eq!(series("rome-1", "two"), 1);
        assert_eq!(series("rome-1", "one"), 0);
        assert_eq!(series("rome-2", "two"), 0);
        for number in 0..3 * NOTES_MAX {
            assert!(series("rome-1", &number.to_string()) < NOTES_MAX);
        }
        assert_eq!(series("rome-1", "one"), 0);
        for number in 0..REMEMBERED_MAX {
            series(&number.to_string(), "one");
        }
        assert!(notes.0.len() <= REMEMBERED_MAX);
    }

    /// Returns a client whose requests fail.
    fn client() -> Client {
        let refuse = |_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("away"))
        };
        Client::new(tower::service_fn(refuse), "a")
    }

    #[tokio::test]
    async fn an_event_beyond_the_waiting_ones_is_counted_and_published_the_next_time() {
        let dropped = Counter::default();
        let mut events = Events::start(client(), "test", "a", dropped.clone());
        for number in 0..WAITING_MAX {
            events.publish(event(&number.to_string(), "one"), None);
        }
        assert_eq!(dropped.get(), 0);

        events.publish(event("rome-1", "one"), None);

        assert_eq!(dropped.get(), 1);
        assert!(events.last.is_news(&event("rome-1", "one")));
        assert!(!events.last.is_news(&event("0", "one")));
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_the_server_does_not_accept_is_counted() {
        let dropped = Counter::default();
        let mut events = Events::start(client(), "test", "a", dropped.clone());

        events.publish(event("rome-1", "one"), None);

        tokio::time::sleep(TIMEOUT).await;
        assert_eq!(dropped.get(), 1);
    }

    #[test]
    fn an_object_with_a_long_name_is_related_to_its_event() {
        let event = |len: usize| {
            let event = event(&"a".repeat(len), "note");
            described(body(&event), reference(&event.object, None))
        };

        let (body, object) = event(OBJECT_NAME_LEN_MAX);
        assert!(object.name.is_some() && body.secondary.is_none());
        let (body, object) = event(253);
        assert_eq!(object.name, None);
        assert_eq!(body.secondary.unwrap().name.unwrap().len(), 253);
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        let note = "é".repeat(NOTE_LEN_MAX);
        let body = body(&event("rome-1", &note));

        assert!(body.note.unwrap().len() <= NOTE_LEN_MAX);
    }
}
