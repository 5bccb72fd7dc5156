//! The last writes of Events: each is written at most once in 10 s, and of an object a bounded number.

use super::{EventSummary, about};
use control_runtime::{Cache, Cluster, Digest, Key};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Shortest time between two writes of an Event.
const INTERVAL: Duration = Duration::from_secs(10);

/// Most Events about objects of one name. A pod of ten containers starts with some forty; a hostile provider could invent any
/// number.
const OF_OBJECT_MAX: usize = 64;

/// Most repeated writes of one content, while the API server shows another one. An earlier write may arrive later; an API server
/// may also store what it likes.
const REPEATS_MAX: u8 = 3;

/// Number of remembered writes from which older ones are dropped.
const WRITTEN_MAX: usize = 4096;

/// The last writes, by the names of the Events.
#[derive(Debug, Default)]
pub(super) struct Written(BTreeMap<Key, Write>);

#[derive(Debug)]
struct Write {
    at: Instant,
    content: Digest,
    /// Name of the object.
    object: String,
    /// Writes of this content but the first.
    repeats: u8,
}

/// Whether an Event is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Write,
    Wait(Duration),
    /// The content was written, or the object has too many Events.
    Skip,
}

impl Written {
    /// Decides whether an Event with this content is written now.
    pub(super) fn decide(
        &self,
        key: &Key,
        event: &EventSummary,
        object: &Key,
        (cache, now): (&Cache, Instant),
    ) -> Decision {
        if let Some(last) = self.0.get(key) {
            let rest = INTERVAL.saturating_sub(now.saturating_duration_since(last.at));
            let is_settled = last.content == event.reflected
                && (last.repeats >= REPEATS_MAX || !is_other(cache, key, event));
            return match (is_settled, rest.is_zero()) {
                (true, _) => Decision::Skip,
                (false, true) => Decision::Write,
                (false, false) => Decision::Wait(rest),
            };
        }
        let stored = about(cache, &Cluster::Local, object);
        let stored = stored.filter(|(it, _)| !self.0.contains_key(*it)).count();
        let first = Key::new(&*key.namespace, "");
        let of_namespace = self.0.range(first..);
        let of_namespace = of_namespace.take_while(|(it, _)| it.namespace == key.namespace);
        let sent = of_namespace.filter(|(_, it)| it.object == object.name);
        let is_full = stored + sent.count() >= OF_OBJECT_MAX || self.0.len() >= WRITTEN_MAX;
        let is_stored = cache.local::<EventSummary>(key).is_some();

        if is_full && !is_stored {
            Decision::Skip
        } else {
            Decision::Write
        }
    }

    /// Notes that an Event is written.
    pub(super) fn note(&mut self, key: &Key, event: &EventSummary, (object, at): (&str, Instant)) {
        if self.0.len() >= WRITTEN_MAX / 2 {
            self.0
                .retain(|_, it| at.saturating_duration_since(it.at) < INTERVAL);
        }
        let same = self.0.get(key).filter(|it| it.content == event.reflected);
        let write = Write {
            repeats: same.map_or(0, |it| it.repeats.saturating_add(1)),
            at,
            content: event.reflected,
            object: object.to_owned(),
        };
        self.0.insert(key.clone(), write);
    }

    /// Forgets a write that has failed, so that it is sent again.
    pub(super) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }
}

/// Returns whether this cluster has the Event with another content. One that has expired is not created again.
fn is_other(cache: &Cache, key: &Key, event: &EventSummary) -> bool {
    let present = cache.local::<EventSummary>(key);
    present.is_some_and(|it| it.content != event.reflected)
}
