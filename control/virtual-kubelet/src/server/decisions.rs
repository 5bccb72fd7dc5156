//! Decisions of the API server that are remembered for a short time.

use super::review::Fingerprint;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Most decisions that are remembered.
const DECISIONS_MAX: usize = 1024;

/// How long a positive decision counts: a right that is withdrawn lasts this long.
pub(crate) const POSITIVE_LIFETIME: Duration = Duration::from_secs(10);

/// How long a negative decision counts.
pub(crate) const NEGATIVE_LIFETIME: Duration = Duration::from_secs(5);

/// Decisions, by what they depend on.
#[derive(Debug)]
pub(crate) struct Decisions<T> {
    /// Each with the end of its lifetime.
    entries: BTreeMap<Fingerprint, (Instant, T)>,
}

impl<T> Default for Decisions<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
        }
    }
}

impl<T: Clone> Decisions<T> {
    /// Returns a decision that still counts.
    pub(crate) fn get(&self, fingerprint: &Fingerprint, now: Instant) -> Option<T> {
        let (end, decision) = self.entries.get(fingerprint)?;
        (now < *end).then(|| decision.clone())
    }

    /// Remembers a decision. If there are too many, the one that ends next is dropped.
    pub(crate) fn put(
        &mut self,
        fingerprint: Fingerprint,
        decision: T,
        is_positive: bool,
        now: Instant,
    ) {
        if self.entries.len() >= DECISIONS_MAX {
            self.entries.retain(|_, (end, _)| now < *end);
        }
        if self.entries.len() >= DECISIONS_MAX {
            let next = self.entries.iter().min_by_key(|(_, (end, _))| *end);
            let next = next.map(|(fingerprint, _)| *fingerprint);
            next.and_then(|next| self.entries.remove(&next));
        }
        let lifetime = match is_positive {
            true => POSITIVE_LIFETIME,
            false => NEGATIVE_LIFETIME,
        };
        self.entries.insert(fingerprint, (now + lifetime, decision));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(number: usize) -> Fingerprint {
        let mut fingerprint = Fingerprint::default();
        fingerprint[..8].copy_from_slice(&number.to_be_bytes());
        fingerprint
    }

    #[test]
    fn a_decision_counts_until_its_lifetime_ends() {
        let mut decisions = Decisions::default();
        let start = Instant::now();
        decisions.put(fingerprint(1), "yes", true, start);
        decisions.put(fingerprint(2), "no", false, start);

        let at = |after: Duration, number| decisions.get(&fingerprint(number), start + after);
        assert_eq!(at(Duration::from_millis(4999), 2), Some("no"));
        assert_eq!(at(NEGATIVE_LIFETIME, 2), None);
        assert_eq!(at(NEGATIVE_LIFETIME, 1), Some("yes"));
        assert_eq!(at(POSITIVE_LIFETIME, 1), None);
        assert_eq!(at(Duration::ZERO, 3), None);
    }

    #[test]
    fn many_decisions_take_a_bounded_memory() {
        let mut decisions = Decisions::default();
        let start = Instant::now();
        for number in 0..2 * DECISIONS_MAX {
            let at = start + Duration::from_millis(number.try_into().unwrap());
            decisions.put(fingerprint(number), number, true, at);
            assert!(decisions.entries.len() <= DECISIONS_MAX);
        }

        let last = 2 * DECISIONS_MAX - 1;
        let now = start + Duration::from_millis(last.try_into().unwrap());
        assert_eq!(decisions.get(&fingerprint(last), now), Some(last));
        assert_eq!(decisions.get(&fingerprint(0), now), None);
    }
}
