//! Checks and rewrites the packet header that an ICMP error quotes.
//!
//! The receiver of an error applies it to the flow of the quoted packet. Therefore the gateway
//! forwards an error only if the receiver may have sent the quoted packet through this gateway to
//! the network that reports the error.

use aya_ebpf::programs::TcContext;
use ebpf_common::counter::Counter;

use crate::mutants::is_on;
use crate::packet::{Frame, ICMP, ICMP_HEADER, IPV4, UDP, checksum_replace};
use crate::rewrite::{Change, Rewrite, checksum_offset};

/// Offset of the checksum in the ICMP header.
const CHECKSUM: u32 = 2;

// Offsets in the quoted IPv4 header.
const QUOTED_FRAGMENT: u32 = 6;
const QUOTED_PROTOCOL: u32 = 9;
const QUOTED_CHECKSUM: u32 = 10;
const QUOTED_SOURCE: u32 = 12;
const QUOTED_DESTINATION: u32 = 16;

const FRAGMENT_OFFSET: u16 = 0x1fff_u16.to_be();

const UNREACHABLE: u8 = 3;
const SOURCE_QUENCH: u8 = 4;
const REDIRECT: u8 = 5;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// The addresses of the packet that an ICMP error quotes.
pub(crate) struct Quote {
    pub(crate) source: u32,
    pub(crate) destination: u32,
}

/// Returns whether a packet is an ICMP error, and so quotes a header (RFC 1122, section 3.2.2).
#[inline(always)]
pub(crate) fn is_error(ctx: &TcContext, frame: &Frame) -> bool {
    if frame.protocol != ICMP || frame.is_later_fragment() {
        return false;
    }

    matches!(
        ctx.load::<u8>(frame.payload as usize),
        Ok(UNREACHABLE | SOURCE_QUENCH | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM)
    )
}

/// Reads the addresses in the IPv4 header that an ICMP error quotes.
///
/// Returns `malformed` if the quoted header is truncated or not IPv4. Returns `refused` if the
/// quoted source is not the receiver of the error. Also returns `refused` for a redirect, because
/// only a router on the receiver's own link may send one.
#[inline(always)]
pub(crate) fn quote(
    ctx: &TcContext,
    frame: &Frame,
    malformed: Counter,
    refused: Counter,
) -> Result<Quote, Counter> {
    let at = frame.payload + ICMP_HEADER;
    if at + IPV4 as u32 > frame.packet_end {
        return Err(malformed);
    }
    let version_ihl: u8 = ctx.load(at as usize).map_err(|_| malformed)?;
    if version_ihl >> 4 != 4 || version_ihl & 0xf < 5 {
        return Err(malformed);
    }
    let kind: u8 = ctx.load(frame.payload as usize).map_err(|_| malformed)?;
    let addresses = ctx.load((at + QUOTED_SOURCE) as usize);
    let [source, destination]: [u32; 2] = addresses.map_err(|_| malformed)?;
    if is_on!(QuoteCheck) && (kind == REDIRECT || source != frame.destination) {
        return Err(refused);
    }

    Ok(Quote {
        source,
        destination,
    })
}

/// Writes the quoted addresses, and updates the quoted checksums and the checksum of the error.
///
/// An error may quote only the first bytes of a packet. If the quoted bytes do not include the TCP
/// or UDP checksum, the function updates the other checksums only.
#[inline(always)]
pub(crate) fn rewrite_quote(ctx: &TcContext, rewrite: &Rewrite) -> Option<()> {
    let quote = rewrite.payload + ICMP_HEADER;
    address(ctx, rewrite, QUOTED_SOURCE, rewrite.quoted_source)?;
    address(ctx, rewrite, QUOTED_DESTINATION, rewrite.quoted_destination)?;

    let fragment: u16 = ctx.load((quote + QUOTED_FRAGMENT) as usize).ok()?;
    if fragment & FRAGMENT_OFFSET != 0 {
        return Some(());
    }
    let protocol: u8 = ctx.load((quote + QUOTED_PROTOCOL) as usize).ok()?;
    let version_ihl: u8 = ctx.load(quote as usize).ok()?;
    let Some(offset) = checksum_offset(protocol) else {
        return Some(());
    };
    let at = quote + u32::from(version_ihl & 0xf) * 4 + offset;
    if at + 2 > rewrite.packet_end {
        return Some(()); // The quoted packet ends before the checksum.
    }

    let old: u16 = ctx.load(at as usize).ok()?;
    if protocol == UDP && old == 0 {
        return Some(());
    }
    let mut new = old;
    for change in [rewrite.quoted_source, rewrite.quoted_destination] {
        new = checksum_replace(new, change.old, change.new);
    }
    if protocol == UDP && new == 0 {
        new = u16::MAX;
    }

    store(ctx, rewrite, at, old, new)
}

/// Writes a quoted address, and updates the checksums of the quoted header and of the error.
#[inline(always)]
fn address(ctx: &TcContext, rewrite: &Rewrite, offset: u32, change: Change) -> Option<()> {
    let quote = rewrite.payload + ICMP_HEADER;
    let old: u16 = ctx.load((quote + QUOTED_CHECKSUM) as usize).ok()?;
    let new = checksum_replace(old, change.old, change.new);
    store(ctx, rewrite, quote + QUOTED_CHECKSUM, old, new)?;

    let (old, new) = (u64::from(change.old), u64::from(change.new));
    ctx.l4_csum_replace((rewrite.payload + CHECKSUM) as usize, old, new, 4)
        .ok()?;
    ctx.store((quote + offset) as usize, &change.new, 0).ok()
}

/// Writes two quoted bytes, and updates the checksum of the error.
#[inline(always)]
fn store(ctx: &TcContext, rewrite: &Rewrite, at: u32, old: u16, new: u16) -> Option<()> {
    ctx.l4_csum_replace(
        (rewrite.payload + CHECKSUM) as usize,
        u64::from(old),
        u64::from(new),
        2,
    )
    .ok()?;
    ctx.store(at as usize, &new, 0).ok()
}
