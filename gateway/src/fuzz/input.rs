//! The fuzzer's bytes, read as numbers and slices.

/// What is left of an input; zeros follow its end.
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

    /// Returns one of `0..count`, which must not be empty.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::from(self.word()) % count
    }

    /// Returns the next bytes, up to `len`.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// Returns bytes that are preceded by their length, of 16 bits.
    pub(crate) fn chunk(&mut self) -> &'a [u8] {
        let len = usize::from(self.word());
        self.bytes(len)
    }
}
