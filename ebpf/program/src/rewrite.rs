//! Swaps addresses and mends every checksum that covers them.
//!
//! A plain packet is written directly, with one call of the kernel as the last
//! step. Everything else goes through [`apply`], where each step is a call, made
//! also where nothing changes: every branch doubles what the verifier looks at.

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
pub(crate) fn swap(to: [u8; 4], host_mask: [u8; 4], address: u32) -> u32 {
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

/// All that shall change in a packet.
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
    /// Whether the time to live goes down by one.
    pub(crate) hop: bool,
    /// Whether the header of the protocol is there: not in later fragments.
    has_protocol: bool,
    protocol: u8,
    pub(crate) payload: u32,
    pub(crate) packet_end: u32,
}

impl Rewrite {
    /// Creates a rewrite that changes nothing yet.
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

/// Mends the checksum of a plain packet's protocol; no packet pointer is valid after it.
///
/// Whether the packet's checksum is complete is hidden from us and decides the
/// sign of the change, so this must be the kernel's doing.
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

/// Offsets of the checksum from the start of the protocol's header.
const TCP_CHECKSUM: u32 = 16;
const UDP_CHECKSUM: u32 = 6;

const TCP_FLAGS: u64 = BPF_F_PSEUDO_HDR as u64 | ADDRESS;
/// A checksum of zero means none, and one that becomes zero is sent as all ones.
const UDP_FLAGS: u64 = TCP_FLAGS | BPF_F_MARK_MANGLED_0 as u64;

/// Where a protocol that covers the addresses has its checksum.
#[inline(always)]
pub(crate) fn checksum_offset(protocol: u8) -> Option<u32> {
    match protocol {
        TCP => Some(TCP_CHECKSUM),
        UDP | UDP_LITE | DCCP => Some(UDP_CHECKSUM),
        _ => None,
    }
}

/// Carries a rewrite out.
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

/// How a rewrite ended, as a number: what a function of the kernel can return.
struct Outcome;

impl Outcome {
    const DONE: u64 = 0;
    const MALFORMED: u64 = 1;
    const FAILED: u64 = 2;
}

/// A function of its own to the verifier, which so looks at it once per caller.
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

/// Writes an address of the IPv4 header and mends the header's checksum.
#[inline(always)]
fn header(ctx: &TcContext, at: usize, change: Change) -> Option<()> {
    ctx.l3_csum_replace(
        IP_CHECKSUM,
        u64::from(change.old),
        u64::from(change.new),
        ADDRESS,
    )
    .ok()?;
    // No flag to recompute: what the header's sum gains, its checksum loses.
    ctx.store(at, &change.new, 0).ok()
}

/// Takes one hop from the time to live, which the caller knows to be above one.
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

/// Tells a protocol's checksum that an address has changed.
#[inline(always)]
fn replace(ctx: &TcContext, at: u32, old: u32, new: u32, flags: u64) -> Option<()> {
    ctx.l4_csum_replace(at as usize, u64::from(old), u64::from(new), flags)
        .ok()
}
