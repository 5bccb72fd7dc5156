//! Our static keys, and the defence of the handshake against floods.
//!
//! A handshake passes, in this order and at this cost: the budget for trying keys
//! (nothing), mac1 of one key after the other (0.5 us each), the cookie while that
//! key is under load (1 us), the source's share while under load (nothing). Only then comes
//! the first Diffie-Hellman.

use super::drops::Drop;
use super::noise::{HANDSHAKE_BUFFER, LocalKey, Verdict};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// How often counts start anew.
const PERIOD: Duration = Duration::from_secs(1);
/// Keys tried per period for senders never heard of: 5 % of a core. The wide
/// case is 1,000 keys, one per peering: then 100 strangers a second. Beside these,
/// see [`Tries`].
const TRIES_MAX: u32 = 100_000;
/// Handshakes per period and source while a key is under load. A site of four
/// replicas has 32 sessions of one lane with another, at two addresses each, behind one of its own.
const SOURCE_MAX: u16 = 32;
/// Counters of sources; they share by hash.
const SOURCES: usize = 1_024;
/// Sources remembered with the key that they use.
const HINTS_MAX: usize = 4_096;

/// Our keys by their public half.
pub(super) struct Keys {
    keys: BTreeMap<[u8; 32], LocalKey>,
    hints: Hints,
    tries: Tries,
    sources: Box<[u16; SOURCES]>,
    salt: u64,
    reset_at: Instant,
}

/// Why a handshake message goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: Drop,
    /// Length of the cookie message in the buffer, to be sent.
    pub(super) cookie: Option<usize>,
}

impl From<Drop> for Refusal {
    fn from(reason: Drop) -> Self {
        Self {
            reason,
            cookie: None,
        }
    }
}

impl Keys {
    pub(super) fn new(salt: u64, now: Instant) -> Self {
        Self {
            keys: BTreeMap::new(),
            hints: Hints::default(),
            tries: Tries {
                left: TRIES_MAX,
                once: 0,
            },
            sources: Box::new([0; SOURCES]),
            salt,
            reset_at: now + PERIOD,
        }
    }

    /// Adds a key unless it is there, and returns its public half.
    pub(super) fn add(&mut self, private: [u8; 32]) -> [u8; 32] {
        let public = super::noise::public_key(private);
        if let Entry::Vacant(entry) = self.keys.entry(public) {
            entry.insert(LocalKey::new(private));
            self.tries.handle_key_added(self.keys.len());
        }

        public
    }

    /// Keeps the keys that `is_used` tells by their public half.
    pub(super) fn retain(&mut self, is_used: impl Fn(&[u8; 32]) -> bool) {
        self.keys.retain(|public, _| is_used(public));
        self.hints.retain(is_used);
    }

    pub(super) fn get(&self, public: &[u8; 32]) -> Option<&LocalKey> {
        self.keys.get(public)
    }

    /// Remembers that `from` uses the key `public`: shown by data under a session's
    /// keys, for an initiation may be a copy from anywhere.
    pub(super) fn remember(&mut self, from: IpAddr, public: [u8; 32]) {
        self.hints.remember(from, public);
    }

    /// Returns the key that `from` is remembered with.
    #[cfg(test)]
    pub(super) fn hint(&self, from: IpAddr) -> Option<[u8; 32]> {
        self.hints.get(from)
    }

    /// Finds the key that an initiation is meant for, and checks that its sender
    /// may go on.
    pub(super) fn verify(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        out: &mut [u8; HANDSHAKE_BUFFER],
    ) -> Result<[u8; 32], Refusal> {
        let hint = self.hints.get(from.ip());
        if let Some(public) = hint
            && let Some(key) = self.keys.get_mut(&public)
        {
            let verdict = key.verify(from, datagram, out);
            if verdict != Verdict::OtherKey {
                return self.admit(public, verdict, from);
            }
        }

        let others = self.keys.iter_mut().filter(|(key, _)| Some(**key) != hint);
        for (public, key) in others {
            if !self.tries.take() {
                return Err(Drop::HandshakeBudget.into());
            }
            let verdict = key.verify(from, datagram, out);
            if verdict != Verdict::OtherKey {
                let public = *public;
                return self.admit(public, verdict, from);
            }
        }

        Err(Drop::InvalidMac.into())
    }

    /// Starts the counts anew when it is time.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if now < self.reset_at {
            return;
        }

        self.reset_at = now + PERIOD;
        self.tries.left = TRIES_MAX;
        self.sources.fill(0);
        for key in self.keys.values_mut() {
            key.reset_load();
        }
    }

    fn admit(
        &mut self,
        public: [u8; 32],
        verdict: Verdict,
        from: SocketAddr,
    ) -> Result<[u8; 32], Refusal> {
        match verdict {
            Verdict::OtherKey => Err(Drop::InvalidMac.into()),
            Verdict::Cookie(len) => Err(Refusal {
                reason: Drop::CookieSent,
                cookie: Some(len),
            }),
            Verdict::Verified => Ok(public),
            Verdict::VerifiedUnderLoad if self.is_within_share(from.ip()) => Ok(public),
            Verdict::VerifiedUnderLoad => Err(Drop::HandshakeRate.into()),
        }
    }

    fn is_within_share(&mut self, source: IpAddr) -> bool {
        let mut hasher = DefaultHasher::new();
        match source {
            IpAddr::V4(ip) => (self.salt, ip).hash(&mut hasher),
            // One host has a /64.
            IpAddr::V6(ip) => (self.salt, &ip.octets()[..8]).hash(&mut hasher),
        }
        let count = &mut self.sources[(hasher.finish() % SOURCES as u64) as usize];
        *count = count.saturating_add(1);

        *count <= SOURCE_MAX
    }
}

/// How many keys may still be tried.
///
/// After a start nobody is known, and everybody calls at once: n peers with a key each try n
/// keys each at most. Those tries are granted once, beside those of each period: half a second
/// of a core for 1,000 keys. Whoever else uses them up delays the peers by some seconds.
struct Tries {
    /// In this period.
    left: u32,
    /// Beside, for as long as the process lives.
    once: u32,
}

impl Tries {
    /// Grants what a further key costs when it is one of `keys`.
    fn handle_key_added(&mut self, keys: usize) {
        let keys = u32::try_from(keys).unwrap_or(u32::MAX);
        let all = keys.saturating_mul(keys);
        // n squared grows by 2 n - 1; a key that comes and goes earns nothing.
        self.once = self.once.saturating_add(2 * keys - 1).min(all);
    }

    /// Takes one; returns whether there was any left.
    fn take(&mut self) -> bool {
        let from = if self.left > 0 {
            &mut self.left
        } else {
            &mut self.once
        };
        let is_left = *from > 0;
        *from = from.saturating_sub(1);

        is_left
    }
}

/// The keys with which sources authenticated last: tried first, for free.
#[derive(Default)]
struct Hints {
    by_source: BTreeMap<IpAddr, Hint>,
    /// The sources by when they were remembered last.
    by_turn: BTreeMap<u64, IpAddr>,
    next_turn: u64,
}

struct Hint {
    public: [u8; 32],
    turn: u64,
}

impl Hints {
    fn get(&self, source: IpAddr) -> Option<[u8; 32]> {
        self.by_source.get(&source).map(|hint| hint.public)
    }

    /// Remembers a source; where there are too many, the oldest gives way.
    fn remember(&mut self, source: IpAddr, public: [u8; 32]) {
        let turn = self.next_turn;
        self.next_turn += 1;
        if let Some(old) = self.by_source.insert(source, Hint { public, turn }) {
            self.by_turn.remove(&old.turn);
        }
        self.by_turn.insert(turn, source);

        if self.by_source.len() > HINTS_MAX
            && let Some((_, oldest)) = self.by_turn.pop_first()
        {
            self.by_source.remove(&oldest);
        }
    }

    fn retain(&mut self, is_used: impl Fn(&[u8; 32]) -> bool) {
        self.by_source.retain(|_, hint| is_used(&hint.public));
        self.by_turn
            .retain(|_, source| self.by_source.contains_key(source));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: usize) -> IpAddr {
        IpAddr::from(u32::try_from(number).unwrap().to_be_bytes())
    }

    #[test]
    fn each_key_can_be_tried_once_for_each_key_beside_the_budget() {
        let mut tries = Tries { left: 5, once: 0 };
        (1..=10).for_each(|keys| tries.handle_key_added(keys));

        for _ in 0..5 + 10 * 10 {
            assert!(tries.take());
        }
        assert!(!tries.take());
        tries.left = 1;
        assert!(tries.take() && !tries.take(), "the next period");
    }

    #[test]
    fn a_key_that_comes_and_goes_earns_no_tries() {
        let mut tries = Tries { left: 0, once: 0 };
        (0..1_000).for_each(|_| tries.handle_key_added(2));

        assert_eq!(tries.once, 4);
    }

    #[test]
    fn the_source_that_was_heard_least_recently_is_forgotten() {
        let mut hints = Hints::default();
        for number in 0..HINTS_MAX {
            hints.remember(source(number), [1; 32]);
        }

        hints.remember(source(0), [2; 32]);
        hints.remember(source(HINTS_MAX), [3; 32]);

        assert_eq!(hints.get(source(0)), Some([2; 32]), "heard again");
        assert_eq!(hints.get(source(1)), None, "the oldest");
        assert_eq!(hints.get(source(HINTS_MAX)), Some([3; 32]));
        assert_eq!(hints.by_turn.len(), HINTS_MAX);
    }

    #[test]
    fn the_hints_of_a_key_go_with_it() {
        let mut hints = Hints::default();
        hints.remember(source(1), [1; 32]);
        hints.remember(source(2), [2; 32]);

        hints.retain(|public| *public == [2; 32]);

        assert_eq!(hints.get(source(1)), None);
        assert_eq!(hints.get(source(2)), Some([2; 32]));
        assert_eq!(hints.by_turn.len(), 1);
    }
}
