//! Generates, stores and formats WireGuard keys.

use anyhow::{Context as _, Result};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};

/// A WireGuard key pair (Curve25519).
#[derive(Clone)]
pub struct Key {
    private: [u8; 32],
}

impl Key {
    /// Generates a random key pair.
    ///
    /// # Errors
    ///
    /// Returns an error if `/dev/urandom` cannot be read.
    pub fn generate() -> Result<Self> {
        let mut private = [0; 32];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut private))
            .context("failed to read /dev/urandom")?;

        Ok(Self { private })
    }

    /// Reads the key pair in `directory`. If there is none, generates and stores a key pair.
    ///
    /// The file names are those of a mounted Secret with a gateway's keys.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or written, or does not contain 32 bytes.
    pub fn open(directory: &Path) -> Result<Self> {
        let path = directory.join("privateKey");
        if let Ok(bytes) = fs::read(&path) {
            let private = bytes
                .try_into()
                .map_err(|_| anyhow::anyhow!("{path:?} does not contain 32 bytes"))?;
            return Ok(Self { private });
        }

        let key = Self::generate()?;
        fs::create_dir_all(directory).context("failed to create a key directory")?;
        for (name, bytes) in [("privateKey", key.private), ("publicKey", key.public())] {
            let path = directory.join(name);
            fs::write(&path, bytes).with_context(|| format!("failed to write {path:?}"))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
                .context("failed to protect a key")?;
        }

        Ok(key)
    }

    /// Returns the raw private key. `wg genkey` prints private keys in base64.
    pub fn private(&self) -> [u8; 32] {
        self.private
    }

    /// Returns the raw public key of the pair.
    pub fn public(&self) -> [u8; 32] {
        x25519(self.private, X25519_BASEPOINT_BYTES)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Key({})", base64(&self.public()))
    }
}

/// Encodes bytes in the base64 of RFC 4648 with padding, which `wg` and Kubernetes use.
pub fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    bytes
        .chunks(3)
        .flat_map(|chunk| {
            let bits = chunk
                .iter()
                .chain([0, 0].iter())
                .take(3)
                .fold(0_usize, |bits, &byte| bits << 8 | usize::from(byte));
            let letter = |index: usize| char::from(LETTERS[bits >> (18 - 6 * index) & 63]);
            let letters = [0, 1, 2, 3].map(letter);
            let length = chunk.len() + 1;
            std::array::from_fn::<_, 4, _>(
                |index| {
                    if index < length { letters[index] } else { '=' }
                },
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_matches_the_rfcs_test_vectors() {
        let cases = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ];

        for (plain, coded) in cases {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn two_generated_keys_differ() {
        let [a, b] = [Key::generate().unwrap(), Key::generate().unwrap()];

        assert_ne!(a.public(), b.public());
    }
}
