//! Checks the packets inside the tunnel: source addresses, ICMP errors and liveness probes.

use super::drops::Drop;
use crate::mutant;
use ebpf_common::settings;
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;
use std::ops::Range;

/// Address of the server inside every tunnel, as upstream Liqo assigns it.
pub(super) const SERVER: Ipv4Addr = settings::LIVENESS_SERVER;
/// Address of the client inside every tunnel.
pub(super) const CLIENT: Ipv4Addr = settings::LIVENESS_CLIENT;
/// Source and destination port of liveness probes.
pub(super) const PROBE_PORT: u16 = settings::LIVENESS_PORT;
/// Network bits of the prefix that contains [`SERVER`] and [`CLIENT`]. A probe may be sent to any
/// address in the prefix, because upstream assigns the addresses of further tunnels from it.
const PROBE_NET: u32 = settings::LIVENESS_NET.to_bits() >> PROBE_NET_SHIFT;
const PROBE_NET_SHIFT: u32 = 32 - settings::LIVENESS_NET_LEN as u32;

/// Length of an IPv4 header without options, in bytes.
pub(super) const IPV4_HEADER: usize = 20;
/// Length of a UDP header, in bytes.
pub(super) const UDP_HEADER: usize = 8;

const ICMP: u8 = 1;
const UDP: u8 = 17;
/// Mask of the "more fragments" flag and of the fragment offset.
const FRAGMENT: u16 = 0x3fff;
const FRAGMENT_OFFSET: u16 = 0x1fff;
const TTL: u8 = 64;
/// ICMP types that quote a packet (RFC 1122, section 3.2.2): destination unreachable, source
/// quench, redirect, time exceeded, parameter problem.
const ICMP_ERRORS: [u8; 5] = [3, 4, REDIRECT, 11, 12];
/// ICMP type of a redirect, which is never accepted from a peer. Only a router on the receiver's
/// own link may send a redirect.
const REDIRECT: u8 = 5;
const ICMP_HEADER: usize = 8;

/// Allowed source addresses of a peer, as disjoint ranges in ascending order. A lookup is one
/// binary search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sources(Vec<(u32, u32)>);

impl Sources {
    pub(super) fn new(nets: &[Ipv4Net]) -> Self {
        let mut ranges: Vec<_> = nets
            .iter()
            .map(|net| (net.network().to_bits(), net.broadcast().to_bits()))
            .collect();
        ranges.sort_unstable();

        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= *end => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }

        Self(merged)
    }

    /// Returns whether all addresses of `net` are in the set.
    pub(super) fn contains_all(&self, net: Ipv4Net) -> bool {
        let (first, last) = (net.network().to_bits(), net.broadcast().to_bits());
        let above = self.0.partition_point(|(start, _)| *start <= first);

        above > 0 && last <= self.0[above - 1].1
    }

    #[inline]
    pub(super) fn contains(&self, address: u32) -> bool {
        let above = self.0.partition_point(|(first, _)| *first <= address);

        above > 0 && address <= self.0[above - 1].1
    }
}

/// Result of [`check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Inner {
    /// A packet that the shell writes to the TAP.
    Forward,
    /// A liveness probe. The range is the position of the JSON in the packet.
    Probe(Range<usize>),
}

/// Checks an inner packet of a peer. `sources` are the addresses that the peer may use.
///
/// # Errors
///
/// Returns the reason to drop the packet.
#[inline]
pub(super) fn check(packet: &[u8], sources: &Sources) -> Result<Inner, Drop> {
    let header = Header::parse(packet)?;
    if header.destination >> PROBE_NET_SHIFT == PROBE_NET
        && let Some(json) = header.probe(packet)
    {
        return Ok(Inner::Probe(json));
    }
    if header.is_error(packet) {
        return if header.quotes_receiver(packet, sources) {
            Ok(Inner::Forward)
        } else {
            Err(Drop::QuoteNotAllowed)
        };
    }
    if sources.contains(header.source) || mutant::disables("allowed-source") {
        return Ok(Inner::Forward);
    }

    Err(Drop::SourceNotAllowed)
}

/// Returns the destination of a packet, and 0.0.0.0 if its header is malformed.
pub(super) fn destination(packet: &[u8]) -> Ipv4Addr {
    let header = Header::parse(packet);

    header.map_or(Ipv4Addr::UNSPECIFIED, |it| {
        Ipv4Addr::from_bits(it.destination)
    })
}

/// Returns a hash that is the same for all packets of a flow.
pub(super) fn flow_hash(packet: &[u8]) -> u32 {
    let Ok(header) = Header::parse(packet) else {
        return 0;
    };
    let ports = match packet.get(header.len..header.len + 4) {
        Some(ports) if header.fragment == 0 => {
            u32::from_be_bytes(ports.try_into().expect("four bytes"))
        }
        Some(_) | None => 0,
    };

    (header.source ^ header.destination.rotate_left(16) ^ ports.rotate_left(8))
        .wrapping_add(u32::from(header.protocol))
        .wrapping_mul(0x9e37_79b1)
}

struct Header {
    len: usize,
    fragment: u16,
    protocol: u8,
    source: u32,
    destination: u32,
}

impl Header {
    #[inline]
    fn parse(packet: &[u8]) -> Result<Self, Drop> {
        let Some(fixed) = packet.first_chunk::<IPV4_HEADER>() else {
            return Err(Drop::InnerMalformed);
        };
        if fixed[0] >> 4 != 4 {
            return Err(Drop::InnerNotIpv4);
        }
        let len = usize::from(fixed[0] & 0xf) * 4;
        let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        if len < IPV4_HEADER || total < len || total != packet.len() {
            return Err(Drop::InnerMalformed);
        }

        Ok(Self {
            len,
            fragment: u16::from_be_bytes([fixed[6], fixed[7]]) & FRAGMENT,
            protocol: fixed[9],
            source: u32::from_be_bytes([fixed[12], fixed[13], fixed[14], fixed[15]]),
            destination: u32::from_be_bytes([fixed[16], fixed[17], fixed[18], fixed[19]]),
        })
    }

    /// Returns the position of the probe's JSON if the packet is a probe.
    fn probe(&self, packet: &[u8]) -> Option<Range<usize>> {
        if self.protocol != UDP || self.fragment != 0 {
            return None;
        }
        let udp = packet[self.len..].first_chunk::<UDP_HEADER>()?;
        let len = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
        let end = self.len + len;
        if u16::from_be_bytes([udp[2], udp[3]]) != PROBE_PORT
            || len < UDP_HEADER
            || end > packet.len()
        {
            return None;
        }

        Some(self.len + UDP_HEADER..end)
    }

    fn is_error(&self, packet: &[u8]) -> bool {
        self.protocol == ICMP
            && self.fragment & FRAGMENT_OFFSET == 0
            && packet
                .get(self.len)
                .is_some_and(|kind| ICMP_ERRORS.contains(kind))
    }

    /// Returns whether an ICMP error quotes a packet that its receiver sent to the peer.
    ///
    /// Such an error may have any source address. Routers and nodes of the remote cluster send
    /// errors from outside the peer's prefixes, and path MTU discovery needs these errors. The eBPF
    /// programs check that the receiver belongs to this cluster.
    fn quotes_receiver(&self, packet: &[u8], sources: &Sources) -> bool {
        let Some(icmp) = packet[self.len..].first_chunk::<{ ICMP_HEADER + IPV4_HEADER }>() else {
            return false;
        };
        let quoted = &icmp[ICMP_HEADER..];
        let source = u32::from_be_bytes([quoted[12], quoted[13], quoted[14], quoted[15]]);
        let destination = u32::from_be_bytes([quoted[16], quoted[17], quoted[18], quoted[19]]);

        icmp[0] != REDIRECT
            && quoted[0] >> 4 == 4
            && source == self.destination
            && sources.contains(destination)
    }
}

/// Source and destination of a probe. In the reply they are swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbeAddresses {
    pub(super) source: (Ipv4Addr, u16),
    pub(super) destination: Ipv4Addr,
}

/// Reads the addresses of a probe that [`check`] recognised.
pub(super) fn probe_addresses(packet: &[u8]) -> ProbeAddresses {
    let address = |at| {
        let octets = packet[at..].first_chunk::<4>();
        Ipv4Addr::from(*octets.expect("a probe has a whole IPv4 header"))
    };
    let len = usize::from(packet[0] & 0xf) * 4;

    ProbeAddresses {
        source: (
            address(12),
            u16::from_be_bytes([packet[len], packet[len + 1]]),
        ),
        destination: address(16),
    }
}

/// Builds the IPv4 packet of a probe, with [`PROBE_PORT`] as the source port.
pub(super) fn probe_packet(from: Ipv4Addr, to: (Ipv4Addr, u16), json: &[u8]) -> Vec<u8> {
    let total = IPV4_HEADER + UDP_HEADER + json.len();
    let total_field = u16::try_from(total).expect("probes are shorter than an IPv4 packet can be");
    let udp_field = total_field - IPV4_HEADER as u16;

    let mut packet = Vec::with_capacity(total);
    packet.extend([0x45, 0]);
    packet.extend(total_field.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, TTL, UDP, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.0.octets());
    let checksum = fold(sum(&packet));
    packet[10..12].copy_from_slice(&(!checksum).to_be_bytes());

    packet.extend(PROBE_PORT.to_be_bytes());
    packet.extend(to.1.to_be_bytes());
    packet.extend(udp_field.to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(json);
    let pseudo = u32::from(UDP) + u32::from(udp_field);
    let checksum = match !fold(sum(&packet[12..]) + pseudo) {
        0 => 0xffff,
        checksum => checksum,
    };
    packet[IPV4_HEADER + 6..IPV4_HEADER + 8].copy_from_slice(&checksum.to_be_bytes());

    packet
}

/// Sums the 16-bit words of at most 64 KiB for the internet checksum (RFC 1071).
fn sum(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum()
}

fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);

    ((once & 0xffff) + (once >> 16)) as u16
}

#[cfg(test)]
mod tests;
