//! Limits on the work that a handshake message may cause before its sender is authenticated.
//!
//! A *try* computes mac1 with one of our keys: 0.5 us. Tries are limited per source first, then over all sources. Both
//! limits are separate for keys at which the sender index hints (`engine/index.rs`) and for all others.
//!
//! A source address proves nothing: an attacker can spoof any. These attacks remain, for a gateway of 1,000 keys, of which
//! four have each hint:
//!
//! | source addresses | initiations per second | delayed until the next period |
//! |---|---|---|
//! | many | 100 (for seconds after a start: 600) | clients without a hint |
//! | many | 25,000 | all clients |
//! | that of a client | 5 | this client, if it sends no hint |
//! | that of a client | 1,000 | this client |
//!
//! None of them delays a client whose address last carried data under one of our keys: that key is tried first, outside of
//! all limits.

use crate::engine::drops::Drop;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;

/// Tries per period of keys at which the sender hints: 5 % of a core. With 1,000 keys of ours 25,000 initiations.
const HINTED_MAX: u32 = 100_000;
/// Tries per period of all other keys: 5 % of a core. With 1,000 keys 100 initiations. See also [`Budget::on_start`].
const OTHERS_MAX: u32 = 100_000;
/// Tries per period and source: 512 initiations with a hint where 1,000 keys have eight of each hint.
const SOURCE_TRIES: u32 = 4_096;
/// Where there are more keys, a source may still have as many initiations without a hint.
const SOURCE_SCANS: u32 = 4;
/// Tries per period of those beyond [`OTHERS_MAX`] that new keys earn: 25 % of a core.
const ON_START_MAX: u32 = 500_000;
/// Handshakes per period and source while a key is under load. A site of four
/// replicas has 32 sessions of one lane with another, at two addresses each, behind one of its own.
const SOURCE_HANDSHAKES: u32 = 32;
/// Counters of sources, 12 KiB in all. Sources share a counter by hash, so a flood from many sources may use up a
/// quiet one's share; it would use up the limits over all sources first.
const SOURCES: usize = 1_024;

/// The limits of one period.
pub(super) struct Budget {
    sources: Box<[Spent; SOURCES]>,
    salt: u64,
    hinted: u32,
    others: u32,
    /// Beside `others`, until they are used up: at most [`ON_START_MAX`] per period.
    ///
    /// After a start no source is known, and all peers call at once: n peers with a key each and no hint need n tries
    /// each at most, half a second of a core for 1,000 keys. An attacker who uses them up delays such peers by seconds.
    on_start: u32,
    /// What this period has left of `on_start`.
    on_start_now: u32,
    source_tries: u32,
}

/// What a source has used of its share.
#[derive(Clone, Copy, Default)]
struct Spent {
    hinted: u32,
    others: u32,
    handshakes: u32,
}

/// A source's entry in the table.
#[derive(Clone, Copy)]
pub(super) struct Source(usize);

impl Budget {
    /// Creates the budget of a gateway without keys. `salt` keeps senders from choosing whose counter they share.
    pub(super) fn new(salt: u64) -> Self {
        Self {
            sources: Box::new([Spent::default(); SOURCES]),
            salt,
            hinted: HINTED_MAX,
            others: OTHERS_MAX,
            on_start: 0,
            on_start_now: ON_START_MAX,
            source_tries: SOURCE_TRIES,
        }
    }

    /// Grants what a further key costs when it is one of `keys`.
    pub(super) fn handle_key_added(&mut self, keys: usize) {
        let keys = u32::try_from(keys).unwrap_or(u32::MAX);
        let all = keys.saturating_mul(keys);
        // n squared grows by 2 n - 1; a key that comes and goes earns nothing.
        let growth = keys.saturating_mul(2).saturating_sub(1);
        self.on_start = self.on_start.saturating_add(growth).min(all);
        self.source_tries = SOURCE_TRIES.max(keys.saturating_mul(SOURCE_SCANS));
    }

    /// Starts a period.
    pub(super) fn handle_period(&mut self) {
        self.sources.fill(Spent::default());
        self.hinted = HINTED_MAX;
        self.others = OTHERS_MAX;
        self.on_start_now = ON_START_MAX;
    }

    /// Returns the entry of an address: one host has an IPv4 address or an IPv6 /64.
    pub(super) fn source(&self, address: IpAddr) -> Source {
        let mut hasher = DefaultHasher::new();
        match address {
            IpAddr::V4(ip) => (self.salt, ip).hash(&mut hasher),
            IpAddr::V6(ip) => (self.salt, &ip.octets()[..8]).hash(&mut hasher),
        }

        Source((hasher.finish() % SOURCES as u64) as usize)
    }

    /// Takes the try of a key at which the sender hints.
    ///
    /// # Errors
    ///
    /// Returns the limit that is reached.
    pub(super) fn take_hinted(&mut self, source: Source) -> Result<(), Drop> {
        take_of_source(&mut self.sources[source.0].hinted, SOURCE_TRIES)?;
        if self.hinted == 0 {
            return Err(Drop::HandshakeBudget);
        }
        self.hinted -= 1;

        Ok(())
    }

    /// Takes the try of any other key.
    ///
    /// # Errors
    ///
    /// Returns the limit that is reached.
    pub(super) fn take_other(&mut self, source: Source) -> Result<(), Drop> {
        take_of_source(&mut self.sources[source.0].others, self.source_tries)?;
        if self.others > 0 {
            self.others -= 1;
        } else if self.on_start > 0 && self.on_start_now > 0 {
            self.on_start -= 1;
            self.on_start_now -= 1;
        } else {
            return Err(Drop::HandshakeBudget);
        }

        Ok(())
    }

    /// Takes a handshake of a source while a key is under load; returns whether it is within the source's share.
    pub(super) fn take_handshake(&mut self, source: Source) -> bool {
        let spent = &mut self.sources[source.0].handshakes;
        *spent = spent.saturating_add(1);

        *spent <= SOURCE_HANDSHAKES
    }
}

fn take_of_source(spent: &mut u32, limit: u32) -> Result<(), Drop> {
    if *spent >= limit {
        return Err(Drop::HandshakeSourceBudget);
    }
    *spent += 1;

    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn source(budget: &Budget, number: u32) -> Source {
        budget.source(Ipv4Addr::from_bits(number).into())
    }

    /// Takes tries of ever new sources until a limit is reached.
    fn exhaust(budget: &mut Budget, take: fn(&mut Budget, Source) -> Result<(), Drop>) -> u32 {
        let mut tries = 0;
        for number in 0.. {
            let source = source(budget, number / 64);
            match take(budget, source) {
                Ok(()) => tries += 1,
                Err(Drop::HandshakeBudget) => break,
                Err(reason) => assert_eq!(reason, Drop::HandshakeSourceBudget),
            }
        }
        tries
    }

    #[test]
    fn each_key_can_be_tried_once_for_each_key_beside_the_limit() {
        let mut budget = Budget::new(0);
        (1..=10).for_each(|keys| budget.handle_key_added(keys));

        assert_eq!(exhaust(&mut budget, Budget::take_other), OTHERS_MAX + 100);
        budget.handle_period();
        assert_eq!(exhaust(&mut budget, Budget::take_other), OTHERS_MAX);
    }

    #[test]
    fn the_tries_that_new_keys_earn_are_limited_in_each_period() {
        let mut budget = Budget::new(0);
        (1..=1_000).for_each(|keys| budget.handle_key_added(keys));

        for earned in [ON_START_MAX, 1_000_000 - ON_START_MAX, 0] {
            let tries = exhaust(&mut budget, Budget::take_other);
            assert_eq!(tries, OTHERS_MAX + earned);
            budget.handle_period();
        }
    }

    #[test]
    fn a_key_that_comes_and_goes_earns_no_tries() {
        let mut budget = Budget::new(0);
        (0..1_000).for_each(|_| budget.handle_key_added(2));

        assert_eq!(budget.on_start, 4);
    }

    #[test]
    fn senders_without_a_hint_take_nothing_from_those_with_one() {
        let mut budget = Budget::new(0);

        exhaust(&mut budget, Budget::take_other);

        assert_eq!(exhaust(&mut budget, Budget::take_hinted), HINTED_MAX);
    }

    #[test]
    fn a_source_uses_its_own_share_and_no_more() {
        let mut budget = Budget::new(7);
        let (greedy, other) = (source(&budget, 1), source(&budget, 2));
        assert_ne!(greedy.0, other.0, "another salt, please");

        while budget.take_other(greedy).is_ok() {}

        assert_eq!(budget.others, OTHERS_MAX - SOURCE_TRIES);
        assert_eq!(budget.take_other(other), Ok(()));

        while budget.take_hinted(greedy).is_ok() {}

        assert_eq!(budget.hinted, HINTED_MAX - SOURCE_TRIES);
        assert_eq!(budget.take_hinted(other), Ok(()));
    }

    #[test]
    fn tries_without_a_hint_leave_a_source_its_hinted_ones_and_conversely() {
        let mut budget = Budget::new(0);
        let [a, b] = [1, 2].map(|number| source(&budget, number));

        while budget.take_other(a).is_ok() {}
        while budget.take_hinted(b).is_ok() {}

        assert_eq!(budget.take_hinted(a), Ok(()));
        assert_eq!(budget.take_other(b), Ok(()));
    }

    #[test]
    fn a_source_may_scan_all_keys_however_many_there_are() {
        let mut budget = Budget::new(0);
        (1..=5_000).for_each(|keys| budget.handle_key_added(keys));
        let source = source(&budget, 1);

        for _ in 0..5_000 * SOURCE_SCANS {
            assert_eq!(budget.take_other(source), Ok(()));
        }
        assert_eq!(budget.take_other(source), Err(Drop::HandshakeSourceBudget));
    }
}
