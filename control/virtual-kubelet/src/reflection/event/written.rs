//! The last writes of Events: each is written at most once in 10 s, and of an object a bounded number.

use super::drops::Limit;
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
pub(super) struct Written {
    writes: BTreeMap<Key, Write>,
    /// Contents that were dropped, so that each is counted once.
    dropped: BTreeMap<Key, Digest>,
}

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
    /// The content was written.
    Skip,
    /// There are too many Events.
    Drop(Limit),
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
        if let Some(last) = self.writes.get(key) {
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
        let stored = stored
            .filter(|(it, _)| !self.writes.contains_key(*it))
            .count();
        let first = Key::new(&*key.namespace, "");
        let of_namespace = self.writes.range(first..);
        let of_namespace = of_namespace.take_while(|(it, _)| it.namespace == key.namespace);
        let sent = of_namespace.filter(|(_, it)| it.object == object.name);
        let is_stored = cache.local::<EventSummary>(key).is_some();

        if is_stored {
            Decision::Write
        } else if stored + sent.count() >= OF_OBJECT_MAX {
            Decision::Drop(Limit::Object)
        } else if self.writes.len() >= WRITTEN_MAX {
            Decision::Drop(Limit::Writes)
        } else {
            Decision::Write
        }
    }

    /// Notes that an Event is written.
    pub(super) fn note(&mut self, key: &Key, event: &EventSummary, (object, at): (&str, Instant)) {
        if self.writes.len() >= WRITTEN_MAX / 2 {
            self.writes
                .retain(|_, it| at.saturating_duration_since(it.at) < INTERVAL);
        }
        let same = self
            .writes
            .get(key)
            .filter(|it| it.content == event.reflected);
        let write = Write {
            repeats: same.map_or(0, |it| it.repeats.saturating_add(1)),
            at,
            content: event.reflected,
            object: object.to_owned(),
        };
        self.writes.insert(key.clone(), write);
    }

    /// Notes that an Event is dropped. Returns whether this content was not dropped before.
    pub(super) fn note_drop(&mut self, key: &Key, event: &EventSummary) -> bool {
        if self.dropped.len() >= WRITTEN_MAX {
            self.dropped.clear();
        }
        let content = event.reflected;

        self.dropped.insert(key.clone(), content) != Some(content)
    }

    /// Forgets a write that has failed, so that it is sent again.
    pub(super) fn forget(&mut self, key: &Key) {
        self.writes.remove(key);
    }
}

/// Returns whether this cluster has the Event with another content. One that has expired is not created again.
fn is_other(cache: &Cache, key: &Key, event: &EventSummary) -> bool {
    let present = cache.local::<EventSummary>(key);
    present.is_some_and(|it| it.content != event.reflected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_beyond_the_writes_of_an_interval_is_dropped_and_counted_once() {
        let event = json!({"involvedObject": {"kind": "Service", "name": "web"}, "reason": "A"});
        let event = EventSummary::of(serde_json::from_value(event).unwrap());
        let key = |number: usize| Key::new("shop", format!("web.{number}"));
        let now = Instant::now();
        let mut written = Written::default();
        for number in 0..WRITTEN_MAX {
            let object = format!("web-{number}");
            written.note(&key(number), &event, (&object, now));
        }

        let (new, object) = (key(WRITTEN_MAX), Key::new("shop", "web"));
        let cache = Cache::default();
        let decide = |written: &Written| written.decide(&new, &event, &object, (&cache, now));
        assert_eq!(decide(&written), Decision::Drop(Limit::Writes));
        let counted = [0; 2].map(|_| written.note_drop(&new, &event));
        assert_eq!(counted, [true, false]);
        let later = now + INTERVAL;
        written.note(&key(0), &event, ("web-0", later));
        assert_eq!(decide(&written), Decision::Write);
    }
}
