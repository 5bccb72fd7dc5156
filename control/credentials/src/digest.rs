//! Digests as hexadecimal text.

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// Returns the SHA-256 of byte strings, in lower-case hexadecimal digits. The length of each is hashed before it, so
/// that other byte strings have another digest.
pub fn digest(parts: &[&[u8]]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.len().to_be_bytes());
        digest.update(part);
    }

    hex(&digest.finalize())
}

/// Returns bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }

    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boundaries_of_byte_strings_count() {
        let one = digest(&[b"ab", b"c"]);

        assert_eq!(one.len(), 64);
        assert_eq!(one, digest(&[b"ab", b"c"]));
        assert_ne!(one, digest(&[b"a", b"bc"]));
        assert_eq!(hex(&[0, 255]), "00ff");
    }
}
