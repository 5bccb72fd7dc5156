//! Segments a super-packet from the kernel into packets for the tunnel.

use super::checksum::Sum;
use super::frame;
use super::ipv4::{self, Header};
use super::vnet::{self, Gso};
use std::ops::Range;

const UDP_HEADER: usize = 8;
const TCP_HEADER_MIN: usize = 20;

/// Maximum length of IPv4 and TCP header together, in bytes.
const HEADERS_MAX: usize = 120;

const SEQUENCE: Range<usize> = 4..8;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: Range<usize> = 16..18;
const UDP_LEN: Range<usize> = 4..6;
const UDP_CHECKSUM: Range<usize> = 6..8;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Maximum number of segments in a frame.
///
/// The limit bounds the time for which a worker holds the lane's lock to send one frame. Encryption
/// takes about 0.2 us for a short segment and 0.9 us for a segment of 1,400 bytes. Hence 256 short
/// segments take about as long as an ordinary super-packet of 48 full segments.
///
/// Super-packets from Linux stay below the limit. For UDP, `UDP_MAX_SEGMENTS` is 128. For TCP,
/// 64 KiB are 132 segments at IPv4's default MSS of 536 bytes with 40 bytes of options. Only a raw
/// socket, or TCP with an MSS below 256 bytes and a window of several hundred segments, exceeds the
/// limit. TCP then retransmits single segments.
pub(crate) const SEGMENTS_MAX: usize = 256;

/// The reason why a frame cannot be segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// The headers contradict each other or the length of the frame.
    Malformed,
    /// The frame holds more than [`SEGMENTS_MAX`] segments.
    TooManySegments,
}

/// Iterator over the packets of one frame from the TAP, first to last.
///
/// The segmentation is in place: [`Split::next`] writes the headers of a segment over the end of
/// the previous segment, so that no payload byte moves. A segment is therefore valid only until the
/// next call.
pub(crate) struct Split<'a> {
    packet: &'a mut [u8],
    kind: Kind,
    /// IPv4 and transport header of the super-packet.
    template: [u8; HEADERS_MAX],
    /// Length of the IPv4 header, in bytes.
    ip_len: usize,
    /// Length of IPv4 and transport header, in bytes; 0 for a packet that is not segmented.
    header_len: usize,
    /// Payload bytes of each segment except the last.
    size: usize,
    /// Offset in `packet` of the next segment's payload.
    position: usize,
    index: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Whole,
    Tcp,
    Udp,
}

impl<'a> Split<'a> {
    /// Parses the packet that follows the virtio_net_hdr `vnet`.
    ///
    /// Completes the checksum of a packet that is not segmented, if the kernel left it incomplete.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if headers and lengths contradict each other, or if there are too many
    /// segments.
    pub(crate) fn new(vnet: vnet::Header, packet: &'a mut [u8]) -> Result<Self, Error> {
        let ip = Header::parse(packet).ok_or(Error::Malformed)?;
        let (kind, header_len) = match vnet.gso {
            Gso::None => return Self::whole(vnet, ip, packet),
            Gso::TcpV4 { .. } => (Kind::Tcp, tcp_headers(&ip, packet).ok_or(Error::Malformed)?),
            Gso::UdpL4 => (Kind::Udp, udp_headers(&ip, packet).ok_or(Error::Malformed)?),
        };
        if vnet.gso_size == 0
            || packet.len() <= header_len
            || packet.len() > frame::PACKET_MAX
            || ip.is_fragment()
        {
            return Err(Error::Malformed);
        }
        let size = usize::from(vnet.gso_size);
        if (packet.len() - header_len).div_ceil(size) > SEGMENTS_MAX {
            return Err(Error::TooManySegments);
        }
        let mut template = [0; HEADERS_MAX];
        template[..header_len].copy_from_slice(&packet[..header_len]);

        Ok(Self {
            packet,
            kind,
            template,
            ip_len: ip.len,
            header_len,
            size,
            position: header_len,
            index: 0,
        })
    }

    fn whole(vnet: vnet::Header, ip: Header, packet: &'a mut [u8]) -> Result<Self, Error> {
        let total_len = usize::from(ip.total_len);
        if total_len < ip.len {
            return Err(Error::Malformed);
        }
        // Removes the padding of a short Ethernet frame.
        let packet = packet.get_mut(..total_len).ok_or(Error::Malformed)?;
        if let Some(partial) = vnet.partial {
            complete(partial, &ip, packet).ok_or(Error::Malformed)?;
        }

        Ok(Self {
            size: packet.len(),
            packet,
            kind: Kind::Whole,
            template: [0; HEADERS_MAX],
            ip_len: ip.len,
            header_len: 0,
            position: 0,
            index: 0,
        })
    }

    /// Returns the length of the next segment with its headers, in bytes; no later segment is
    /// longer.
    pub(crate) fn segment_len(&self) -> usize {
        self.header_len + self.size.min(self.packet.len() - self.position)
    }

    /// Returns the next segment, with its headers and checksums.
    pub(crate) fn next(&mut self) -> Option<&mut [u8]> {
        let payload_len = self.size.min(self.packet.len() - self.position);
        if payload_len == 0 {
            return None;
        }
        let start = self.position - self.header_len;
        let end = self.position + payload_len;
        let last = end == self.packet.len();
        self.position = end;
        let segment = &mut self.packet[start..end];
        if self.kind != Kind::Whole {
            write_headers(
                segment,
                &self.template[..self.header_len],
                self.ip_len,
                self.kind,
                Place {
                    index: self.index,
                    offset: u32::from(self.index) * u32::try_from(self.size).unwrap_or(u32::MAX),
                    last,
                },
            );
        }
        self.index = self.index.wrapping_add(1);

        Some(segment)
    }
}

/// The position of a segment in its super-packet.
#[derive(Clone, Copy)]
struct Place {
    index: u16,
    /// Payload bytes of all segments before this one.
    offset: u32,
    last: bool,
}

fn write_headers(segment: &mut [u8], template: &[u8], ip_len: usize, kind: Kind, place: Place) {
    segment[..template.len()].copy_from_slice(template);
    let id = u16::from_be_bytes([template[4], template[5]]).wrapping_add(place.index);
    segment[ipv4::ID].copy_from_slice(&id.to_be_bytes());
    let total_len = u16::try_from(segment.len()).expect("no longer than `PACKET_MAX`");
    ipv4::finish_header(segment, ip_len, total_len);

    let (ip, transport) = segment.split_at_mut(ip_len);
    let transport_len = total_len - u16::try_from(ip_len).expect("at most 60");
    let protocol = if kind == Kind::Tcp {
        ipv4::TCP
    } else {
        ipv4::UDP
    };
    let pseudo = Sum::pseudo(addr(ip, 12), addr(ip, 16), protocol, transport_len);
    if kind == Kind::Tcp {
        let sequence = transport[SEQUENCE]
            .first_chunk()
            .map_or(0, |bytes| u32::from_be_bytes(*bytes))
            .wrapping_add(place.offset);
        transport[SEQUENCE].copy_from_slice(&sequence.to_be_bytes());
        if !place.last {
            transport[TCP_FLAGS] &= !(FIN | PSH);
        }
        if place.index > 0 {
            transport[TCP_FLAGS] &= !CWR;
        }
        transport[TCP_CHECKSUM].copy_from_slice(&[0, 0]);
        let checksum = pseudo.add(transport).finish();
        transport[TCP_CHECKSUM].copy_from_slice(&checksum);
    } else {
        transport[UDP_LEN].copy_from_slice(&transport_len.to_be_bytes());
        transport[UDP_CHECKSUM].copy_from_slice(&[0, 0]);
        let checksum = pseudo.add(transport).finish_udp();
        transport[UDP_CHECKSUM].copy_from_slice(&checksum);
    }
}

fn addr(ip: &[u8], at: usize) -> [u8; 4] {
    [ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]
}

/// Returns the length of IPv4 and TCP header in bytes; `None` if they are truncated or not TCP.
fn tcp_headers(ip: &Header, packet: &[u8]) -> Option<usize> {
    let offset = packet.get(ip.len + 12)? >> 4;
    let tcp_len = usize::from(offset) * 4;
    (ip.protocol == ipv4::TCP && tcp_len >= TCP_HEADER_MIN && packet.len() >= ip.len + tcp_len)
        .then_some(ip.len + tcp_len)
}

/// Returns the length of IPv4 and UDP header in bytes; `None` if they are truncated or not UDP.
fn udp_headers(ip: &Header, packet: &[u8]) -> Option<usize> {
    (ip.protocol == ipv4::UDP && packet.len() >= ip.len + UDP_HEADER).then_some(ip.len + UDP_HEADER)
}

/// Completes a checksum whose field holds the sum of the pseudo-header (`CHECKSUM_PARTIAL`).
fn complete(partial: vnet::Partial, ip: &Header, packet: &mut [u8]) -> Option<()> {
    let start = usize::from(partial.start).checked_sub(frame::ETHERNET)?;
    let at = start + usize::from(partial.offset);
    if start < ip.len || at + 2 > packet.len() {
        return None;
    }

    let sum = Sum::default().add(&packet[start..]);
    let checksum = if ip.protocol == ipv4::UDP {
        sum.finish_udp()
    } else {
        sum.finish()
    };
    packet[at..at + 2].copy_from_slice(&checksum);
    Some(())
}

#[cfg(test)]
mod tests;
