//! Our static keys, and the defence of the handshake against floods.
//!
//! A handshake passes, in this order and at this cost: the budget for trying keys
//! (nothing), mac1 of one key after the other (0.5 us each), the cookie while that
//! key is under load (1 us), the source's share while under load (nothing). Only then comes
//! the first Diffie-Hellman.

use super::drops::Drop;
use super::noise::{HANDSHAKE_BUFFER, LocalKey, Verdict};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// How often counts start anew.
const PERIOD: Duration = Duration::from_secs(1);
/// Keys tried per period for senders never heard of: 5 % of a core. The wide
/// case is 1,000 keys, one per peering: then 100 strangers a second.
const TRIES_MAX: u32 = 100_000;
/// Handshakes per period and source while a key is under load. A site of four
/// replicas has 16 sessions behind one address.
const SOURCE_MAX: u16 = 32;
/// Counters of sources; they share by hash.
const SOURCES: usize = 1_024;
/// Sources remembered with the key that they use.
const HINTS_MAX: usize = 4_096;

/// Our keys by their public half.
pub(super) struct Keys {
    keys: BTreeMap<[u8; 32], LocalKey>,
    /// The key with which a source authenticated last: tried first, for free.
    hints: BTreeMap<IpAddr, [u8; 32]>,
    tries_left: u32,
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
            hints: BTreeMap::new(),
            tries_left: TRIES_MAX,
            sources: Box::new([0; SOURCES]),
            salt,
            reset_at: now + PERIOD,
        }
    }

    /// Adds a key unless it is there, and returns its public half.
    pub(super) fn add(&mut self, private: [u8; 32]) -> [u8; 32] {
        let public = super::noise::public_key(private);
        self.keys
            .entry(public)
            .or_insert_with(|| LocalKey::new(private));

        public
    }

    /// Keeps the keys that `is_used` tells by their public half.
    pub(super) fn retain(&mut self, is_used: impl Fn(&[u8; 32]) -> bool) {
        self.keys.retain(|public, _| is_used(public));
        self.hints.retain(|_, public| is_used(public));
    }

    pub(super) fn get(&self, public: &[u8; 32]) -> Option<&LocalKey> {
        self.keys.get(public)
    }

    /// Remembers that `from` uses the key `public`.
    pub(super) fn remember(&mut self, from: IpAddr, public: [u8; 32]) {
        if self.hints.len() < HINTS_MAX || self.hints.contains_key(&from) {
            self.hints.insert(from, public);
        }
    }

    /// Finds the key that an initiation is meant for, and checks that its sender
    /// may go on.
    pub(super) fn verify(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        out: &mut [u8; HANDSHAKE_BUFFER],
    ) -> Result<[u8; 32], Refusal> {
        let hint = self.hints.get(&from.ip()).copied();
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
            if self.tries_left == 0 {
                return Err(Drop::HandshakeBudget.into());
            }
            self.tries_left -= 1;
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
        self.tries_left = TRIES_MAX;
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
