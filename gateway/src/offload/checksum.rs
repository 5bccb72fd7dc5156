//! The Internet checksum (RFC 1071).

/// A ones' complement sum, not yet folded to 16 bits.
///
/// The words have the machine's byte order, which ones' complement arithmetic permits (RFC 1071
/// section 2.B).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Returns the sum of the pseudo-header of TCP and UDP over IPv4 (RFC 9293 section 3.1).
    ///
    /// `len` is the length of transport header and payload in bytes.
    pub(crate) fn pseudo(source: [u8; 4], destination: [u8; 4], protocol: u8, len: u16) -> Self {
        Self::default()
            .add(&source)
            .add(&destination)
            .add(&[0, protocol])
            .add(&len.to_be_bytes())
    }

    /// Adds `bytes`; appends a zero byte if their number is odd.
    #[must_use]
    pub(crate) fn add(self, bytes: &[u8]) -> Self {
        let (blocks, rest) = bytes.as_chunks::<32>();
        // The sums are independent of each other, so that the compiler can vectorize the loop.
        let mut lanes = [0_u64; 8];
        for block in blocks {
            for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
                *lane += u64::from(u32::from_ne_bytes(*word));
            }
        }
        let (words, odd) = rest.as_chunks::<2>();
        let mut sum = lanes.iter().fold(self.0, |sum, lane| sum + fold32(*lane));
        for word in words {
            sum += u64::from(u16::from_ne_bytes(*word));
        }
        if let [last] = odd {
            sum += u64::from(u16::from_ne_bytes([*last, 0]));
        }

        Self(sum)
    }

    /// Returns the sum, folded to 16 bits and not complemented.
    ///
    /// If the kernel leaves a checksum incomplete (`CHECKSUM_PARTIAL`), the checksum field holds
    /// the result of this function for the pseudo-header.
    pub(crate) fn partial(self) -> [u8; 2] {
        let mut sum = fold32(self.0);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }

        u16::try_from(sum)
            .expect("the loop ends at 16 bits")
            .to_ne_bytes()
    }

    /// Returns the complement of the sum, which is the checksum of IPv4, TCP and ICMP.
    pub(crate) fn finish(self) -> [u8; 2] {
        let [high, low] = self.partial();
        [!high, !low]
    }

    /// Returns the checksum of UDP: 0xffff instead of 0, since 0 means "no checksum" (RFC 768).
    pub(crate) fn finish_udp(self) -> [u8; 2] {
        match self.finish() {
            [0, 0] => [0xff, 0xff],
            checksum => checksum,
        }
    }

    /// Returns whether the checksum is correct; the summed bytes must include the checksum field.
    pub(crate) fn is_valid(self) -> bool {
        self.partial() == [0xff, 0xff]
    }
}

/// Folds a sum to 33 bits, so that later additions cannot overflow 64 bits.
fn fold32(sum: u64) -> u64 {
    (sum & 0xffff_ffff) + (sum >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_1071_adds_up() {
        let sum = Sum::default().add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);

        assert_eq!(sum.partial(), [0xdd, 0xf2]);
        assert_eq!(sum.finish(), [0x22, 0x0d]);
    }

    #[test]
    fn a_udp_checksum_is_never_zero() {
        assert_eq!(Sum::default().add(&[0xff, 0xff]).finish_udp(), [0xff, 0xff]);
    }

    proptest! {
        #[test]
        fn the_checksum_equals_rfc_1071(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0..150_usize) {
            let mut expected = 0_u32;
            for word in bytes.chunks(2) {
                expected += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
            }
            while expected > 0xffff {
                expected = (expected & 0xffff) + (expected >> 16);
            }

            let (head, tail) = bytes.split_at((cut * 2).min(bytes.len()));
            let sum = Sum::default().add(head).add(tail);

            prop_assert_eq!(u32::from(u16::from_be_bytes(sum.partial())), expected);
        }
    }
}
