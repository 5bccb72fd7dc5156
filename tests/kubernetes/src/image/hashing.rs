//! A writer that computes the digest of the bytes that it forwards.

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::io::{self, Write};

/// The prefix of all digests.
pub(super) const ALGORITHM: &str = "sha256:";

/// A writer that forwards, counts and hashes bytes.
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

    /// Returns the number of forwarded bytes.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Returns the digest of the forwarded bytes: `sha256:` and the hash in hexadecimal digits.
    pub(super) fn digest(&self) -> String {
        let sum = self.hash.clone().finalize();

        sum.iter().fold(ALGORITHM.to_owned(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

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
