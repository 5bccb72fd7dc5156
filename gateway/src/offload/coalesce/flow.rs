//! Decides which packets may be coalesced with other packets of their flow.

use crate::offload::checksum::Sum;
use crate::offload::ipv4::{self, Header};

pub(super) const TCP_FLAGS: usize = 13;
pub(super) const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;

const TCP_HEADER_MIN: usize = 20;
const UDP_HEADER: usize = 8;

/// Length of a TCP header with the maximum of options, in bytes.
const TCP_HEADER_MAX: usize = 60;

/// The transport protocols whose packets can be coalesced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    pub(super) fn protocol(self) -> u8 {
        match self {
            Self::Tcp => ipv4::TCP,
            Self::Udp => ipv4::UDP,
        }
    }

    /// Returns the offset of the checksum in the transport header.
    pub(super) fn checksum_offset(self) -> usize {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
        }
    }
}

/// The flow of a packet: addresses, protocol and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) source: [u8; 4],
    pub(super) destination: [u8; 4],
    protocol: u8,
    /// Source and destination port; `None` for fragments, which may belong to any flow between the
    /// addresses.
    ports: Option<[u8; 4]>,
}

impl Flow {
    /// Returns the transport protocol; correct only for the flow of a [`Candidate`], which is TCP
    /// or UDP.
    pub(super) fn transport(&self) -> Transport {
        if self.protocol == ipv4::TCP {
            Transport::Tcp
        } else {
            Transport::Udp
        }
    }

    /// Returns whether a packet of `self` must stay behind earlier packets of `other`.
    ///
    /// This is the case if both flows are equal. If `self` has no ports, it is enough that
    /// addresses and protocol are equal.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        (self.source, self.destination, self.protocol)
            == (other.source, other.destination, other.protocol)
            && (self.ports.is_none() || self.ports == other.ports)
    }
}

/// The header fields of a packet that may be coalesced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) flow: Flow,
    /// Length of IPv4 and transport header, in bytes.
    pub(super) header_len: usize,
    pub(super) payload_len: usize,
    pub(super) id: u16,
    pub(super) dont_fragment: bool,
    pub(super) sequence: u32,
    /// Sequence number of the byte after the payload.
    pub(super) end_sequence: u32,
    pub(super) push: bool,
    pub(super) cwr: bool,
    /// IPv4 fields that must be equal in all packets of a super-packet: TOS, TTL, don't fragment.
    network: [u8; 3],
    /// TCP fields that must be equal in all packets of a super-packet: acknowledgement number,
    /// flags other than PSH and CWR, window, urgent pointer, options. All zero for UDP.
    transport: [u8; TCP_HEADER_MAX],
}

impl Candidate {
    /// Returns whether the header fields of this packet match a super-packet that starts with
    /// `first`.
    pub(super) fn follows(&self, first: &Self) -> bool {
        !self.cwr && self.network == first.network && self.transport == first.transport
    }
}

/// Parses a packet and verifies its checksums.
///
/// # Errors
///
/// If the packet must not be coalesced, the error is the packet's flow, so that the caller can keep
/// the packets of this flow in order. If the packet is malformed, the error is `None`.
pub(super) fn inspect(packet: &[u8]) -> Result<Candidate, Option<Flow>> {
    let ip = Header::parse(packet).ok_or(None)?;
    let ports = packet
        .get(ip.len..)
        .and_then(<[u8]>::first_chunk::<4>)
        .copied()
        .filter(|_| !ip.is_fragment());
    let flow = Flow {
        source: ip.source,
        destination: ip.destination,
        protocol: ip.protocol,
        ports,
    };

    candidate(packet, &ip, flow).ok_or(Some(flow))
}

fn candidate(packet: &[u8], ip: &Header, flow: Flow) -> Option<Candidate> {
    if ip.len != ipv4::HEADER_MIN
        || usize::from(ip.total_len) != packet.len()
        || ip.fragment & !ipv4::DONT_FRAGMENT != 0
    {
        return None;
    }
    let (network, body) = packet.split_at(ip.len);
    let (transport_header, transport) = match ip.protocol {
        ipv4::TCP => tcp(body)?,
        ipv4::UDP => udp(body)?,
        _ => return None,
    };
    let payload_len = body.len() - transport_header;
    let transport_len = u16::try_from(body.len()).ok()?;
    let valid = Sum::default().add(network).is_valid()
        && Sum::pseudo(ip.source, ip.destination, ip.protocol, transport_len)
            .add(body)
            .is_valid();
    if payload_len == 0 || !valid {
        return None;
    }

    let flags = if ip.protocol == ipv4::TCP {
        body[TCP_FLAGS]
    } else {
        0
    };
    let sequence = u32::from_be_bytes([body[4], body[5], body[6], body[7]]);
    Some(Candidate {
        flow,
        header_len: ip.len + transport_header,
        payload_len,
        id: ip.id,
        dont_fragment: ip.dont_fragment(),
        sequence,
        end_sequence: sequence.wrapping_add(u32::try_from(payload_len).ok()?),
        push: flags & PSH != 0,
        cwr: flags & CWR != 0,
        network: [packet[1], packet[8], packet[6]],
        transport,
    })
}

/// Returns the header length and [`Candidate::transport`] of a TCP segment.
///
/// Returns `None` if the segment has other flags than ACK, PSH, ECE and CWR, or lacks ACK.
fn tcp(segment: &[u8]) -> Option<(usize, [u8; TCP_HEADER_MAX])> {
    let len = usize::from(segment.get(12)? >> 4) * 4;
    let flags = *segment.get(TCP_FLAGS)?;
    if len < TCP_HEADER_MIN || len > segment.len() || flags & !(PSH | ECE | CWR) != ACK {
        return None;
    }

    let mut equal = [0; TCP_HEADER_MAX];
    equal[..len].copy_from_slice(&segment[..len]);
    equal[..8].fill(0); // `Flow` has the ports, and the sequence number differs in each segment.
    equal[TCP_FLAGS] &= !(PSH | CWR);
    equal[16..18].fill(0);
    Some((len, equal))
}

/// Returns the header length of a UDP datagram, and an all-zero [`Candidate::transport`].
///
/// Returns `None` if the datagram has no checksum, because all datagrams of a super-packet have a
/// checksum.
fn udp(datagram: &[u8]) -> Option<(usize, [u8; TCP_HEADER_MAX])> {
    let header = datagram.first_chunk::<UDP_HEADER>()?;
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    (len == datagram.len() && header[6..8] != [0, 0]).then_some((UDP_HEADER, [0; TCP_HEADER_MAX]))
}
