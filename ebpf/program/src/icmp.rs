//! ICMP errors: the header they quote must be one that the receiver sent.

use aya_ebpf::programs::TcContext;

use crate::packet::{Frame, ICMP, IPV4, UDP, checksum_replace};
use crate::rewrite::{Change, Rewrite, checksum_offset};

/// Length of the ICMP header, before the quote.
const HEADER: u32 = 8;

/// Offset of the checksum in the ICMP header.
const CHECKSUM: u32 = 2;

/// Offsets in the quoted IPv4 header.
const QUOTED_FRAGMENT: u32 = 6;
const QUOTED_PROTOCOL: u32 = 9;
const QUOTED_CHECKSUM: u32 = 10;
const QUOTED_SOURCE: u32 = 12;
const QUOTED_DESTINATION: u32 = 16;

const FRAGMENT_OFFSET: u16 = 0x1fff_u16.to_be();

const UNREACHABLE: u8 = 3;
const SOURCE_QUENCH: u8 = 4;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// The addresses of a quoted header.
pub(crate) struct Quote {
    pub(crate) source: u32,
    pub(crate) destination: u32,
}

impl Quote {
    /// Tells whether the error goes back to where the quoted packet came from.
    #[inline(always)]
    pub(crate) fn is_ours(&self, frame: &Frame) -> bool {
        self.source == frame.destination
    }
}

/// Tells whether a packet is an ICMP error, which quotes a header.
///
/// Redirects are none: they speak of routers of a network that is not ours.
#[inline(always)]
pub(crate) fn is_error(ctx: &TcContext, frame: &Frame) -> bool {
    if frame.protocol != ICMP || frame.is_later_fragment() {
        return false;
    }

    matches!(
        ctx.load::<u8>(frame.payload as usize),
        Ok(UNREACHABLE | SOURCE_QUENCH | TIME_EXCEEDED | PARAMETER_PROBLEM)
    )
}

/// Reads the quoted header; `None` if it is truncated or not IPv4.
#[inline(always)]
pub(crate) fn quote(ctx: &TcContext, frame: &Frame) -> Option<Quote> {
    let at = frame.payload + HEADER;
    if at + IPV4 as u32 > frame.packet_end {
        return None;
    }
    let version_ihl: u8 = ctx.load(at as usize).ok()?;
    if version_ihl >> 4 != 4 || version_ihl & 0xf < 5 {
        return None;
    }
    let [source, destination]: [u32; 2] = ctx.load((at + QUOTED_SOURCE) as usize).ok()?;

    Some(Quote {
        source,
        destination,
    })
}

/// Swaps the quoted addresses, with the quoted checksums and that of the error.
#[inline(always)]
pub(crate) fn rewrite_quote(ctx: &TcContext, rewrite: &Rewrite) -> Option<()> {
    let quote = rewrite.payload + HEADER;
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
        return Some(()); // The quote ends before it.
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

/// Writes a quoted address, the quoted header's checksum and the error's.
#[inline(always)]
fn address(ctx: &TcContext, rewrite: &Rewrite, offset: u32, change: Change) -> Option<()> {
    let quote = rewrite.payload + HEADER;
    let checksum: u16 = ctx.load((quote + QUOTED_CHECKSUM) as usize).ok()?;
    let mended = checksum_replace(checksum, change.old, change.new);
    store(ctx, rewrite, quote + QUOTED_CHECKSUM, checksum, mended)?;

    let (old, new) = (u64::from(change.old), u64::from(change.new));
    ctx.l4_csum_replace((rewrite.payload + CHECKSUM) as usize, old, new, 4)
        .ok()?;
    ctx.store((quote + offset) as usize, &change.new, 0).ok()
}

/// Writes two quoted bytes and mends the error's checksum.
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
