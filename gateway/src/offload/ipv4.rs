//! The IPv4 header fields that this crate uses.

use super::checksum::Sum;
use std::net::Ipv4Addr;
use std::ops::Range;

/// Length of a header without options, in bytes.
pub(crate) const HEADER_MIN: usize = 20;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

pub(crate) const TOTAL_LEN: Range<usize> = 2..4;
pub(crate) const ID: Range<usize> = 4..6;
pub(crate) const FRAGMENT: Range<usize> = 6..8;
pub(crate) const CHECKSUM: Range<usize> = 10..12;

pub(crate) const DONT_FRAGMENT: u16 = 0x4000;
pub(crate) const MORE_FRAGMENTS: u16 = 0x2000;
pub(crate) const OFFSET_MASK: u16 = 0x1fff;

/// A parsed header. Its version is 4, and the packet contains the whole header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Length of the header with its options, in bytes.
    pub(crate) len: usize,
    /// The field "total length", in bytes; not compared with the length of the packet.
    pub(crate) total_len: u16,
    pub(crate) id: u16,
    /// Flags, and fragment offset in units of 8 bytes.
    pub(crate) fragment: u16,
    /// IANA protocol number of the payload.
    pub(crate) protocol: u8,
    pub(crate) source: [u8; 4],
    pub(crate) destination: [u8; 4],
}

impl Header {
    /// Parses the header at the start of `packet`; returns `None` if it is truncated or not IPv4.
    ///
    /// Does not compare `total_len` with the packet, because the length of a super-packet may be
    /// too large for the field.
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        let bytes = packet.first_chunk::<HEADER_MIN>()?;
        let len = usize::from(bytes[0] & 0xf) * 4;
        if bytes[0] >> 4 != 4 || len < HEADER_MIN || len > packet.len() {
            return None;
        }

        Some(Self {
            len,
            total_len: u16::from_be_bytes([bytes[2], bytes[3]]),
            id: u16::from_be_bytes([bytes[4], bytes[5]]),
            fragment: u16::from_be_bytes([bytes[6], bytes[7]]),
            protocol: bytes[9],
            source: [bytes[12], bytes[13], bytes[14], bytes[15]],
            destination: [bytes[16], bytes[17], bytes[18], bytes[19]],
        })
    }

    pub(crate) fn is_fragment(&self) -> bool {
        self.fragment & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// Returns the flag don't fragment (DF).
    pub(crate) fn dont_fragment(&self) -> bool {
        self.fragment & DONT_FRAGMENT != 0
    }
}

/// Writes `total_len` and the header checksum into a packet.
///
/// # Panics
///
/// Panics if the packet is shorter than `header_len` or [`HEADER_MIN`].
pub(crate) fn finish_header(packet: &mut [u8], header_len: usize, total_len: u16) {
    packet[TOTAL_LEN].copy_from_slice(&total_len.to_be_bytes());
    packet[CHECKSUM].copy_from_slice(&[0, 0]);
    let checksum = Sum::default().add(&packet[..header_len]).finish();
    packet[CHECKSUM].copy_from_slice(&checksum);
}

/// Returns the destination of a packet, and 0.0.0.0 if its header is malformed.
#[inline]
pub(crate) fn destination(packet: &[u8]) -> Ipv4Addr {
    Header::parse(packet).map_or(Ipv4Addr::UNSPECIFIED, |header| header.destination.into())
}

/// Returns a hash of addresses, protocol and ports, which is equal for all packets of a flow.
///
/// The hash of a fragment does not include the ports, since only the first fragment has them.
pub(crate) fn flow_hash(packet: &[u8]) -> u32 {
    let Some(header) = Header::parse(packet) else {
        return 0;
    };
    let ports = match header.protocol {
        TCP | UDP if !header.is_fragment() => packet
            .get(header.len..)
            .and_then(<[u8]>::first_chunk::<4>)
            .map_or(0, |ports| u32::from_be_bytes(*ports)),
        _ => 0,
    };

    let addresses = u64::from(u32::from_be_bytes(header.source)) << 32
        | u64::from(u32::from_be_bytes(header.destination));
    let mixed = mix(addresses ^ mix(u64::from(ports) << 8 | u64::from(header.protocol)));
    u32::try_from(mixed >> 32).expect("the upper half of 64 bits")
}

/// Mixes the bits of `x` with the finalizer of SplitMix64, so that each input bit affects each
/// output bit.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_parsed_header_is_within_the_packet(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            flow_hash(&bytes);
            if let Some(header) = Header::parse(&bytes) {
                prop_assert!(header.len >= HEADER_MIN && header.len <= bytes.len());
            }
        }
    }

    #[test]
    fn flows_between_two_addresses_have_different_hashes() {
        let mut packet = [0; 28];
        packet[0] = 0x45;
        packet[9] = TCP;
        let halves = (0..256_u16)
            .filter(|port| {
                packet[20..22].copy_from_slice(&port.to_be_bytes());
                flow_hash(&packet).is_multiple_of(2)
            })
            .count();

        assert!((96..160).contains(&halves), "{halves} of 256");
    }
}
