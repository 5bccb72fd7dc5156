//! A model of IPv4 packets, with an encoder that computes lengths and checksums.

use std::net::Ipv4Addr;

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const DCCP: u8 = 33;
pub(super) const UDP_LITE: u8 = 136;

pub(super) const SYN: u8 = 0x02;

const MORE_FRAGMENTS: u16 = 0x2000;

/// An IPv4 packet. The encoder adds lengths and checksums.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Packet {
    pub(super) source: Ipv4Addr,
    pub(super) destination: Ipv4Addr,
    pub(super) ttl: u8,
    pub(super) id: u16,
    /// Options of the IPv4 header: a multiple of four bytes, at most 40 bytes.
    pub(super) options: Vec<u8>,
    pub(super) body: Body,
}

/// The payload of an IPv4 packet.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Body {
    Tcp {
        ports: [u16; 2],
        flags: u8,
        /// Options of the TCP header: a multiple of four bytes, at most 40 bytes.
        options: Vec<u8>,
        payload: Vec<u8>,
    },
    Udp {
        ports: [u16; 2],
        has_checksum: bool,
        payload: Vec<u8>,
    },
    /// A protocol whose checksum is at the same offset as the checksum of UDP, such as UDP-Lite.
    LikeUdp {
        protocol: u8,
        payload: Vec<u8>,
    },
    Echo {
        kind: u8,
        payload: Vec<u8>,
    },
    Error {
        kind: u8,
        code: u8,
        quoted: Box<Packet>,
        /// Number of bytes that the error quotes.
        keep: usize,
    },
    /// A protocol whose checksum does not cover the addresses.
    Other {
        protocol: u8,
        payload: Vec<u8>,
    },
}

impl Packet {
    pub(super) fn new(source: &str, destination: &str, body: Body) -> Self {
        Self {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            ttl: 64,
            id: 1,
            options: Vec::new(),
            body,
        }
    }

    /// Returns the bytes of the packet, with lengths and checksums.
    pub(super) fn encode(&self) -> Vec<u8> {
        self.with_header(&self.payload(), 0)
    }

    /// Returns the fragments of the packet, with `len` bytes of payload each, a multiple of eight.
    pub(super) fn fragments(&self, len: usize) -> Vec<Vec<u8>> {
        let payload = self.payload();
        let count = payload.len().div_ceil(len);
        (payload.chunks(len).enumerate())
            .map(|(index, piece)| {
                let more = if index + 1 < count { MORE_FRAGMENTS } else { 0 };
                let offset = u16::try_from(index * len / 8).unwrap();
                self.with_header(piece, more | offset)
            })
            .collect()
    }

    /// Returns the bytes that follow the IPv4 header.
    fn payload(&self) -> Vec<u8> {
        match &self.body {
            Body::Tcp {
                ports,
                flags,
                options,
                payload,
            } => {
                let mut segment = be(&[ports[0], ports[1], 0, 1, 0, 2]);
                let words = u8::try_from(5 + options.len() / 4).unwrap();
                segment.extend([words << 4, *flags]);
                segment.extend(be(&[1000, 0, 0]));
                segment.extend(options);
                segment.extend(payload);
                self.put_checksum(segment, 16, TCP)
            }
            Body::Udp {
                ports,
                has_checksum,
                payload,
            } => {
                let len = u16::try_from(8 + payload.len()).unwrap();
                let mut datagram = be(&[ports[0], ports[1], len, 0]);
                datagram.extend(payload);
                if !has_checksum {
                    return datagram;
                }
                let mut datagram = self.put_checksum(datagram, 6, UDP);
                if datagram[6..8] == [0, 0] {
                    datagram[6..8].fill(0xff);
                }
                datagram
            }
            Body::LikeUdp { protocol, payload } => {
                let len = u16::try_from(8 + payload.len()).unwrap();
                let mut datagram = be(&[1, 2, len, 0]);
                datagram.extend(payload);
                self.put_checksum(datagram, 6, *protocol)
            }
            Body::Echo { kind, payload } => {
                let mut message = vec![*kind, 0, 0, 0, 0, 7, 0, 9];
                message.extend(payload);
                put(message.clone(), 2, checksum(&message))
            }
            Body::Error {
                kind,
                code,
                quoted,
                keep,
            } => {
                let quoted = quoted.encode();
                let mut message = vec![*kind, *code, 0, 0, 0, 0, 5, 0];
                message.extend(&quoted[..quoted.len().min(*keep)]);
                put(message.clone(), 2, checksum(&message))
            }
            Body::Other { payload, .. } => payload.clone(),
        }
    }

    pub(super) fn protocol(&self) -> u8 {
        match &self.body {
            Body::Tcp { .. } => TCP,
            Body::Udp { .. } => UDP,
            Body::Echo { .. } | Body::Error { .. } => ICMP,
            Body::LikeUdp { protocol, .. } | Body::Other { protocol, .. } => *protocol,
        }
    }

    fn with_header(&self, payload: &[u8], fragment: u16) -> Vec<u8> {
        let header_len = 20 + self.options.len();
        let total_len = u16::try_from(header_len + payload.len()).unwrap();
        let mut packet = vec![0x40 | u8::try_from(header_len / 4).unwrap(), 0];
        packet.extend(be(&[total_len, self.id, fragment]));
        packet.extend([self.ttl, self.protocol(), 0, 0]);
        packet.extend(self.source.octets());
        packet.extend(self.destination.octets());
        packet.extend(&self.options);
        let sum = checksum(&packet);

        let mut packet = put(packet, 10, sum);
        packet.extend(payload);
        packet
    }

    /// Writes the checksum of the pseudo header and the segment at offset `at` of the segment.
    fn put_checksum(&self, segment: Vec<u8>, at: usize, protocol: u8) -> Vec<u8> {
        let len = u16::try_from(segment.len()).unwrap();
        let mut covered = Vec::from(self.source.octets());
        covered.extend(self.destination.octets());
        covered.extend([0, protocol]);
        covered.extend(len.to_be_bytes());
        covered.extend(&segment);
        put(segment, at, checksum(&covered))
    }
}

/// Returns an Ethernet frame with a packet.
pub(super) fn frame(destination: [u8; 6], source: [u8; 6], packet: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &[0x08, 0x00], packet].concat()
}

/// Returns the Internet checksum (RFC 1071) of bytes whose checksum field is zero.
pub(super) fn checksum(bytes: &[u8]) -> u16 {
    let sum: u32 = (bytes.chunks(2))
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !u16::try_from(sum).unwrap()
}

fn put(mut bytes: Vec<u8>, at: usize, value: u16) -> Vec<u8> {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    bytes
}

fn be(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}
