//! Generates packets and verifies checksums, without the code under test.

use crate::offload::frame::{self, HEADROOM};
use crate::offload::vnet::{self, Gso, Partial};
use ebpf_common::settings::Settings;
use proptest::prelude::*;

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// A super-packet, in the format in which a process reads it from a TAP.
#[derive(Clone, Debug)]
pub(crate) struct SuperPacket {
    pub(crate) payload: Vec<u8>,
    pub(crate) size: usize,
    udp: bool,
    options: usize,
    flags: u8,
    id: u16,
    sequence: u32,
    dont_fragment: bool,
}

pub(crate) fn super_packet() -> impl Strategy<Value = SuperPacket> {
    let shape = (any::<bool>(), 1..64_usize, 1..1400_usize, 0..=10_usize);
    let marks = (
        any::<bool>(),
        any::<bool>(),
        any::<u16>(),
        any::<u32>(),
        any::<bool>(),
    );
    (shape, marks, any::<u8>())
        .prop_flat_map(|((udp, count, size, options), marks, fill)| {
            let (push, cwr, id, sequence, dont_fragment) = marks;
            let longest = (count * size).min(60_000).max(size + 1);
            (size + 1..=longest.max(size + 1)).prop_map(move |len| SuperPacket {
                payload: (0..len)
                    .map(|at| fill.wrapping_mul(31).wrapping_add(at.to_le_bytes()[0]))
                    .collect(),
                // The coalescer accepts at most 64 datagrams.
                size: if udp {
                    size.max(len.div_ceil(64))
                } else {
                    size
                },
                udp,
                options: if udp { 0 } else { options * 4 },
                flags: ACK | if push { PSH } else { 0 } | if cwr { CWR } else { 0 },
                id,
                sequence,
                dont_fragment,
            })
        })
        .prop_filter("more than one segment", |packet| packet.segments() > 1)
}

impl SuperPacket {
    pub(crate) fn segments(&self) -> usize {
        self.payload.len().div_ceil(self.size)
    }

    pub(crate) fn header_len(&self) -> usize {
        20 + if self.udp { 8 } else { 20 + self.options }
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let short = |value: usize| u16::try_from(value).unwrap();
        let offset = if self.udp { 6 } else { 16 };
        let header = vnet::Header {
            gso: if self.udp {
                Gso::UdpL4
            } else {
                Gso::TcpV4 {
                    ecn: self.flags & CWR != 0,
                }
            },
            header_len: short(frame::ETHERNET + self.header_len()),
            gso_size: short(self.size),
            partial: Some(Partial { start: 34, offset }),
        };
        let mut frame = vec![0; HEADROOM];
        frame[..vnet::LEN].copy_from_slice(&header.encode());
        frame::write_ethernet(&mut frame, &Settings::default(), super::PEER);
        frame.extend_from_slice(&self.packet());
        frame
    }

    fn packet(&self) -> Vec<u8> {
        let transport = if self.udp {
            let len = u16::try_from(8 + self.payload.len()).unwrap();
            let mut header = vec![0x30, 0x39, 0x00, 0x35];
            header.extend_from_slice(&len.to_be_bytes());
            header.extend_from_slice(&[0, 0]);
            header
        } else {
            tcp_header(self.sequence, self.flags, self.options)
        };
        let protocol = if self.udp { 17 } else { 6 };
        let mut body = transport;
        let at = if self.udp { 6 } else { 16 };
        let sum = rfc_1071(&[&pseudo(protocol, body.len() + self.payload.len())]);
        body[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        body.extend_from_slice(&self.payload);
        ip_packet(protocol, self.id, self.dont_fragment, &body)
    }
}

/// Generates packets from one peer: several flows, with lost, repeated and malformed packets.
pub(crate) fn batch() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let packet = (0..3_u8, 0..12_u32, any::<bool>(), 0..12_u8, 1..200_usize);
    prop::collection::vec(packet, 0..60).prop_map(|packets| {
        packets
            .into_iter()
            .enumerate()
            .map(|(at, (flow, step, udp, oddity, len))| {
                let len = if len < 150 { 100 } else { len };
                let id = u16::try_from(at).unwrap();
                let flags =
                    ACK | if oddity == 1 { PSH } else { 0 } | if oddity == 2 { 1 } else { 0 };
                let body = if udp {
                    udp_body(len)
                } else {
                    tcp_body(step * 100, flags, &vec![flow; len])
                };
                let mut packet = ip_packet(if udp { 17 } else { 6 }, id, oddity != 3, &body);
                packet[15] = flow;
                match oddity {
                    4 => packet[7] = 9,
                    5 => *packet.last_mut().unwrap() ^= 0x55,
                    6 => packet[8] = 3,
                    _ => {}
                }
                fix(&mut packet, oddity != 5);
                packet
            })
            .collect()
    })
}

/// Returns addresses, protocol and ports of a packet without IPv4 options.
pub(crate) fn flow(packet: &[u8]) -> (&[u8], u8, &[u8]) {
    (&packet[12..20], packet[9], &packet[20..24])
}

/// Returns the packet. If it has the flag don't fragment, sets identification and header checksum
/// to 0.
///
/// RFC 6864 gives the identification of such packets no meaning, so the coalescer may change it.
pub(crate) fn without_id(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_owned();
    if packet[6] & 0x40 != 0 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packet
}

/// Generates UDP packets whose payload length is in `range`.
pub(crate) fn udp(range: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    (range, any::<u16>()).prop_map(|(len, id)| {
        let mut packet = ip_packet(17, id, false, &udp_body(len));
        fix(&mut packet, true);
        packet
    })
}

/// Returns a TCP packet with `payload` and the flag don't fragment.
pub(crate) fn tcp_packet(payload: &[u8]) -> Vec<u8> {
    tcp_segment(1, ACK, payload)
}

pub(crate) fn tcp_segment(sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = ip_packet(6, 1, true, &tcp_body(sequence, flags, payload));
    fix(&mut packet, true);
    packet
}

/// Asserts that all checksums are correct.
///
/// Returns the total length of the headers in bytes, and the payload.
pub(crate) fn verified(packet: &[u8]) -> (usize, &[u8]) {
    assert_eq!(rfc_1071(&[&packet[..20]]), 0xffff, "header");
    assert_eq!(
        usize::from(u16::from_be_bytes([packet[2], packet[3]])),
        packet.len()
    );
    let body = &packet[20..];
    assert_eq!(
        rfc_1071(&[&pseudo(packet[9], body.len()), body]),
        0xffff,
        "transport"
    );
    let header_len = if packet[9] == 17 {
        8
    } else {
        usize::from(body[12] >> 4) * 4
    };
    (20 + header_len, &body[header_len..])
}

fn tcp_body(sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut body = tcp_header(sequence, flags, 0);
    body.extend_from_slice(payload);
    body
}

fn udp_body(len: usize) -> Vec<u8> {
    let mut body = vec![0x30, 0x39, 0x00, 0x35];
    body.extend_from_slice(&u16::try_from(8 + len).unwrap().to_be_bytes());
    body.extend_from_slice(&[0, 0]);
    body.extend((0..len).map(|at| at.to_le_bytes()[0]));
    body
}

fn tcp_header(sequence: u32, flags: u8, options: usize) -> Vec<u8> {
    let mut header = vec![0x9c, 0x40, 0x14, 0x51];
    header.extend_from_slice(&sequence.to_be_bytes());
    header.extend_from_slice(&[1, 2, 3, 4]);
    header.push(u8::try_from((20 + options) / 4).unwrap() << 4);
    header.push(flags);
    header.extend_from_slice(&[0x20, 0x00, 0, 0, 0, 0]);
    header.extend(std::iter::repeat_n(1, options));
    header
}

fn ip_packet(protocol: u8, id: u16, dont_fragment: bool, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend_from_slice(&u16::try_from(20 + body.len()).unwrap().to_be_bytes());
    packet.extend_from_slice(&id.to_be_bytes());
    packet.extend_from_slice(&[if dont_fragment { 0x40 } else { 0 }, 0, 64, protocol, 0, 0]);
    packet.extend_from_slice(&[10, 244, 1, 10, 10, 245, 1, 10]);
    let checksum = !rfc_1071(&[&packet]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend_from_slice(body);
    packet
}

/// Writes the IPv4 header checksum and, if `transport` is set, the TCP or UDP checksum.
fn fix(packet: &mut [u8], transport: bool) {
    packet[10..12].fill(0);
    let checksum = !rfc_1071(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    if !transport {
        return;
    }
    let at = if packet[9] == 17 { 26 } else { 36 };
    packet[at..at + 2].fill(0);
    let addresses: [u8; 8] = packet[12..20].try_into().unwrap();
    let mut head = addresses.to_vec();
    head.extend_from_slice(&[0, packet[9]]);
    head.extend_from_slice(&u16::try_from(packet.len() - 20).unwrap().to_be_bytes());
    let mut checksum = !rfc_1071(&[&head, &packet[20..]]);
    if checksum == 0 && packet[9] == 17 {
        checksum = 0xffff;
    }
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

fn pseudo(protocol: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![10, 244, 1, 10, 10, 245, 1, 10, 0, protocol];
    bytes.extend_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
    bytes
}

/// Returns the sum of RFC 1071, computed word by word; all parts except the last have an even
/// length.
fn rfc_1071(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for part in parts {
        for word in part.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
    }
    u16::try_from(sum).unwrap()
}
