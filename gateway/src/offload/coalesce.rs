//! Coalesces decrypted packets of a flow into super-packets, each of which is one write to the TAP.
//!
//! Segmentation of a super-packet must yield the original packets. Therefore the coalescer accepts
//! only consecutive TCP segments with equal headers, and UDP datagrams of equal length. It never
//! coalesces fragments or packets with IPv4 options. It verifies all checksums, since the kernel
//! does not verify the checksums of a super-packet. Packets of a flow stay in order.

mod flow;

use super::checksum::Sum;
use super::frame::{self, FRAME_MAX, HEADROOM, PACKET_MAX};
use super::ipv4;
use super::vnet::{self, Gso, Partial};
use ebpf_common::settings::Settings;
use flow::{Candidate, Flow, Transport};

/// Maximum number of flows with an open super-packet; a further flow evicts the oldest one.
///
/// A batch of received datagrams seldom has more flows, and each flow needs a buffer of 64 KiB.
const FLOWS_MAX: usize = 8;

/// Maximum number of datagrams in a super-packet.
///
/// This is the smallest `UDP_MAX_SEGMENTS` of all kernels that support UDP segmentation offload
/// (USO).
const DATAGRAMS_MAX: usize = 64;

/// Offset of the frame in its buffer, in bytes.
///
/// The allocator places large buffers at the start of a page. The kernel copies slowly to the first
/// bytes of a page, so the frame starts after these bytes.
const OFFSET: usize = 64;

/// Coalesces the packets of up to [`FLOWS_MAX`] flows at the same time.
pub(crate) struct Coalescer {
    settings: Settings,
    /// Whether the kernel accepts UDP super-packets from the TAP.
    udp: bool,
    /// The incomplete super-packet of each flow, the oldest first.
    open: Vec<Open>,
    /// Free buffers. The last one receives the next packet.
    spare: Vec<Buffer>,
}

/// Memory for one frame. The frame starts at [`OFFSET`].
struct Buffer(Box<[u8]>);

/// A super-packet to which packets may still be appended.
struct Open {
    peer: u16,
    first: Candidate,
    buffer: Buffer,
    /// Length of IPv4 header, transport header and the payload so far, in bytes.
    len: usize,
    segments: usize,
    /// Next expected TCP sequence number; unused for UDP.
    sequence: u32,
    /// Next expected IPv4 identification; unused for packets with don't fragment (DF).
    id: u16,
    /// Whether the last segment has the TCP flag PSH.
    push: bool,
}

impl Coalescer {
    /// Allocates the buffers; `udp` says whether the TAP supports `TUN_F_USO4`.
    pub(crate) fn new(settings: Settings, udp: bool) -> Self {
        Self {
            settings,
            udp,
            open: Vec::with_capacity(FLOWS_MAX),
            // The additional buffer is for the packet that evicts the oldest flow.
            spare: (0..=FLOWS_MAX).map(|_| Buffer::new()).collect(),
        }
    }

    /// Returns the buffer for the next packet; the caller fills it before [`Coalescer::push`].
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.next().frame()[HEADROOM..]
    }

    /// Adds a packet from `peer`, whose `len` bytes are in the buffer of [`Coalescer::room`].
    ///
    /// Passes complete frames to `write`. The frames of a flow stay in order.
    pub(crate) fn push(&mut self, peer: u16, len: usize, write: &mut impl FnMut(&[u8])) {
        let packet = &self.next().frame()[HEADROOM..][..len];
        let candidate = match flow::inspect(packet) {
            Ok(candidate) if self.udp || candidate.flow.transport() == Transport::Tcp => candidate,
            Ok(Candidate { flow, .. }) | Err(Some(flow)) => {
                self.flush_where(write, |open| {
                    open.peer == peer && flow.overlaps(&open.first.flow)
                });
                return self.write_alone(peer, len, write);
            }
            Err(None) => return self.write_alone(peer, len, write),
        };

        let Some(at) = self
            .open
            .iter()
            .position(|open| open.peer == peer && open.first.flow == candidate.flow)
        else {
            return self.start(peer, candidate, len, write);
        };
        if !self.open[at].accepts(&candidate, len) {
            self.flush_at(at, write);
            return self.start(peer, candidate, len, write);
        }

        let next = self.spare.last_mut().expect("one buffer is always spare");
        let payload = &next.frame()[HEADROOM + candidate.header_len..HEADROOM + len];
        if self.open[at].append(&candidate, payload) {
            self.flush_at(at, write);
        }
    }

    /// Writes all open super-packets, oldest first.
    pub(crate) fn flush(&mut self, write: &mut impl FnMut(&[u8])) {
        self.flush_where(write, |_| true);
    }

    fn next(&mut self) -> &mut Buffer {
        self.spare.last_mut().expect("one buffer is always spare")
    }

    fn start(
        &mut self,
        peer: u16,
        candidate: Candidate,
        len: usize,
        write: &mut impl FnMut(&[u8]),
    ) {
        if candidate.push {
            return self.write_alone(peer, len, write); // No segment may follow a segment with PSH.
        }
        if self.open.len() == FLOWS_MAX {
            self.flush_at(0, write);
        }
        let buffer = self.spare.pop().expect("one buffer is always spare");
        self.open.push(Open {
            peer,
            buffer,
            len,
            segments: 1,
            sequence: candidate.end_sequence,
            id: candidate.id.wrapping_add(1),
            push: false,
            first: candidate,
        });
    }

    fn write_alone(&mut self, peer: u16, len: usize, write: &mut impl FnMut(&[u8])) {
        let settings = self.settings;
        let frame = &mut self.next().frame()[..HEADROOM + len];
        frame[..vnet::LEN].copy_from_slice(&vnet::Header::default().encode());
        frame::write_ethernet(frame, &settings, peer);
        write(frame);
    }

    fn flush_where(&mut self, write: &mut impl FnMut(&[u8]), which: impl Fn(&Open) -> bool) {
        let mut at = 0;
        while at < self.open.len() {
            if which(&self.open[at]) {
                self.flush_at(at, write);
            } else {
                at += 1;
            }
        }
    }

    fn flush_at(&mut self, at: usize, write: &mut impl FnMut(&[u8])) {
        let mut open = self.open.remove(at);
        let frame_len = open.finish(&self.settings);
        write(&open.buffer.frame()[..frame_len]);
        // The buffer becomes the first one, because the last one may already hold the next packet.
        self.spare.insert(0, open.buffer);
    }
}

impl Buffer {
    fn new() -> Self {
        Self(vec![0; OFFSET + FRAME_MAX].into_boxed_slice())
    }

    fn frame(&mut self) -> &mut [u8] {
        &mut self.0[OFFSET..]
    }
}

impl Open {
    /// Returns whether the packet of `len` bytes may be appended to the super-packet.
    fn accepts(&mut self, candidate: &Candidate, len: usize) -> bool {
        let headers = self.first.header_len;
        let payload_len = len - candidate.header_len;
        let size = self.first.payload_len;
        candidate.header_len == headers
            && payload_len <= size
            && self.len + payload_len <= PACKET_MAX
            && (candidate.dont_fragment || candidate.id == self.id)
            && candidate.follows(&self.first)
            && match candidate.flow.transport() {
                Transport::Tcp => candidate.sequence == self.sequence,
                Transport::Udp => self.segments < DATAGRAMS_MAX,
            }
    }

    /// Appends the payload; returns whether the super-packet is complete.
    fn append(&mut self, candidate: &Candidate, payload: &[u8]) -> bool {
        let start = HEADROOM + self.len;
        self.buffer.frame()[start..start + payload.len()].copy_from_slice(payload);
        self.len += payload.len();
        self.segments += 1;
        self.sequence = candidate.end_sequence;
        self.id = candidate.id.wrapping_add(1);
        self.push = candidate.push;

        candidate.push || payload.len() < self.first.payload_len
    }

    /// Completes all headers; returns the length of the frame in bytes.
    fn finish(&mut self, settings: &Settings) -> usize {
        let (len, segments, push) = (self.len, self.segments, self.push);
        let first = &self.first;
        let frame = &mut self.buffer.frame()[..HEADROOM + len];
        frame::write_ethernet(frame, settings, self.peer);
        let vnet = if segments == 1 {
            vnet::Header::default()
        } else {
            let packet = &mut frame[HEADROOM..];
            coalesce_headers(packet, &first.flow, push);
            super_packet(first)
        };
        frame[..vnet::LEN].copy_from_slice(&vnet.encode());

        HEADROOM + len
    }
}

/// Changes the headers of the first packet into the headers of the super-packet: lengths, checksums
/// and PSH.
fn coalesce_headers(packet: &mut [u8], flow: &Flow, push: bool) {
    const HEADER: usize = ipv4::HEADER_MIN;
    let total_len = u16::try_from(packet.len()).expect("`accepts` keeps it below `PACKET_MAX`");
    ipv4::finish_header(packet, HEADER, total_len);
    let transport_len = total_len - u16::try_from(HEADER).expect("the header has 20 bytes");
    let transport = flow.transport();
    let sum = Sum::pseudo(
        flow.source,
        flow.destination,
        transport.protocol(),
        transport_len,
    )
    .partial();
    match transport {
        Transport::Tcp => {
            if push {
                packet[HEADER + flow::TCP_FLAGS] |= flow::PSH;
            }
        }
        Transport::Udp => {
            packet[HEADER + 4..HEADER + 6].copy_from_slice(&transport_len.to_be_bytes());
        }
    }
    let at = HEADER + transport.checksum_offset();
    packet[at..at + 2].copy_from_slice(&sum);
}

/// Returns the virtio_net_hdr of the super-packet that starts with `first`.
fn super_packet(first: &Candidate) -> vnet::Header {
    let transport = first.flow.transport();
    let short = |len: usize| u16::try_from(len).expect("lengths within a packet");
    vnet::Header {
        gso: match transport {
            Transport::Tcp => Gso::TcpV4 { ecn: first.cwr },
            Transport::Udp => Gso::UdpL4,
        },
        header_len: short(frame::ETHERNET + first.header_len),
        gso_size: short(first.payload_len),
        partial: Some(Partial {
            start: short(frame::ETHERNET + ipv4::HEADER_MIN),
            offset: short(transport.checksum_offset()),
        }),
    }
}

#[cfg(test)]
mod tests;
