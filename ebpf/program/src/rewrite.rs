//! Rewrites addresses and updates every checksum that covers them.
//!
//! A plain packet is written directly, with one helper call as the last step.
//! Everything else goes through [`apply`]. It calls a helper for each field, also
//! for one that does not change: every branch doubles what the verifier looks at.

use aya_ebpf::bindings::{__sk_buff, BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR};
use aya_ebpf::programs::TcContext;
use ebpf_common::counter::Counter;

use crate::mutants::is_on;
use crate::packet::{DCCP, Frame, IP_CHECKSUM, SOURCE, TCP, TTL, UDP, UDP_LITE};
use crate::{icmp, mss};

/// Length of an address: a flag of the kernel's checksum helpers.
const ADDRESS: u64 = 4;

/// Returns `address` with all but its host bits replaced by `to`.
#[inline(always)]
pub(crate) fn remap(to: [u8; 4], host_mask: [u8; 4], address: u32) -> u32 {
    u32::from_ne_bytes(to) | (address & u32::from_ne_bytes(host_mask))
}

/// A change of one address.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    pub(crate) old: u32,
    pub(crate) new: u32,
}

impl Change {
    #[inline(always)]
    pub(crate) fn new(old: u32, new: u32) -> Self {
        Self { old, new }
    }

    #[inline(always)]
    pub(crate) fn none(address: u32) -> Self {
        Self::new(address, address)
    }
}

/// The changes to one packet.
pub(crate) struct Rewrite {
    pub(crate) source: Change,
    pub(crate) destination: Change,
    /// In the header quoted by an ICMP error, if `quote`.
    pub(crate) quoted_source: Change,
    pub(crate) quoted_destination: Change,
    /// Largest TCP segment; zero for no limit.
    pub(crate) mss: u16,
    /// Whether this is an ICMP error with a quoted header.
    pub(crate) quote: bool,
    /// Whether to decrement the time to live.
    pub(crate) hop: bool,
    /// Whether the packet has the header of its protocol; later fragments lack it.
    has_protocol: bool,
    protocol: u8,
    pub(crate) payload: u32,
    pub(crate) packet_end: u32,
}

impl Rewrite {
    /// Creates a rewrite without changes.
    #[inline(always)]
    pub(crate) fn new(frame: &Frame) -> Self {
        Self {
            source: Change::none(frame.source),
            destination: Change::none(frame.destination),
            quoted_source: Change::none(0),
            quoted_destination: Change::none(0),
            mss: 0,
            quote: false,
            hop: false,
            has_protocol: !frame.is_later_fragment(),
            protocol: frame.protocol,
            payload: frame.payload,
            packet_end: frame.packet_end,
        }
    }
}

/// Updates the TCP or UDP checksum of a plain packet; no packet pointer is valid after it.
///
/// The sign of the change depends on whether the checksum is complete, which only
/// the kernel knows, so this takes a helper.
#[inline(always)]
pub(crate) fn finish_plain(ctx: &TcContext, frame: &Frame, old: u32, new: u32) -> Option<()> {
    let (offset, flags) = if frame.protocol == UDP {
        (UDP_CHECKSUM, UDP_FLAGS)
    } else {
        (TCP_CHECKSUM, TCP_FLAGS)
    };
    if !is_on!(ChecksumFix) {
        return Some(());
    }

    replace(ctx, frame.payload + offset, old, new, flags)
}

/// Offsets of the checksum in the header of the protocol.
const TCP_CHECKSUM: u32 = 16;
const UDP_CHECKSUM: u32 = 6;

const TCP_FLAGS: u64 = BPF_F_PSEUDO_HDR as u64 | ADDRESS;
/// Zero means that there is no checksum; a sum of zero is sent as all ones (RFC 768).
const UDP_FLAGS: u64 = TCP_FLAGS | BPF_F_MARK_MANGLED_0 as u64;

/// Returns the offset of the checksum for protocols whose checksum covers the addresses.
#[inline(always)]
pub(crate) fn checksum_offset(protocol: u8) -> Option<u32> {
    match protocol {
        TCP => Some(TCP_CHECKSUM),
        UDP | UDP_LITE | DCCP => Some(UDP_CHECKSUM),
        _ => None,
    }
}

/// Makes the changes.
#[inline(always)]
pub(crate) fn apply(
    skb: *mut __sk_buff,
    rewrite: &Rewrite,
    malformed: Counter,
    failed: Counter,
) -> Result<(), Counter> {
    match run(skb, rewrite) {
        Outcome::DONE => Ok(()),
        Outcome::MALFORMED => Err(malformed),
        _ => Err(failed),
    }
}

/// The result of a rewrite, as a number: what a function of the kernel can return.
struct Outcome;

impl Outcome {
    const DONE: u64 = 0;
    const MALFORMED: u64 = 1;
    const FAILED: u64 = 2;
}

/// A function of its own, so that the verifier looks at it once per caller.
#[inline(never)]
fn run(skb: *mut __sk_buff, rewrite: &Rewrite) -> u64 {
    let ctx = TcContext::new(skb);
    if rewrite.has_protocol
        && let Some(offset) = checksum_offset(rewrite.protocol)
        && rewrite.payload + offset + 2 > rewrite.packet_end
    {
        return Outcome::MALFORMED;
    }

    match steps(&ctx, rewrite) {
        Some(()) => Outcome::DONE,
        None => Outcome::FAILED,
    }
}

#[inline(always)]
fn steps(ctx: &TcContext, rewrite: &Rewrite) -> Option<()> {
    if rewrite.has_protocol {
        protocol(ctx, rewrite)?;
    }
    if rewrite.quote && is_on!(IcmpQuote) {
        icmp::rewrite_quote(ctx, rewrite)?;
    }
    header(ctx, SOURCE, rewrite.source)?;
    header(ctx, SOURCE + 4, rewrite.destination)?;
    if rewrite.hop {
        hop(ctx)?;
    }

    Some(())
}

#[inline(always)]
fn protocol(ctx: &TcContext, rewrite: &Rewrite) -> Option<()> {
    let Some(offset) = checksum_offset(rewrite.protocol) else {
        return Some(());
    };
    let flags = if rewrite.protocol == UDP {
        UDP_FLAGS
    } else {
        TCP_FLAGS
    };

    if rewrite.protocol == TCP && rewrite.mss != 0 && is_on!(MssClamp) {
        mss::clamp(
            ctx.skb.skb,
            rewrite.payload,
            rewrite.packet_end,
            rewrite.mss,
        );
    }
    if is_on!(ChecksumFix) {
        let at = rewrite.payload + offset;
        replace(ctx, at, rewrite.source.old, rewrite.source.new, flags)?;
        replace(
            ctx,
            at,
            rewrite.destination.old,
            rewrite.destination.new,
            flags,
        )?;
    }

    Some(())
}

/// Writes an address of the IPv4 header and updates the header's checksum.
#[inline(always)]
fn header(ctx: &TcContext, at: usize, change: Change) -> Option<()> {
    ctx.l3_csum_replace(
        IP_CHECKSUM,
        u64::from(change.old),
        u64::from(change.new),
        ADDRESS,
    )
    .ok()?;
    // Without BPF_F_RECOMPUTE_CSUM: address and header checksum change the packet's sum by
    // opposite amounts.
    ctx.store(at, &change.new, 0).ok()
}

/// Decrements the time to live, which the caller has checked to be above one.
#[inline(always)]
fn hop(ctx: &TcContext) -> Option<()> {
    let old: [u8; 2] = ctx.load(TTL).ok()?;
    let [ttl, protocol] = old;
    let new = [ttl.saturating_sub(1), protocol];
    let from = u64::from(u16::from_ne_bytes(old));
    let to = u64::from(u16::from_ne_bytes(new));

    ctx.l3_csum_replace(IP_CHECKSUM, from, to, 2).ok()?;
    ctx.store(TTL, &new, 0).ok()
}

/// Updates a protocol's checksum after an address changed.
#[inline(always)]
fn replace(ctx: &TcContext, at: u32, old: u32, new: u32, flags: u64) -> Option<()> {
    ctx.l4_csum_replace(at as usize, u64::from(old), u64::from(new), flags)
        .ok()
}
