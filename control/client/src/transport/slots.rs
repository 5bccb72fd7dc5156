//! Chooses the connection of each stream, so that no connection carries more streams than the
//! server accepts.

use super::kind::Kind;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The limit of streams per connection before the server's SETTINGS frame arrives, and the highest
/// limit that is used. kube-apiserver's default (`--http2-max-streams-per-connection`) is 100.
pub(super) const STREAMS_MAX: usize = 100;

/// The number of a connection, unique within a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Id(u64);

/// The streams of each connection.
#[derive(Debug, Default)]
pub(super) struct Slots {
    connections: BTreeMap<Id, Streams>,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Streams {
    limit: usize,
    endless: usize,
    ending: usize,
    /// When the last stream ended; `None` before the first.
    idle_since: Option<Instant>,
}

impl Slots {
    /// Adds a connection without streams.
    pub(super) fn add(&mut self) -> Id {
        let id = Id(self.next);
        self.next += 1;
        let streams = Streams {
            limit: STREAMS_MAX,
            endless: 0,
            ending: 0,
            idle_since: None,
        };
        self.connections.insert(id, streams);
        id
    }

    /// Sets the limit that the server announced in its SETTINGS frame.
    pub(super) fn set_limit(&mut self, id: Id, limit: usize) {
        if let Some(streams) = self.connections.get_mut(&id) {
            streams.limit = limit.min(STREAMS_MAX);
        }
    }

    /// Removes a connection that is closed or draining; no new stream uses it.
    pub(super) fn remove(&mut self, id: Id) {
        self.connections.remove(&id);
    }

    /// Adds a stream to the oldest connection with room for one of this kind.
    ///
    /// Filling the oldest connection first lets later connections become idle. Returns `None` if
    /// all connections are full; then a connection must be added.
    pub(super) fn open(&mut self, kind: Kind) -> Option<Id> {
        let mut connections = self.connections.iter_mut();
        let (id, streams) = connections.find(|(_, streams)| streams.has_room(kind))?;
        *streams.count(kind) += 1;
        Some(*id)
    }

    /// Removes a stream that [`Self::open`] added.
    pub(super) fn close(&mut self, id: Id, kind: Kind, now: Instant) {
        if let Some(streams) = self.connections.get_mut(&id) {
            let count = streams.count(kind);
            *count = count.saturating_sub(1);
            streams.idle_since = Some(now);
        }
    }

    /// Returns the connections without streams for at least `idle_max`, except for the oldest.
    pub(super) fn surplus(&self, now: Instant, idle_max: Duration) -> Vec<Id> {
        let others = self.connections.iter().skip(1);
        others
            .filter(|(_, streams)| streams.is_idle_for(now, idle_max))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Returns the number of connections.
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }
}

impl Streams {
    fn has_room(&self, kind: Kind) -> bool {
        let reserved = if kind.is_endless() {
            self.reserved()
        } else {
            0
        };
        self.total() + reserved.saturating_sub(self.ending) < self.limit
    }

    /// Returns the streams that endless requests leave free: a tenth, at least one, but never all.
    fn reserved(&self) -> usize {
        (self.limit / 10).max(1).min(self.limit.saturating_sub(1))
    }

    fn is_idle_for(&self, now: Instant, idle_max: Duration) -> bool {
        let idle = self
            .idle_since
            .map(|since| now.saturating_duration_since(since));
        self.total() == 0 && idle.is_some_and(|idle| idle >= idle_max)
    }

    fn total(&self) -> usize {
        self.endless + self.ending
    }

    fn count(&mut self, kind: Kind) -> &mut usize {
        if kind.is_endless() {
            &mut self.endless
        } else {
            &mut self.ending
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn watches_leave_a_tenth_of_a_connection_to_other_requests() {
        let mut slots = Slots::default();
        let id = slots.add();

        let watches = std::iter::from_fn(|| slots.open(Kind::Watch)).count();
        let reads = std::iter::from_fn(|| slots.open(Kind::Read)).count();

        assert_eq!((watches, reads), (90, 10));
        slots.close(id, Kind::Read, Instant::now());
        assert_eq!(slots.open(Kind::Watch), None);
        assert_eq!(slots.open(Kind::Read), Some(id));
    }

    #[test]
    fn a_connection_that_accepts_one_stream_accepts_a_watch() {
        let mut slots = Slots::default();
        let id = slots.add();
        slots.set_limit(id, 1);

        assert_eq!(slots.open(Kind::Watch), Some(id));
        assert_eq!(slots.open(Kind::Read), None);
    }

    #[test]
    fn a_second_connection_becomes_surplus_after_a_minute_without_streams() {
        let mut slots = Slots::default();
        let first = slots.add();
        while slots.open(Kind::Read).is_some() {}
        let second = slots.add();
        slots.open(Kind::Read);
        let now = Instant::now();
        assert_eq!(slots.surplus(now, Duration::ZERO), []);

        slots.close(second, Kind::Read, now);

        let minute = Duration::from_secs(60);
        assert_eq!(slots.surplus(now, minute), []);
        assert_eq!(slots.surplus(now + minute, minute), [second]);
        slots.remove(second);
        slots.close(first, Kind::Read, now);
        assert_eq!(slots.open(Kind::Read), Some(first));
    }

    proptest! {
        #[test]
        fn no_connection_exceeds_its_limit(
            limits in prop::collection::vec(1_usize..40, 1..5),
            steps in prop::collection::vec((any::<bool>(), any::<bool>()), 0..400),
        ) {
            let mut slots = Slots::default();
            for limit in &limits {
                let id = slots.add();
                slots.set_limit(id, *limit);
            }
            let mut open = Vec::new();

            for (is_open, is_watch) in steps {
                let kind = if is_watch { Kind::Watch } else { Kind::Read };
                if is_open {
                    open.extend(slots.open(kind).map(|id| (id, kind)));
                } else if let Some((id, kind)) = open.pop() {
                    slots.close(id, kind, Instant::now());
                }

                for (index, limit) in limits.iter().enumerate() {
                    let id = Id(u64::try_from(index).expect("a small index"));
                    prop_assert!(open.iter().filter(|(it, _)| *it == id).count() <= *limit);
                }
            }
        }
    }
}
