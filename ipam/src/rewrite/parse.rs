//! Packets from the wire, for tests that compare byte for byte.

use super::{Header, IcmpError, Packet};
use std::net::Ipv4Addr;

/// Headers that no rule of the oracle applies to: they are truncated, contradict each other or are
/// split over fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

const ICMP: u8 = 1;

/// The ICMP errors (RFC 1122, section 3.2.2): unreachable, quench, redirect, time exceeded, parameter
/// problem.
const ERRORS: [u8; 5] = [3, 4, 5, 11, 12];

/// Length of an IPv4 header without options, in bytes.
const HEADER: usize = 20;

/// Length of an ICMP header, in bytes.
const ICMP_HEADER: usize = 8;

impl Packet {
    /// Reads an IPv4 packet; bytes behind its total length are ignored.
    ///
    /// # Errors
    ///
    /// Returns [`Malformed`] if the packet must be dropped, whatever its addresses.
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
        // In bytes from the start of the datagram's payload.
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

/// Reads the payload of a whole datagram or of its first fragment.
fn first(protocol: u8, payload: &[u8]) -> Result<Option<IcmpError>, Malformed> {
    if payload.len() < checksum_end(protocol) {
        return Err(Malformed); // The checksum covers the addresses and could not be updated.
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

/// Checks a later fragment, whose bytes start `offset` behind the start of the payload.
fn later(protocol: u8, offset: usize) -> Result<(), Malformed> {
    // It could overwrite the addresses that an error quotes.
    if protocol == ICMP && offset < ICMP_HEADER + HEADER {
        return Err(Malformed);
    }

    Ok(())
}

/// Returns the end of the checksum of protocols that include the addresses in theirs.
fn checksum_end(protocol: u8) -> usize {
    match protocol {
        6 => 18,            // TCP
        17 | 33 | 136 => 8, // UDP, DCCP, UDP-Lite
        _ => 0,
    }
}

/// Reads the addresses of a quoted IPv4 header.
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
