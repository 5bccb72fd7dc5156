//! Limits on the work that handshake messages may cause before their sender is authenticated.
//!
//! mac1 does not name the local key that a message is for, so the gateway tries its keys one after
//! another. A *try* computes mac1 with one local key, which takes 0.5 us. The key hint in the
//! sender index (`engine/index.rs`) selects the keys that are tried first.
//!
//! Tries of keys that match the hint and tries of all other keys are limited separately. Both have
//! a limit per source address and a global limit for all sources. All limits apply to one period,
//! which is one second (`engine/keys.rs`).
//!
//! An attacker can spoof any source address, so these attacks remain possible. The numbers are for
//! a gateway with 1,000 keys, four per hint:
//!
//! | spoofed addresses | initiations per second | cannot connect until the next period |
//! |---|---|---|
//! | many | 100 (600 in the first seconds after a start) | clients that send no hint |
//! | many | 25,000 | all clients |
//! | address of one client | 5 | this client, if it sends no hint |
//! | address of one client | 1,000 | this client |
//!
//! These attacks do not affect a client from whose address the gateway has received data. The
//! gateway remembers the local key that this address used last (`engine/keys/recent.rs`). It tries
//! this key first, and counts this try towards no limit.

use crate::engine::drops::Drop;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;

/// Global limit of tries per period for keys that match the hint. These tries take 5 % of a core.
/// With 1,000 keys, four per hint, they suffice for 25,000 initiations.
const HINTED_MAX: u32 = 100_000;
/// Global limit of tries per period for all other keys. These tries take 5 % of a core. With 1,000
/// keys, they suffice for 100 initiations. After a start, [`Budget::on_start`] adds tries.
const OTHERS_MAX: u32 = 100_000;
/// Limit of tries per period and source. It applies separately to keys that match the hint and to
/// all other keys. It suffices for 512 initiations with a hint that eight keys match.
const SOURCE_TRIES: u32 = 4_096;
/// Minimum number of initiations without a hint that each source may send per period. With more
/// than 1,024 keys, [`SOURCE_TRIES`] would allow fewer, and is raised.
const SOURCE_SCANS: u32 = 4;
/// Maximum number of tries that one period may take from [`Budget::on_start`]. They take 25 % of a
/// core.
const ON_START_MAX: u32 = 500_000;
/// Limit of handshakes per period and source for keys that are under load. Two clusters with four
/// replicas each have 32 sessions per lane, at two addresses per replica. Behind a NAT, all these
/// sessions may have the same source address.
const SOURCE_HANDSHAKES: u32 = 32;
/// Number of entries in the table of sources, which takes 12 KiB. Sources whose hashes collide
/// share an entry, so a flood from many sources could exhaust the limit of another source. The
/// flood exhausts the global limits first.
const SOURCES: usize = 1_024;

/// Tries and handshakes that the limits still allow.
pub(super) struct Budget {
    sources: Box<[Spent; SOURCES]>,
    salt: u64,
    /// Remaining tries of this period for keys that match the hint.
    hinted: u32,
    /// Remaining tries of this period for all other keys.
    others: u32,
    /// Additional tries for keys that do not match the hint. Each new key adds tries, and unused
    /// tries remain for later periods. A period takes them after `others` is used up, at most
    /// [`ON_START_MAX`].
    ///
    /// After a start, no source has a remembered key, and all peers connect at once. With n keys,
    /// each of n peers that send no hint needs up to n tries. For 1,000 keys, these n * n tries
    /// take half a second of a core. An attacker who uses them up delays such peers by seconds.
    on_start: u32,
    /// Number of tries that this period may still take from `on_start`.
    on_start_now: u32,
    /// Limit of tries per period and source for keys that do not match the hint: [`SOURCE_TRIES`],
    /// or [`SOURCE_SCANS`] tries of every key if that is more.
    source_tries: u32,
}

/// Tries and handshakes that a source has used in this period.
#[derive(Clone, Copy, Default)]
struct Spent {
    hinted: u32,
    others: u32,
    handshakes: u32,
}

/// Position of a source's entry in `Budget::sources`.
#[derive(Clone, Copy)]
pub(super) struct Source(usize);

impl Budget {
    /// Creates the budget of a gateway without keys. `salt` is secret, so that an attacker cannot
    /// choose a source address that shares the entry of a given client.
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

    /// Raises the limits for a new local key. `keys` is the number of keys, including the new one.
    pub(super) fn handle_key_added(&mut self, keys: usize) {
        let keys = u32::try_from(keys).unwrap_or(u32::MAX);
        let all = keys.saturating_mul(keys);
        // The n-th key adds 2 n - 1 tries, so n keys add n * n tries. The upper bound `all`
        // prevents a key that is repeatedly removed and added from adding tries each time.
        let growth = keys.saturating_mul(2).saturating_sub(1);
        self.on_start = self.on_start.saturating_add(growth).min(all);
        self.source_tries = SOURCE_TRIES.max(keys.saturating_mul(SOURCE_SCANS));
    }

    /// Starts a period. Only `on_start` keeps its value.
    pub(super) fn handle_period(&mut self) {
        self.sources.fill(Spent::default());
        self.hinted = HINTED_MAX;
        self.others = OTHERS_MAX;
        self.on_start_now = ON_START_MAX;
    }

    /// Returns the entry of a source address. The addresses of an IPv6 /64 prefix share an entry,
    /// because one host may use all of them.
    pub(super) fn source(&self, address: IpAddr) -> Source {
        let mut hasher = DefaultHasher::new();
        match address {
            IpAddr::V4(ip) => (self.salt, ip).hash(&mut hasher),
            IpAddr::V6(ip) => (self.salt, &ip.octets()[..8]).hash(&mut hasher),
        }

        Source((hasher.finish() % SOURCES as u64) as usize)
    }

    /// Counts the try of a key that matches the hint.
    ///
    /// # Errors
    ///
    /// Returns the reason to drop the message if a limit is reached.
    pub(super) fn take_hinted(&mut self, source: Source) -> Result<(), Drop> {
        take_of_source(&mut self.sources[source.0].hinted, SOURCE_TRIES)?;
        if self.hinted == 0 {
            return Err(Drop::HandshakeBudget);
        }
        self.hinted -= 1;

        Ok(())
    }

    /// Counts the try of a key that does not match the hint.
    ///
    /// # Errors
    ///
    /// Returns the reason to drop the message if a limit is reached.
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

    /// Counts a handshake from `source` for a key that is under load. Returns whether the source is
    /// within its limit of [`SOURCE_HANDSHAKES`].
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

    /// Takes 64 tries from each of many sources until the global limit is reached. Returns the
    /// number of tries.
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
