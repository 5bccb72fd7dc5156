//! Reads the fuzzer's bytes as numbers and slices.

/// The unread part of an input. A number that is read beyond the end is zero.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    pub(crate) fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// Returns a number below `count`, which must not be zero.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::from(self.word()) % count
    }

    /// Returns the next `len` bytes, or fewer at the end of the input.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// Reads a 16-bit length, and returns that many bytes.
    pub(crate) fn chunk(&mut self) -> &'a [u8] {
        let len = usize::from(self.word());
        self.bytes(len)
    }
}
