//! Which names are being looked up, and which wait for their turn: PURE.
//!
//! Each lookup holds a thread until the system's resolver gives up, so there are few
//! at once; all others wait in the order in which they were asked for. The engine asks
//! again and again, always in the same order: without a queue those that come last
//! would never find room.

use std::collections::{BTreeSet, VecDeque};

/// Names looked up at once: each has a thread, and the system's resolver one socket.
const RUNNING_MAX: usize = 64;

/// A name to look up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    /// Index of the peer.
    pub(super) peer: u16,
    /// The name.
    pub(super) host: String,
    /// The port that belongs into the addresses.
    pub(super) port: u16,
}

/// The lookups.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    running: BTreeSet<Name>,
    /// Each once; as many at most as are configured, see [`Lookups::retain`].
    waiting: VecDeque<Name>,
}

impl Lookups {
    /// Wants `name` looked up, unless that is under way already.
    pub(super) fn ask(&mut self, name: Name) {
        if !self.running.contains(&name) && !self.waiting.contains(&name) {
            self.waiting.push_back(name);
        }
    }

    /// Returns the next name to look up now; each ends with [`Lookups::finish`].
    pub(super) fn poll_start(&mut self) -> Option<Name> {
        if self.running.len() >= RUNNING_MAX {
            return None;
        }
        let name = self.waiting.pop_front()?;
        self.running.insert(name.clone());

        Some(name)
    }

    /// Notes that the thread that looked `name` up is back.
    pub(super) fn finish(&mut self, name: &Name) {
        self.running.remove(name);
    }

    /// Forgets the waiting names that `is_wanted` does not tell.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&Name) -> bool) {
        self.waiting.retain(is_wanted);
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
    fn every_name_has_its_turn_though_the_first_are_asked_for_again_and_again() {
        let mut lookups = Lookups::default();
        let mut seen = BTreeSet::new();
        let mut running = Vec::new();

        for _ in 0..10 {
            for peer in 0..300 {
                lookups.ask(name(peer));
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
    fn a_name_is_looked_up_and_waits_once_at_a_time() {
        let mut lookups = Lookups::default();

        for _ in 0..3 {
            for peer in 0..100 {
                lookups.ask(name(peer));
            }
            start(&mut lookups);
        }

        assert_eq!(lookups.running.len(), RUNNING_MAX);
        assert_eq!(lookups.waiting.len(), 100 - RUNNING_MAX);
    }

    #[test]
    fn a_place_is_free_only_when_its_thread_is_back() {
        let mut lookups = Lookups::default();
        for peer in 0..100 {
            lookups.ask(name(peer));
        }
        start(&mut lookups);

        assert_eq!(lookups.poll_start(), None);
        lookups.finish(&name(7));

        assert_eq!(
            lookups.poll_start(),
            Some(name(64)),
            "the first that waited"
        );
        assert_eq!(lookups.poll_start(), None);
    }

    #[test]
    fn names_of_peers_that_are_gone_wait_no_longer() {
        let mut lookups = Lookups::default();
        for peer in 0..70 {
            lookups.ask(name(peer));
        }
        start(&mut lookups);

        lookups.retain(|name| name.peer == 69);
        lookups.finish(&name(0));

        assert_eq!(start(&mut lookups), [69]);
    }
}
