//! Stores the local static keys, and limits the work that a flood of handshakes may cause.
//!
//! An initiation has to pass these checks before the first Diffie-Hellman, cheapest first:
//!
//! - mac1, with the local key that the source used last; this check is not limited
//! - mac1, with the keys that match the key hint in the sender index, then with all other keys;
//!   each key takes 0.5 us, and [`Budget`] limits the number of keys
//! - mac2, if the key is under load; this takes 1 us
//! - the limit of handshakes per source, if the key is under load

mod budget;
mod recent;

use super::drops::Drop;
use super::index;
use super::key::PrivateKey;
use super::noise::{HANDSHAKE_BUFFER, LocalKey, Verdict};
use budget::{Budget, Source};
use recent::RecentKeys;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Period after which all limits are reset.
const PERIOD: Duration = Duration::from_secs(1);

/// Local keys by their public key. The first byte of the public key is the key hint
/// (`engine/index.rs`).
pub(super) struct Keys {
    keys: BTreeMap<[u8; 32], LocalKey>,
    recent: RecentKeys,
    budget: Budget,
    reset_at: Instant,
}

/// Reason to drop a handshake message, with the cookie reply to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: Drop,
    /// Length of the cookie reply in the output buffer; `None` if none must be sent.
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
            recent: RecentKeys::default(),
            budget: Budget::new(salt),
            reset_at: now + PERIOD,
        }
    }

    /// Adds a key unless it is present, and returns its public key.
    pub(super) fn add(&mut self, private: &PrivateKey) -> [u8; 32] {
        let public = super::noise::public_key(private);
        if let Entry::Vacant(entry) = self.keys.entry(public) {
            entry.insert(LocalKey::new(private));
            self.budget.handle_key_added(self.keys.len());
        }

        public
    }

    /// Removes the keys whose public key `is_used` rejects.
    pub(super) fn retain(&mut self, is_used: impl Fn(&[u8; 32]) -> bool) {
        self.keys.retain(|public, _| is_used(public));
        self.recent.retain(is_used);
    }

    pub(super) fn get(&self, public: &[u8; 32]) -> Option<&LocalKey> {
        self.keys.get(public)
    }

    /// Remembers that `from` uses the local key `public`. The caller must have received a data
    /// message from this address. An initiation is not sufficient, because an attacker may replay
    /// it from any address.
    pub(super) fn remember(&mut self, from: IpAddr, public: [u8; 32]) {
        self.recent.remember(from, public);
    }

    /// Returns the local key that `from` used last.
    #[cfg(test)]
    pub(super) fn recent(&self, from: IpAddr) -> Option<[u8; 32]> {
        self.recent.get(from)
    }

    /// Returns the public key of the local key that an initiation is for. If all checks succeed,
    /// the caller may spend a Diffie-Hellman on the initiation.
    pub(super) fn verify(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        out: &mut [u8; HANDSHAKE_BUFFER],
    ) -> Result<[u8; 32], Refusal> {
        let source = self.budget.source(from.ip());
        let recent = self.recent.get(from.ip());
        if let Some(public) = recent
            && let Some(key) = self.keys.get_mut(&public)
        {
            let verdict = key.verify(from, datagram, out);
            if verdict != Verdict::OtherKey {
                return self.conclude(public, verdict, source);
            }
        }

        let hinted = index::hint_of(datagram).map(with_hint);
        let is_hinted = |key: &[u8; 32]| hinted.as_ref().is_some_and(|range| range.contains(key));
        if let Some(range) = hinted.clone() {
            for (public, key) in self.keys.range_mut(range) {
                if Some(*public) == recent {
                    continue;
                }
                self.budget.take_hinted(source)?;
                let verdict = key.verify(from, datagram, out);
                if verdict != Verdict::OtherKey {
                    let public = *public;
                    return self.conclude(public, verdict, source);
                }
            }
        }
        for (public, key) in &mut self.keys {
            if Some(*public) == recent || is_hinted(public) {
                continue;
            }
            self.budget.take_other(source)?;
            let verdict = key.verify(from, datagram, out);
            if verdict != Verdict::OtherKey {
                let public = *public;
                return self.conclude(public, verdict, source);
            }
        }

        Err(Drop::InvalidMac.into())
    }

    /// Resets all limits if the period has ended.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if now < self.reset_at {
            return;
        }

        self.reset_at = now + PERIOD;
        self.budget.handle_period();
        for key in self.keys.values_mut() {
            key.reset_load();
        }
    }

    fn conclude(
        &mut self,
        public: [u8; 32],
        verdict: Verdict,
        source: Source,
    ) -> Result<[u8; 32], Refusal> {
        match verdict {
            Verdict::OtherKey => Err(Drop::InvalidMac.into()),
            Verdict::Cookie(len) => Err(Refusal {
                reason: Drop::CookieSent,
                cookie: Some(len),
            }),
            Verdict::Verified => Ok(public),
            Verdict::VerifiedUnderLoad if self.budget.take_handshake(source) => Ok(public),
            Verdict::VerifiedUnderLoad => Err(Drop::HandshakeRate.into()),
        }
    }
}

/// Returns the range of public keys that have the hint as their first byte.
fn with_hint(hint: u8) -> RangeInclusive<[u8; 32]> {
    let (mut first, mut last) = ([0; 32], [0xff; 32]);
    (first[0], last[0]) = (hint, hint);

    first..=last
}
