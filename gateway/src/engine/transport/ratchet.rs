//! Keys that nobody can guess, from one seed, which is forgotten key by key.

use ring::hmac::{HMAC_SHA256, Key, sign};

/// A secret from which each key is derived, and with each the next secret: from what is kept no
/// earlier key can be found.
pub(in crate::engine) struct Ratchet([u8; 32]);

impl Ratchet {
    /// Starts with 32 bytes of the system's randomness, which nobody else may keep.
    pub(in crate::engine) fn new(seed: [u8; 32]) -> Self {
        Self(derive(&seed, b"liqo data keys"))
    }

    /// Returns the next key.
    pub(in crate::engine) fn next_key(&mut self) -> [u8; 32] {
        let key = derive(&self.0, b"key");
        self.0 = derive(&self.0, b"next");

        key
    }
}

/// HMAC-SHA-256 (RFC 2104), which is a pseudorandom function of `name`.
fn derive(secret: &[u8; 32], name: &[u8]) -> [u8; 32] {
    let tag = sign(&Key::new(HMAC_SHA256, secret), name);

    tag.as_ref().try_into().expect("a digest of 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_key_comes_twice_and_none_is_kept() {
        let mut ratchet = Ratchet::new([7; 32]);
        let mut keys = BTreeSet::new();

        for _ in 0..100 {
            let key = ratchet.next_key();
            assert_ne!(ratchet.0, key);
            assert!(keys.insert(key));
        }
        assert!(!keys.contains(&[7; 32]));
        assert_ne!(
            Ratchet::new([8; 32]).next_key(),
            Ratchet::new([7; 32]).next_key()
        );
    }
}
