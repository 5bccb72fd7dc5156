//! ICMP "fragmentation needed", which reports the path MTU to the sender of a packet (RFC 1191).

use super::checksum::Sum;
use super::ipv4::{self, Header};

const HEADER: usize = 8;
const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
const TTL: u8 = 64;

/// Maximum length of an ICMP error with its IPv4 header, in bytes (RFC 1812 section 4.3.2.3).
pub(crate) const LEN_MAX: usize = 576;

/// ICMP types of queries and replies; all others are errors.
const QUERIES: [u8; 8] = [0, 8, 9, 10, 13, 14, 15, 16];

/// Writes the ICMP error for a `packet` longer than `mtu` to the start of `out`; returns its
/// length.
///
/// Returns `None` if RFC 1122 section 3.2.2 forbids an error, or if the error does not fit into
/// `out`.
///
/// The source address of the error is the destination address of the packet. The eBPF program at
/// the TAP would drop an error whose source address does not belong to the peer.
pub(crate) fn too_big(packet: &[u8], mtu: u16, out: &mut [u8]) -> Option<usize> {
    let quoted = Header::parse(packet)?;
    if quoted.fragment & ipv4::OFFSET_MASK != 0 || !is_unicast(quoted.source) {
        return None;
    }
    if quoted.protocol == ipv4::ICMP && !QUERIES.contains(packet.get(quoted.len)?) {
        return None;
    }

    let quote_len = packet.len().min(LEN_MAX - ipv4::HEADER_MIN - HEADER);
    let total = ipv4::HEADER_MIN + HEADER + quote_len;
    let out = out.get_mut(..total)?;
    out[..ipv4::HEADER_MIN + HEADER].fill(0);
    out[0] = 0x45;
    out[8] = TTL;
    out[9] = ipv4::ICMP;
    out[12..16].copy_from_slice(&quoted.destination);
    out[16..20].copy_from_slice(&quoted.source);
    let total_len = u16::try_from(total).expect("at most 576");
    ipv4::finish_header(out, ipv4::HEADER_MIN, total_len);

    let icmp = &mut out[ipv4::HEADER_MIN..];
    icmp[0] = UNREACHABLE;
    icmp[1] = FRAGMENTATION_NEEDED;
    icmp[6..8].copy_from_slice(&mtu.to_be_bytes());
    icmp[HEADER..].copy_from_slice(&packet[..quote_len]);
    let checksum = Sum::default().add(icmp).finish();
    icmp[2..4].copy_from_slice(&checksum);

    Some(total)
}

/// Returns whether the address is unicast: not in 0.0.0.0/8, 224.0.0.0/4 (multicast) or 240.0.0.0/4
/// (reserved, broadcast).
fn is_unicast(source: [u8; 4]) -> bool {
    source[0] != 0 && source[0] < 224
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::tests::packets;
    use proptest::prelude::*;

    #[test]
    fn the_error_carries_the_mtu_and_quotes_the_packet() {
        let packet = packets::tcp_packet(&[7; 1400]);
        let mut out = [0; LEN_MAX];

        let len = too_big(&packet, 1280, &mut out).unwrap();

        let header = Header::parse(&out[..len]).unwrap();
        let original = Header::parse(&packet).unwrap();
        assert_eq!(
            (header.source, header.destination),
            (original.destination, original.source)
        );
        assert_eq!(usize::from(header.total_len), len);
        assert_eq!(out[20..22], [3, 4]);
        assert_eq!(out[26..28], 1280_u16.to_be_bytes());
        assert_eq!(out[28..len], packet[..len - 28]);
        assert!(Sum::default().add(&out[..20]).is_valid());
        assert!(Sum::default().add(&out[20..len]).is_valid());
    }

    #[test]
    fn icmp_errors_and_later_fragments_cause_no_error() {
        let mut packet = packets::tcp_packet(&[7; 1400]);
        let mut out = [0; LEN_MAX];
        packet[7] = 1;
        assert_eq!(too_big(&packet, 1280, &mut out), None);

        packet[7] = 0;
        packet[9] = ipv4::ICMP;
        packet[20] = 11;
        assert_eq!(too_big(&packet, 1280, &mut out), None);

        packet[20] = 8;
        assert!(too_big(&packet, 1280, &mut out).is_some());
        packet[12] = 224;
        assert_eq!(too_big(&packet, 1280, &mut out), None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100), mtu: u16, room in 0..600_usize) {
            too_big(&bytes, mtu, &mut vec![0; room]);
        }
    }
}
