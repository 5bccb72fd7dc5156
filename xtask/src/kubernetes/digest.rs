//! A short name for everything that a result depends on.

use sha2::{Digest as _, Sha256};

/// How many hexadecimal digits are kept: 48 bits, against accidents and not
/// against attackers, who could as well replace the result itself.
const LENGTH: usize = 12;

/// Inputs, as they are added.
#[derive(Default)]
pub(super) struct Inputs(Sha256);

impl Inputs {
    /// Adds an input. Lengths go in as well, or the end of one input could be
    /// taken for the beginning of the next.
    pub(super) fn add(&mut self, name: &str, content: &str) {
        for text in [name, content] {
            self.0.update(text.len().to_be_bytes());
            self.0.update(text);
        }
    }

    /// Returns the name of what was added.
    pub(super) fn digest(self) -> String {
        let digest = self.0.finalize();
        let digits = digest.iter().map(|byte| format!("{byte:02x}"));

        digits.take(LENGTH / 2).collect()
    }
}

/// Whether `text` can be a digest.
pub(super) fn is_digest(text: &str) -> bool {
    text.len() == LENGTH && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_inputs_have_the_same_digest_everywhere() {
        // `printf '\0\0\0\0\0\0\0\1a\0\0\0\0\0\0\0\2bc' | sha256sum`
        assert_eq!(digest(&[("a", "bc")]), "3fafa1cf2f19");
    }

    #[test]
    fn names_contents_order_and_borders_matter() {
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
