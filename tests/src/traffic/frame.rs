//! Parses and builds Ethernet, IPv4, UDP, TCP, ICMP and VXLAN headers. This module does no IO.

use std::net::{Ipv4Addr, SocketAddrV4};

/// A parsed IPv4 packet, which borrows its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4<'a> {
    /// The whole packet without padding. The length is the total length in the header.
    pub bytes: &'a [u8],
    /// The IPv4 header including options.
    pub header: &'a [u8],
    /// The bytes after the IPv4 header.
    pub payload: &'a [u8],
}

/// A parsed UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp<'a> {
    /// Source port in host byte order.
    pub source: u16,
    /// Destination port in host byte order.
    pub destination: u16,
    /// The bytes after the UDP header.
    pub payload: &'a [u8],
}

/// A parsed TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp<'a> {
    /// Source port in host byte order.
    pub source: u16,
    /// Destination port in host byte order.
    pub destination: u16,
    /// The flags as a bit field: FIN is 1, SYN 2, RST 4, PSH 8, ACK 16.
    pub flags: u8,
    /// The undecoded options of the TCP header.
    pub options: &'a [u8],
    /// The bytes after the TCP header.
    pub payload: &'a [u8],
}

/// A parsed ICMP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp<'a> {
    /// The type field, for example 8 for an echo request.
    pub kind: u8,
    /// The code field, whose meaning depends on the type.
    pub code: u8,
    /// The four bytes after the checksum. Depending on the type, they contain for example the
    /// identifier of an echo, or the MTU of the next hop.
    pub rest: [u8; 4],
    /// The bytes after these fields: the data of an echo, or the packet that an error quotes.
    pub body: &'a [u8],
}

impl<'a> Ipv4<'a> {
    /// Parses the IPv4 packet in an Ethernet frame. Returns `None` for other or malformed frames.
    pub fn in_frame(frame: &'a [u8]) -> Option<Self> {
        if frame.get(12..14)? != ETHERTYPE_IPV4 {
            return None;
        }

        Self::parse(frame.get(14..)?)
    }

    /// Parses a packet, and ignores padding after its end. Returns `None` for a malformed packet.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let first = *bytes.first()?;
        let header_len = usize::from(first & 15) * 4;
        let total_len = usize::from(u16_at(bytes, 2)?);
        if first >> 4 != 4 || header_len < 20 {
            return None;
        }

        let bytes = bytes.get(..total_len)?;
        Some(Self {
            bytes,
            header: bytes.get(..header_len)?,
            payload: bytes.get(header_len..)?,
        })
    }

    /// Returns the source address in the header.
    pub fn source(&self) -> Ipv4Addr {
        self.address(12)
    }

    /// Returns the destination address in the header.
    pub fn destination(&self) -> Ipv4Addr {
        self.address(16)
    }

    /// Returns the protocol number of the payload, for example [`UDP`].
    pub fn protocol(&self) -> u8 {
        self.header[9]
    }

    /// Returns the time to live, in hops.
    pub fn ttl(&self) -> u8 {
        self.header[8]
    }

    /// Returns whether the flag DF (don't fragment) is set.
    pub fn dont_fragment(&self) -> bool {
        self.header[6] & 0x40 != 0
    }

    /// Returns whether the packet is a fragment of a larger packet.
    pub fn is_fragment(&self) -> bool {
        self.header[6] & 0x3f != 0 || self.header[7] != 0
    }

    /// Returns whether the packet is a fragment other than the first. Such a fragment has no
    /// transport header.
    pub fn is_later_fragment(&self) -> bool {
        self.header[6] & 0x1f != 0 || self.header[7] != 0
    }

    /// Returns the UDP datagram in the packet, `None` for other protocols and for later fragments.
    pub fn udp(&self) -> Option<Udp<'a>> {
        self.transport(UDP)?;
        Some(Udp {
            source: u16_at(self.payload, 0)?,
            destination: u16_at(self.payload, 2)?,
            payload: self.payload.get(8..)?,
        })
    }

    /// Returns the TCP segment in the packet, `None` for other protocols and for later fragments.
    pub fn tcp(&self) -> Option<Tcp<'a>> {
        self.transport(TCP)?;
        let header_len = usize::from(*self.payload.get(12)? >> 4) * 4;
        Some(Tcp {
            source: u16_at(self.payload, 0)?,
            destination: u16_at(self.payload, 2)?,
            flags: *self.payload.get(13)?,
            options: self.payload.get(20..header_len)?,
            payload: self.payload.get(header_len..)?,
        })
    }

    /// Returns the ICMP message in the packet, `None` for other protocols and for later fragments.
    pub fn icmp(&self) -> Option<Icmp<'a>> {
        self.transport(ICMP)?;
        Some(Icmp {
            kind: *self.payload.first()?,
            code: *self.payload.get(1)?,
            rest: self.payload.get(4..8)?.try_into().ok()?,
            body: self.payload.get(8..)?,
        })
    }

    /// Returns the VXLAN network identifier and the inner packet, if the packet is a VXLAN frame to
    /// the UDP port `port`.
    pub fn vxlan(&self, port: u16) -> Option<(u32, Ipv4<'a>)> {
        let udp = self.udp().filter(|udp| udp.destination == port)?;
        let vni = u32::from_be_bytes(udp.payload.get(4..8)?.try_into().ok()?) >> 8;

        Some((vni, Ipv4::in_frame(udp.payload.get(8..)?)?))
    }

    fn transport(&self, protocol: u8) -> Option<()> {
        (self.protocol() == protocol && !self.is_later_fragment()).then_some(())
    }

    fn address(&self, at: usize) -> Ipv4Addr {
        let octets: [u8; 4] = std::array::from_fn(|index| self.header[at + index]);
        octets.into()
    }
}

impl Tcp<'_> {
    /// Returns the maximum segment size in bytes from the options, which only SYNs have.
    pub fn mss(&self) -> Option<u16> {
        let mut options = self.options;
        loop {
            match options {
                [1, rest @ ..] => options = rest,
                [2, 4, high, low, ..] => return Some(u16::from_be_bytes([*high, *low])),
                [0, ..] | [] => return None,
                [_, length, ..] => options = options.get(usize::from(*length).max(2)..)?,
                [_] => return None,
            }
        }
    }
}

/// Builds an Ethernet frame with a UDP datagram and correct checksums. `macs` are the source and
/// the destination address.
pub fn udp_frame(
    macs: [[u8; 6]; 2],
    source: SocketAddrV4,
    destination: SocketAddrV4,
    payload: &[u8],
) -> Vec<u8> {
    let [from, to] = macs;
    let mut frame = [&to[..], &from[..], &ETHERTYPE_IPV4[..]].concat();
    frame.extend(udp_packet(source, destination, payload));

    frame
}

/// Builds an IPv4 packet with a UDP datagram, correct checksums and the flag DF.
pub fn udp_packet(source: SocketAddrV4, destination: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
    let mut packet = vec![0x45, 0];
    packet.extend(length(28 + payload.len()));
    packet.extend([0, 1, 0x40, 0, 64, UDP, 0, 0]);
    packet.extend(source.ip().octets());
    packet.extend(destination.ip().octets());
    packet.extend(source.port().to_be_bytes());
    packet.extend(destination.port().to_be_bytes());
    packet.extend(length(8 + payload.len()));
    packet.extend([0, 0]);
    packet.extend(payload);
    super::checksum::fill(&mut packet);

    packet
}

/// Builds a VXLAN header (RFC 7348) with a 24-bit network identifier.
pub fn vxlan_header(vni: u32) -> [u8; 8] {
    let [_, high, middle, low] = vni.to_be_bytes();
    [0x08, 0, 0, 0, high, middle, low, 0]
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Protocol number of ICMP in an IPv4 header.
pub const ICMP: u8 = 1;

/// Protocol number of TCP in an IPv4 header.
pub const TCP: u8 = 6;

/// Protocol number of UDP in an IPv4 header.
pub const UDP: u8 = 17;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsing_undoes_building() {
        let source = "10.244.1.10:4000".parse().unwrap();
        let destination = "10.245.1.10:53".parse().unwrap();

        let packet = udp_packet(source, destination, b"hello");

        let ip = Ipv4::parse(&packet).unwrap();
        let udp = ip.udp().unwrap();
        assert_eq!((ip.source(), udp.source), (*source.ip(), 4000));
        assert_eq!((ip.destination(), udp.destination), (*destination.ip(), 53));
        assert_eq!(udp.payload, b"hello");
        assert!(!ip.is_fragment());
    }

    #[test]
    fn the_inner_packet_of_vxlan_is_found() {
        let a = "192.0.2.1:6091".parse().unwrap();
        let b = "192.0.2.2:6091".parse().unwrap();
        let inner = udp_frame([[2; 6], [4; 6]], a, b, b"inner");
        let payload = [&vxlan_header(0x6c71)[..], &inner].concat();

        let outer = udp_packet(a, b, &payload);

        let (vni, packet) = Ipv4::parse(&outer).unwrap().vxlan(6091).unwrap();
        assert_eq!(vni, 0x6c71);
        assert_eq!(packet.udp().unwrap().payload, b"inner");
    }

    #[test]
    fn malformed_packets_are_rejected() {
        for bytes in [&[][..], &[0x45], &[0x45; 19], &[0x41; 40], &[0xff; 40]] {
            assert_eq!(Ipv4::parse(bytes), None);
        }
    }
}
