//! Pseudorandom numbers derived from one seed.

use std::hash::{DefaultHasher, Hasher as _};

/// A generator that hashes its seed and a counter with SipHash.
///
/// It is not a cryptographic generator. It chooses slots and one salt for a hash table. Slots are
/// sent in plain text, and a predicted slot does not help an attacker, because every message is
/// authenticated.
#[derive(Clone, Debug)]
pub(super) struct Rng {
    seed: [u8; 32],
    counter: u64,
}

impl Rng {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        Self { seed, counter: 0 }
    }

    pub(super) fn next_u64(&mut self) -> u64 {
        self.counter += 1;
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.seed);
        hasher.write_u64(self.counter);
        hasher.finish()
    }

    /// Returns a random number of 24 bits.
    pub(super) fn next_index(&mut self) -> u32 {
        (self.next_u64() >> 40) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let (mut a, mut b) = (Rng::new([7; 32]), Rng::new([7; 32]));

        let sequence: Vec<_> = (0..8).map(|_| a.next_index()).collect();

        assert!(sequence.iter().all(|index| *index < 1 << 24));
        assert_eq!(sequence, (0..8).map(|_| b.next_index()).collect::<Vec<_>>());
        assert_ne!(sequence[0], Rng::new([8; 32]).next_index());
    }
}
