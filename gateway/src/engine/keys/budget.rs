//! Limits on the work that a handshake message may cause before its sender is authenticated.
//!
//! A *try* computes mac1 with one of our keys: 0.5 us. Tries are limited per source first, then over all sources, with
//! separate limits for keys at which the sender index hints (`engine/index.rs`) and for all others. So an attacker who
//! makes up source addresses and sends 100 wrong initiations a second to a gateway of 1,000 keys uses up what senders without
//! a hint may use, and nothing of our own clients' share; for that it takes 25,000 a second.

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
/// Handshakes per period and source while a key is under load. A site of four
/// replicas has 32 sessions of one lane with another, at two addresses each, behind one of its own.
const SOURCE_HANDSHAKES: u32 = 32;
/// Counters of sources, 8 KiB in all. Sources share a counter by hash, so a flood from many sources may use up a
/// quiet one's share; it would use up the limits over all sources first.
const SOURCES: usize = 1_024;

/// The limits of one period.
pub(super) struct Budget {
    sources: Box<[Spent; SOURCES]>,
    salt: u64,
    hinted: u32,
    others: u32,
    /// Beside `others`, for as long as the process lives.
    ///
    /// After a start no source is known, and all peers call at once: n peers with a key each and no hint need n tries
    /// each at most, half a second of a core for 1,000 keys. An attacker who uses them up delays such peers by seconds.
    on_start: u32,
    source_tries: u32,
}

/// What a source has used of its share.
#[derive(Clone, Copy, Default)]
struct Spent {
    tries: u32,
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
        self.take_of_source(source)?;
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
        self.take_of_source(source)?;
        let from = if self.others > 0 {
            &mut self.others
        } else {
            &mut self.on_start
        };
        if *from == 0 {
            return Err(Drop::HandshakeBudget);
        }
        *from -= 1;

        Ok(())
    }

    fn take_of_source(&mut self, source: Source) -> Result<(), Drop> {
        let spent = &mut self.sources[source.0].tries;
        if *spent >= self.source_tries {
            return Err(Drop::HandshakeSourceBudget);
        }
        *spent += 1;

        Ok(())
    }

    /// Takes a handshake of a source while a key is under load; returns whether it is within the source's share.
    pub(super) fn take_handshake(&mut self, source: Source) -> bool {
        let spent = &mut self.sources[source.0].handshakes;
        *spent = spent.saturating_add(1);

        *spent <= SOURCE_HANDSHAKES
    }
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
    fn a_key_that_comes_and_goes_earns_no_tries() {
        let mut budget = Budget::new(0);
        (0..1_000).for_each(|_| budget.handle_key_added(2));

        assert_eq!(budget.on_start, 4);
    }

    #[test]
    fn senders_without_a_hint_take_nothing_from_those_with_one() {
        let mut budget = Budget::new(0);

        exhaust(&mut budget, Budget::take_other);
        budget.sources.fill(Spent::default());

        assert_eq!(exhaust(&mut budget, Budget::take_hinted), HINTED_MAX);
    }

    #[test]
    fn a_source_uses_its_own_share_and_no_more() {
        let mut budget = Budget::new(7);
        let (greedy, other) = (source(&budget, 1), source(&budget, 2));
        assert_ne!(greedy.0, other.0, "another salt, please");

        while budget.take_other(greedy).is_ok() {}

        assert_eq!(budget.others, OTHERS_MAX - SOURCE_TRIES);
        assert_eq!(budget.take_hinted(greedy), Err(Drop::HandshakeSourceBudget));
        assert_eq!(budget.take_hinted(other), Ok(()));
        assert_eq!(budget.take_other(other), Ok(()));
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
