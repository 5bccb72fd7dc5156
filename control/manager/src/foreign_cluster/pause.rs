//! The changes of a peer within a short time cause one write: most come in groups, such as the objects of `liqoctl peer`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time from a change to the write. A ForeignCluster follows each change within a second.
const PAUSE: Duration = Duration::from_millis(500);

/// The peers with changes, by cluster ID, and when they are planned.
#[derive(Debug, Default)]
pub(super) struct Pause {
    due: BTreeMap<String, Instant>,
}

impl Pause {
    /// Returns how long a peer with a change waits; `None` if it is to be planned now.
    pub(super) fn wait(&mut self, peer: &str, now: Instant) -> Option<Duration> {
        let due = *self.due.entry(peer.to_owned()).or_insert(now + PAUSE);
        if due > now {
            return Some(due - now);
        }
        self.due.remove(peer);
        None
    }

    /// Has the next change planned at once. It is the result of a write.
    pub(super) fn skip(&mut self, peer: &str, now: Instant) {
        self.due.insert(peer.to_owned(), now);
    }
}
