//! IPv4 fragmentation (RFC 791 section 3.2).

use super::ipv4::{self, Header};

const COPIED: u8 = 0x80;
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;

/// Iterator over the fragments of one packet, first to last.
pub(crate) struct Fragments<'a> {
    packet: &'a [u8],
    header: Header,
    /// Payload bytes of each fragment except the last; a multiple of 8.
    size: usize,
    /// Payload bytes of all fragments returned so far.
    done: usize,
}

impl<'a> Fragments<'a> {
    /// Prepares the fragmentation of `packet` for a path with an MTU of `mtu` bytes.
    ///
    /// Returns `None` if the packet is malformed, if it has the flag don't fragment, or if `mtu`
    /// leaves no space for payload.
    pub(crate) fn new(packet: &'a [u8], mtu: u16) -> Option<Self> {
        let header = Header::parse(packet)?;
        let packet = packet.get(..usize::from(header.total_len))?;
        let size = usize::from(mtu).checked_sub(header.len)? & !7;
        if header.dont_fragment() || size == 0 || packet.len() <= header.len {
            return None;
        }

        Some(Self {
            packet,
            header,
            size,
            done: 0,
        })
    }

    /// Writes the next fragment to the start of `out`, and returns its length in bytes.
    ///
    /// Returns `None` after the last fragment, if the fragment does not fit into `out`, or if the
    /// fragment offset exceeds its 13 bits.
    pub(crate) fn next(&mut self, out: &mut [u8]) -> Option<usize> {
        let payload = &self.packet[self.header.len + self.done..];
        let len = payload.len().min(self.size);
        if len == 0 {
            return None;
        }
        let total = self.header.len + len;
        let out = out.get_mut(..total)?;
        let (header, body) = out.split_at_mut(self.header.len);
        header.copy_from_slice(&self.packet[..self.header.len]);
        body.copy_from_slice(&payload[..len]);
        if self.done > 0 {
            blank_options(&mut header[ipv4::HEADER_MIN..]);
        }

        let units = u16::try_from(self.done / 8).expect("a packet has fewer than 65,536 bytes");
        let offset = (self.header.fragment & ipv4::OFFSET_MASK).checked_add(units)?;
        let more = len < payload.len() || self.header.fragment & ipv4::MORE_FRAGMENTS != 0;
        if offset > ipv4::OFFSET_MASK {
            return None; // Only a malformed packet has data beyond this offset.
        }
        let field = offset | if more { ipv4::MORE_FRAGMENTS } else { 0 };
        out[ipv4::FRAGMENT].copy_from_slice(&field.to_be_bytes());
        let total_len = u16::try_from(total).expect("no longer than the packet");
        ipv4::finish_header(out, self.header.len, total_len);
        self.done += len;

        Some(total)
    }
}

/// Replaces all IPv4 options without the copied flag (RFC 791 section 3.1) by padding.
///
/// Only the first fragment carries such options.
fn blank_options(mut options: &mut [u8]) {
    while let Some(&kind) = options.first() {
        let len = match kind {
            END_OF_OPTIONS => return,
            NO_OPERATION => 1,
            _ => match options.get(1) {
                Some(&len) if len >= 2 && usize::from(len) <= options.len() => usize::from(len),
                _ => return, // The receiver handles malformed options.
            },
        };
        if kind & COPIED == 0 {
            options[..len].fill(NO_OPERATION);
        }
        options = &mut options[len..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::checksum::Sum;
    use crate::offload::tests::packets;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fragments_reassemble_to_the_packet(
            packet in packets::udp(0..4000),
            mtu in 68..1500_u16,
        ) {
            let mut packet = packet;
            packet[6] &= !0x40;
            let len = u16::try_from(packet.len()).unwrap();
            ipv4::finish_header(&mut packet, 20, len);
            let mut fragments = Fragments::new(&packet, mtu).unwrap();
            let mut reassembled = Vec::new();
            let mut more = true;
            let mut out = [0; 1500];

            while let Some(len) = fragments.next(&mut out) {
                prop_assert!(len <= usize::from(mtu));
                prop_assert!(Sum::default().add(&out[..20]).is_valid());
                let header = Header::parse(&out[..len]).unwrap();
                prop_assert_eq!(usize::from(header.fragment & ipv4::OFFSET_MASK) * 8, reassembled.len());
                prop_assert!(more, "a fragment follows the last one");
                more = header.fragment & ipv4::MORE_FRAGMENTS != 0;
                reassembled.extend_from_slice(&out[20..len]);
            }

            prop_assert!(!more);
            prop_assert_eq!(reassembled, &packet[20..]);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), mtu: u16) {
            let mut out = [0; 300];
            if let Some(mut fragments) = Fragments::new(&bytes, mtu) {
                while fragments.next(&mut out).is_some() {}
            }
        }
    }

    #[test]
    fn only_copied_options_are_in_later_fragments() {
        let mut options = [0x07, 3, 4, 0x94, 4, 0, 0, 0];

        blank_options(&mut options);

        assert_eq!(options, [1, 1, 1, 0x94, 4, 0, 0, 0]);
    }

    #[test]
    fn a_packet_with_dont_fragment_is_not_fragmented() {
        let mut packet = [0; 100];
        packet[0] = 0x45;
        packet[3] = 100;
        packet[6] = 0x40;

        assert!(Fragments::new(&packet, 50).is_none());
    }
}
