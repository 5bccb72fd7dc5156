//! Checks and computes the Internet checksums (RFC 1071) of packets. This module does no IO.

use super::frame::{ICMP, Ipv4, TCP, UDP, u16_at};

/// Returns the names of the headers whose checksum is wrong.
///
/// In an ICMP error, the quoted packet is also checked. Fragments and quoted packets have an
/// incomplete payload, so only their IP header is checked.
pub fn faults(packet: &Ipv4<'_>) -> Vec<&'static str> {
    let mut faults = Vec::new();
    if sum(packet.header, 0) != 0xffff {
        faults.push("IPv4 header");
    }
    if packet.is_fragment() {
        return faults;
    }

    let whole = u32::try_from(packet.payload.len()).unwrap_or(u32::MAX);
    let pseudo = pseudo_header(packet, whole);
    match packet.protocol() {
        TCP if sum(packet.payload, pseudo) != 0xffff => faults.push("TCP"),
        UDP if u16_at(packet.payload, 6) != Some(0) && sum(packet.payload, pseudo) != 0xffff => {
            faults.push("UDP");
        }
        ICMP => {
            if sum(packet.payload, 0) != 0xffff {
                faults.push("ICMP");
            }
            if quotes(packet) && !quoted_header_is_right(packet) {
                faults.push("IPv4 header quoted by ICMP");
            }
        }
        _ => {}
    }

    faults
}

/// Returns whether the packet is an ICMP error, which quotes the packet that caused the error.
fn quotes(packet: &Ipv4<'_>) -> bool {
    packet
        .icmp()
        .is_some_and(|icmp| matches!(icmp.kind, 3 | 4 | 5 | 11 | 12))
}

fn quoted_header_is_right(packet: &Ipv4<'_>) -> bool {
    let Some(quoted) = packet.icmp().map(|icmp| icmp.body) else {
        return false;
    };
    let length = quoted
        .first()
        .map_or(0, |first| usize::from(first & 15) * 4);

    quoted
        .get(..length)
        .is_some_and(|header| length >= 20 && sum(header, 0) == 0xffff)
}

/// Sets the IPv4 and UDP checksums of an unfragmented packet, whose checksum fields must be 0.
pub(super) fn fill(packet: &mut [u8]) {
    let header = !sum(&packet[..20], 0);
    packet[10..12].copy_from_slice(&header.to_be_bytes());
    let Some(ip) = Ipv4::parse(packet) else {
        return;
    };
    let length = u32::try_from(ip.payload.len()).unwrap_or(u32::MAX);
    let udp = match !sum(ip.payload, pseudo_header(&ip, length)) {
        0 => 0xffff,
        other => other,
    };
    packet[26..28].copy_from_slice(&udp.to_be_bytes());
}

fn pseudo_header(packet: &Ipv4<'_>, length: u32) -> u32 {
    let addresses = u32::from(sum(&packet.header[12..20], 0));
    addresses + u32::from(packet.protocol()) + length
}

/// Returns the ones' complement sum of `start` and the 16-bit words in `bytes`.
fn sum(bytes: &[u8], start: u32) -> u16 {
    let mut total = start;
    for word in bytes.chunks(2) {
        let low = word.get(1).copied().unwrap_or_default();
        total += u32::from(u16::from_be_bytes([word[0], low]));
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }

    u16::try_from(total).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::frame::udp_packet;
    use super::*;

    fn packet() -> Vec<u8> {
        let source = "10.244.1.10:4000".parse().unwrap();
        let destination = "10.245.1.10:53".parse().unwrap();
        udp_packet(source, destination, b"odd")
    }

    #[test]
    fn a_correct_packet_has_no_faults() {
        assert!(faults(&Ipv4::parse(&packet()).unwrap()).is_empty());
    }

    #[test]
    fn every_changed_byte_is_detected() {
        for index in 12..packet().len() {
            let mut packet = packet();
            packet[index] ^= 0x10;

            assert!(
                !faults(&Ipv4::parse(&packet).unwrap()).is_empty(),
                "byte {index}"
            );
        }
    }

    #[test]
    fn a_datagram_without_checksum_has_no_faults() {
        let mut packet = packet();
        packet[26..28].copy_from_slice(&[0, 0]);

        assert!(faults(&Ipv4::parse(&packet).unwrap()).is_empty());
    }
}
