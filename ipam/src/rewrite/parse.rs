//! Parses packets in wire format, for tests that compare the oracle with the eBPF programs.

use super::{Header, IcmpError, Packet};
use std::net::Ipv4Addr;

/// The error for a packet whose headers are truncated, invalid or split over several fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

const ICMP: u8 = 1;

/// Types of ICMP errors (RFC 1122, section 3.2.2): destination unreachable, source quench,
/// redirect, time exceeded and parameter problem.
const ERRORS: [u8; 5] = [3, 4, 5, 11, 12];

/// Length of an IPv4 header without options, in bytes.
const HEADER: usize = 20;

/// Length of an ICMP header, in bytes.
const ICMP_HEADER: usize = 8;

impl Packet {
    /// Parses an IPv4 packet, and ignores bytes beyond the total length in its header.
    ///
    /// # Errors
    ///
    /// Returns [`Malformed`] if the headers are such that a gateway must drop the packet.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let fixed: &[u8; HEADER] = bytes.first_chunk().ok_or(Malformed)?;
        let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        let header_len = usize::from(fixed[0] & 0xf) * 4;
        let bytes = bytes.get(..total).ok_or(Malformed)?;
        if fixed[0] >> 4 != 4 || header_len < HEADER {
            return Err(Malformed);
        }
        let (header, payload) = bytes.split_at_checked(header_len).ok_or(Malformed)?;
        let protocol = fixed[9];
        // The unit of the fragment offset field is 8 bytes.
        let offset = usize::from(u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1fff) * 8;

        Ok(Self {
            header: addresses(header).ok_or(Malformed)?,
            ttl: fixed[8],
            options: header[HEADER..].to_vec(),
            error: if offset == 0 {
                first(protocol, payload)?
            } else {
                later(protocol, offset)?;
                None
            },
        })
    }
}

/// Parses the payload of an unfragmented packet or of a first fragment.
///
/// Returns the ICMP error in the payload, if any.
fn first(protocol: u8, payload: &[u8]) -> Result<Option<IcmpError>, Malformed> {
    if payload.len() < required_len(protocol) {
        return Err(Malformed);
    }
    if protocol != ICMP {
        return Ok(None);
    }
    let kind = payload.first().filter(|kind| ERRORS.contains(kind));

    Ok(kind.map(|kind| IcmpError {
        kind: *kind,
        quote: payload.get(ICMP_HEADER..).and_then(quote),
    }))
}

/// Checks a fragment other than the first. `offset` is its fragment offset in bytes.
fn later(protocol: u8, offset: usize) -> Result<(), Malformed> {
    // At reassembly, the fragment could overwrite the quoted addresses of an ICMP error, which the
    // gateway checks only in the first fragment.
    if protocol == ICMP && offset < ICMP_HEADER + HEADER {
        return Err(Malformed);
    }

    Ok(())
}

/// Returns the number of payload bytes that a gateway needs to rewrite a packet of this protocol.
///
/// For ICMP, this is the length of the header. The checksums of TCP, UDP, DCCP and UDP-Lite cover
/// the IP addresses, and the gateway must update them. For these protocols, the payload must extend
/// to the end of the checksum field.
fn required_len(protocol: u8) -> usize {
    match protocol {
        ICMP => ICMP_HEADER,
        6 => 18,            // TCP
        17 | 33 | 136 => 8, // UDP, DCCP, UDP-Lite
        _ => 0,
    }
}

/// Returns the addresses in a quoted IPv4 header, or `None` if it is truncated or invalid.
fn quote(bytes: &[u8]) -> Option<Header> {
    let version_ihl = *bytes.first()?;

    (version_ihl >> 4 == 4 && version_ihl & 0xf >= 5)
        .then(|| addresses(bytes))
        .flatten()
}

fn addresses(header: &[u8]) -> Option<Header> {
    let address = |at: usize| {
        let octets: [u8; 4] = header.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(octets))
    };

    Some(Header {
        source: address(12)?,
        destination: address(16)?,
    })
}
