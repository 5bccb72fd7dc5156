//! The queue of endpoint names that await a DNS lookup.
//!
//! A lookup occupies a thread until the system's resolver returns. The number of concurrent lookups
//! is therefore limited, and further names wait in a queue. The engine requests all names
//! periodically in the same order. Without the queue, the last names would never be looked up.

use std::collections::{BTreeSet, VecDeque};

/// Maximum number of concurrent lookups; each needs a thread and a socket.
const RUNNING_MAX: usize = 64;

/// An endpoint of a peer, given by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    /// Index of the peer.
    pub(super) peer: u16,
    pub(super) host: String,
    /// UDP port of the endpoint. The lookup adds the port to each address.
    pub(super) port: u16,
}

/// The running and the waiting lookups.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    running: BTreeSet<Name>,
    /// Contains no duplicates and, after [`Lookups::retain`], only configured names.
    waiting: VecDeque<Name>,
}

impl Lookups {
    /// Appends `name` to the queue, unless its lookup is waiting or running already.
    pub(super) fn request(&mut self, name: Name) {
        if !self.running.contains(&name) && !self.waiting.contains(&name) {
            self.waiting.push_back(name);
        }
    }

    /// Returns the next name to look up; the caller must call [`Lookups::finish`] after the lookup.
    ///
    /// Returns `None` if the queue is empty or [`RUNNING_MAX`] lookups are running.
    pub(super) fn poll_start(&mut self) -> Option<Name> {
        if self.running.len() >= RUNNING_MAX {
            return None;
        }
        let name = self.waiting.pop_front()?;
        self.running.insert(name.clone());

        Some(name)
    }

    /// Ends the lookup of `name`, so that another lookup may start.
    pub(super) fn finish(&mut self, name: &Name) {
        self.running.remove(name);
    }

    /// Removes the waiting names for which `is_endpoint` is false.
    pub(super) fn retain(&mut self, is_endpoint: impl Fn(&Name) -> bool) {
        self.waiting.retain(is_endpoint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(peer: u16) -> Name {
        Name {
            peer,
            host: format!("gw-{peer}.example"),
            port: 51_840,
        }
    }

    fn start(lookups: &mut Lookups) -> Vec<u16> {
        std::iter::from_fn(|| lookups.poll_start().map(|name| name.peer)).collect()
    }

    #[test]
    fn every_name_is_looked_up_although_the_first_are_requested_again() {
        let mut lookups = Lookups::default();
        let mut seen = BTreeSet::new();
        let mut running = Vec::new();

        for _ in 0..10 {
            for peer in 0..300 {
                lookups.request(name(peer));
            }
            running.extend(start(&mut lookups));
            seen.extend(running.iter().copied());
            assert_eq!(running.len(), RUNNING_MAX);
            for peer in running.drain(..) {
                lookups.finish(&name(peer));
            }
        }

        assert_eq!(seen.len(), 300);
    }

    #[test]
    fn a_name_runs_and_waits_at_most_once() {
        let mut lookups = Lookups::default();

        for _ in 0..3 {
            for peer in 0..100 {
                lookups.request(name(peer));
            }
            start(&mut lookups);
        }

        assert_eq!(lookups.running.len(), RUNNING_MAX);
        assert_eq!(lookups.waiting.len(), 100 - RUNNING_MAX);
    }

    #[test]
    fn a_lookup_counts_until_its_thread_has_ended() {
        let mut lookups = Lookups::default();
        for peer in 0..100 {
            lookups.request(name(peer));
        }
        start(&mut lookups);

        assert_eq!(lookups.poll_start(), None);
        lookups.finish(&name(7));

        assert_eq!(
            lookups.poll_start(),
            Some(name(64)),
            "the first name in the queue"
        );
        assert_eq!(lookups.poll_start(), None);
    }

    #[test]
    fn names_of_removed_peers_are_removed_from_the_queue() {
        let mut lookups = Lookups::default();
        for peer in 0..70 {
            lookups.request(name(peer));
        }
        start(&mut lookups);

        lookups.retain(|name| name.peer == 69);
        lookups.finish(&name(0));

        assert_eq!(start(&mut lookups), [69]);
    }
}
