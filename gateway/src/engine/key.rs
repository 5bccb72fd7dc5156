//! Private keys, which are erased from memory when dropped.

use std::fmt;
use zeroize::Zeroize as _;

/// A WireGuard private key, overwritten in memory when dropped.
///
/// The key is on the heap, so that moving this value leaves no copy on the stack.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PrivateKey(Box<[u8; Self::LEN]>);

impl PrivateKey {
    /// Length of a key in bytes.
    pub(crate) const LEN: usize = 32;

    /// Creates a key whose bytes `fill` writes in place.
    ///
    /// # Errors
    ///
    /// Returns the error of `fill`.
    pub(crate) fn try_fill<E>(
        fill: impl FnOnce(&mut [u8; Self::LEN]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut key = Self(Box::new([0; Self::LEN]));
        fill(&mut key.0)?;

        Ok(key)
    }

    /// Creates a key from 32 bytes; returns `None` for any other length.
    pub(crate) fn from_slice(bytes: &[u8]) -> Option<Self> {
        Self::try_fill(|key| {
            let bytes: &[u8; Self::LEN] = bytes.try_into().map_err(drop)?;
            key.copy_from_slice(bytes);
            Ok::<_, ()>(())
        })
        .ok()
    }

    pub(crate) fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl Drop for PrivateKey {
    fn drop(&mut self) {
        self.0.zeroize();
        #[cfg(test)]
        tests::DROPPED.with(|dropped| dropped.set(Some(*self.0)));
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey")
    }
}

#[cfg(test)]
impl From<[u8; Self::LEN]> for PrivateKey {
    fn from(bytes: [u8; Self::LEN]) -> Self {
        Self(Box::new(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Memory contents of the last dropped key.
        pub(super) static DROPPED: Cell<Option<[u8; PrivateKey::LEN]>> = const { Cell::new(None) };
    }

    #[test]
    fn a_dropped_key_leaves_zeros() {
        let key = PrivateKey::from([0x5a; 32]);
        assert_eq!(key.as_bytes(), &[0x5a; 32]);
        assert_eq!(format!("{key:?}"), "PrivateKey");

        drop(key);

        assert_eq!(DROPPED.take(), Some([0; 32]));
    }

    #[test]
    fn a_key_has_32_bytes() {
        assert_eq!(PrivateKey::from_slice(&[7; 32]), Some([7; 32].into()));
        for len in [0, 31, 33, 44] {
            assert_eq!(PrivateKey::from_slice(&vec![7; len]), None);
        }
    }
}
