//! A short digest of all inputs of a build, which identifies the cached result.

use sha2::{Digest as _, Sha256};

/// The length of a digest, in hexadecimal digits. 48 bits are enough against accidental
/// collisions. Intentional collisions are no threat, because an attacker who can write to the
/// cache can also replace a result.
const LENGTH: usize = 12;

/// A hash over all inputs that were added.
#[derive(Default)]
pub(super) struct Inputs(Sha256);

impl Inputs {
    /// Adds an input. The lengths are hashed, too, so that different divisions of the same bytes
    /// into name and content have different digests.
    pub(super) fn add(&mut self, name: &str, content: &str) {
        for text in [name, content] {
            self.0.update(text.len().to_be_bytes());
            self.0.update(text);
        }
    }

    pub(super) fn digest(self) -> String {
        let digest = self.0.finalize();
        let digits = digest.iter().map(|byte| format!("{byte:02x}"));

        digits.take(LENGTH / 2).collect()
    }
}

/// Returns whether `text` has the format of a digest.
pub(super) fn is_digest(text: &str) -> bool {
    text.len() == LENGTH && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_the_same_on_every_machine() {
        // The expected value is the output of `printf '\0\0\0\0\0\0\0\1a\0\0\0\0\0\0\0\2bc' |
        // sha256sum`.
        assert_eq!(digest(&[("a", "bc")]), "3fafa1cf2f19");
    }

    #[test]
    fn names_contents_order_and_boundaries_change_the_digest() {
        let different = [
            digest(&[("a", "bc")]),
            digest(&[("ab", "c")]),
            digest(&[("a", "bd")]),
            digest(&[("a", "bc"), ("", "")]),
            digest(&[("x", "1"), ("y", "2")]),
            digest(&[("y", "2"), ("x", "1")]),
        ];

        let unique: std::collections::BTreeSet<_> = different.iter().collect();
        assert_eq!(unique.len(), different.len());
    }

    fn digest(inputs: &[(&str, &str)]) -> String {
        let mut all = Inputs::default();
        for (name, content) in inputs {
            all.add(name, content);
        }
        all.digest()
    }
}
