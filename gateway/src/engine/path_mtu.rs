//! Path MTU discovery by padded probes. Finds the longest inner packet that a path carries.
//!
//! ```text
//!           acknowledged, 5 s later
//!            +-------+
//!            v       |      three lost, while short ones arrive
//!         Verify ----+--------------------------------------> Search
//!            ^                                                  |
//!            +--- the longest of all candidates that arrived ---+
//! ```
//!
//! Discovery does not depend on ICMP. The desired state sets the upper bound of the MTU. Probing
//! lowers the MTU below that bound, and tries to raise it again every few minutes.

use crate::mutant;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Candidates: outer packet lengths of common links and tunnels, in bytes. Every IPv4 host accepts
/// 576 bytes (RFC 1122, section 3.3.3).
const OUTER: [u16; 23] = [
    8_951, 8_500, 4_352, 1_500, 1_492, 1_480, 1_472, 1_460, 1_450, 1_440, 1_430, 1_420, 1_410,
    1_400, 1_380, 1_360, 1_340, 1_320, 1_300, 1_280, 1_200, 1_024, 576,
];

/// Interval at which the current MTU is verified.
const VERIFY_INTERVAL: Duration = Duration::from_secs(5);
/// Interval at which a longer MTU is tried. Linux caches a path MTU for ten minutes, so a shorter
/// interval gains little.
const RAISE_INTERVAL: Duration = Duration::from_secs(150);
/// Number of consecutive lost probes that start a search. A search has the same number of rounds.
const TRIES: u8 = 3;
/// Minimum time to wait for the PONG of a probe.
const WAIT_MIN: Duration = Duration::from_millis(250);

/// Path MTU state machine of one session.
#[derive(Debug)]
pub(super) struct PathMtu {
    /// Inner lengths in bytes, in descending order. The first one is the upper bound.
    candidates: Vec<u16>,
    current: u16,
    phase: Phase,
    due: Instant,
    raise_at: Instant,
    probes: VecDeque<u16>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Probes the current MTU. `lost` is the number of consecutive lost probes.
    Verify { lost: u8 },
    /// Probes all candidates longer than `best`, the longest one that arrived. `rounds` is the
    /// number of rounds left.
    Search { best: u16, rounds: u8 },
}

impl PathMtu {
    /// Creates a state machine that assumes the MTU `upper` (inner length in bytes), and verifies
    /// it from `now` on. `overhead` is the number of bytes that the tunnel adds to a packet.
    pub(super) fn new(upper: u16, overhead: u16, now: Instant) -> Self {
        let lower = OUTER
            .iter()
            .map(|outer| outer - overhead)
            .filter(|inner| *inner < upper);
        let candidates = std::iter::once(upper).chain(lower).collect();

        Self {
            candidates,
            current: upper,
            phase: Phase::Verify { lost: 0 },
            due: now,
            raise_at: now + RAISE_INTERVAL,
            probes: VecDeque::new(),
        }
    }

    /// Returns the longest inner packet for the path, in bytes.
    #[inline]
    pub(super) fn mtu(&self) -> u16 {
        self.current
    }

    /// Returns the upper bound of the MTU, in bytes.
    pub(super) fn upper(&self) -> u16 {
        self.candidates[0]
    }

    /// Returns when [`PathMtu::handle_timeout`] is due.
    pub(super) fn poll_timeout(&self) -> Instant {
        self.due
    }

    /// Returns the inner length of the next probe to send.
    pub(super) fn poll_probe(&mut self) -> Option<u16> {
        self.probes.pop_front()
    }

    /// Advances time to `now`. `healthy` means that probes without padding arrive. If they do not,
    /// lost padded probes say nothing about the MTU. `rtt` is the path's round-trip time.
    pub(super) fn handle_timeout(&mut self, healthy: bool, rtt: Duration, now: Instant) {
        if now < self.due {
            return;
        }
        if mutant::disables("mtu") {
            self.due = now + VERIFY_INTERVAL;
            return;
        }

        self.due = now + WAIT_MIN.max(rtt * 2);
        match self.phase {
            Phase::Verify { .. } if !healthy => self.phase = Phase::Verify { lost: 0 },
            Phase::Verify { lost } if lost >= TRIES => self.search(0),
            Phase::Verify { lost } => {
                self.phase = Phase::Verify { lost: lost + 1 };
                self.probes.push_back(self.current);
            }
            Phase::Search { best, rounds: 0 } => self.conclude(best, healthy, now),
            Phase::Search { best, rounds } => self.round(best, rounds),
        }
    }

    /// Handles the PONG of a probe with the inner length `size`.
    pub(super) fn handle_arrival(&mut self, size: u16, now: Instant) {
        match self.phase {
            Phase::Search { best, .. } if size == self.upper() => {
                self.conclude(best.max(size), true, now);
            }
            Phase::Search { best, rounds } => {
                self.phase = Phase::Search {
                    best: best.max(size),
                    rounds,
                };
            }
            Phase::Verify { .. } if size < self.current => {} // A late PONG of an earlier search.
            Phase::Verify { .. } if now >= self.raise_at && self.current < self.upper() => {
                self.raise_at = now + RAISE_INTERVAL;
                self.search(self.current);
                self.due = now;
            }
            Phase::Verify { .. } => {
                self.phase = Phase::Verify { lost: 0 };
                self.due = now + VERIFY_INTERVAL;
            }
        }
    }

    fn search(&mut self, best: u16) {
        self.round(best, TRIES);
    }

    fn round(&mut self, best: u16, rounds: u8) {
        self.phase = Phase::Search {
            best,
            rounds: rounds - 1,
        };
        self.probes.clear();
        let longer = self.candidates.iter().filter(|size| **size > best);
        self.probes.extend(longer);
    }

    /// Ends a search. If no padded probe arrived, the shortest candidate is assumed. The MTU stays
    /// unchanged if probes without padding do not arrive either.
    fn conclude(&mut self, best: u16, healthy: bool, now: Instant) {
        let shortest = self.candidates[self.candidates.len() - 1];
        if best > 0 || healthy {
            self.current = best.max(shortest);
        }
        self.phase = Phase::Verify { lost: 0 };
        self.raise_at = now + RAISE_INTERVAL;
        self.due = now + VERIFY_INTERVAL;
        self.probes.clear();
    }
}

#[cfg(test)]
mod tests;
