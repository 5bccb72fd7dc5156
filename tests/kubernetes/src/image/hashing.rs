//! A writer that computes the digest of its bytes.

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::io::{self, Write};

/// The prefix of digests.
pub(super) const ALGORITHM: &str = "sha256:";

/// Forwards bytes, counts them and computes their hash.
#[derive(Debug)]
pub(super) struct Hashing<W> {
    out: W,
    hash: Sha256,
    written: u64,
}

impl<W> Hashing<W> {
    pub(super) fn new(out: W) -> Self {
        Self {
            out,
            hash: Sha256::new(),
            written: 0,
        }
    }

    /// The number of forwarded bytes.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// `sha256:` and the hash of the forwarded bytes in hexadecimal.
    pub(super) fn digest(&self) -> String {
        let sum = self.hash.clone().finalize();

        sum.iter().fold(ALGORITHM.to_owned(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Returns the inner writer.
    pub(super) fn into_inner(self) -> W {
        self.out
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.written += count as u64;

        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
