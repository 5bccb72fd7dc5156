//! A writer that knows the digest of what went through it.

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::io::{self, Write};

/// What every digest begins with.
pub(super) const ALGORITHM: &str = "sha256:";

/// Passes bytes on, counts them and computes their sum.
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

    /// How many bytes went through.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// `sha256:` and the sum of what went through, in hexadecimal.
    pub(super) fn digest(&self) -> String {
        let sum = self.hash.clone().finalize();

        sum.iter().fold(ALGORITHM.to_owned(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Returns what it wrote to.
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
