//! The nonce that a consumer signs to prove to a provider that it holds its key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Returns the nonce of 64 random bytes: their standard base64 text, 88 characters.
///
/// The text is what is signed, not the bytes.
pub fn nonce(random: [[u8; 32]; 2]) -> String {
    STANDARD.encode(random.as_flattened())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_padded_base64_of_64_bytes() {
        let text = nonce([[0; 32], [255; 32]]);

        assert_eq!(text.len(), 88);
        assert!(text.ends_with("w=="), "{text}");
        assert_ne!(text, nonce([[0; 32], [254; 32]]));
    }
}
