//! Rewrites addresses, and updates all checksums that cover the addresses.
//!
//! The caller rewrites a plain packet ([`Frame::is_plain`]) through pointers and then calls
//! [`finish_plain`]. For all other packets, [`apply`] calls a helper for each address, even if the
//! address does not change: a branch would double the number of paths that the verifier checks.

use aya_ebpf::bindings::{__sk_buff, BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR};
use aya_ebpf::programs::TcContext;
use ebpf_common::counter::Counter;

use crate::mutants::is_on;
use crate::packet::{DCCP, Frame, IP_CHECKSUM, SOURCE, TCP, TTL, UDP, UDP_LITE};
use crate::{icmp, mss};

/// Length of an address in bytes, in the flags of the kernel's checksum helpers.
const ADDRESS: u64 = 4;

/// Returns `address` with its network bits replaced by the prefix `to`.
#[inline(always)]
pub(crate) fn remap(to: [u8; 4], host_mask: [u8; 4], address: u32) -> u32 {
    u32::from_ne_bytes(to) | (address & u32::from_ne_bytes(host_mask))
}

/// The old and the new value of an address; both are equal if the address does not change.
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

/// The changes to one packet, for [`apply`].
pub(crate) struct Rewrite {
    pub(crate) source: Change,
    pub(crate) destination: Change,
    /// Source in the header that an ICMP error quotes; ignored unless `quote` is set.
    pub(crate) quoted_source: Change,
    /// Destination in the header that an ICMP error quotes; ignored unless `quote` is set.
    pub(crate) quoted_destination: Change,
    /// Highest maximum segment size that a TCP handshake may announce; zero means no limit.
    pub(crate) mss: u16,
    /// Whether the packet is an ICMP error, whose quoted header must be rewritten.
    pub(crate) quote: bool,
    /// Whether to decrement the TTL.
    pub(crate) hop: bool,
    /// Whether the packet has a transport header, which later fragments lack.
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

/// Updates the TCP or UDP checksum of a plain packet whose address changed from `old` to `new`.
///
/// The function calls a kernel helper, because only the kernel knows whether the checksum is
/// partial until a device completes it. Packet pointers are invalid after the call.
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

// Offsets of the checksum in the TCP and UDP headers.
const TCP_CHECKSUM: u32 = 16;
const UDP_CHECKSUM: u32 = 6;

const TCP_FLAGS: u64 = BPF_F_PSEUDO_HDR as u64 | ADDRESS;
/// In UDP, a checksum of zero means that the datagram has no checksum (RFC 768). The additional
/// flag makes the helper keep a zero, and write all ones if it computes zero.
const UDP_FLAGS: u64 = TCP_FLAGS | BPF_F_MARK_MANGLED_0 as u64;

/// Returns the offset of the checksum in the transport header.
///
/// Returns `None` for protocols whose checksum does not cover the IP addresses.
#[inline(always)]
pub(crate) fn checksum_offset(protocol: u8) -> Option<u32> {
    match protocol {
        TCP => Some(TCP_CHECKSUM),
        UDP | UDP_LITE | DCCP => Some(UDP_CHECKSUM),
        _ => None,
    }
}

/// Applies the changes to a packet.
///
/// Returns the counter `malformed` if the packet is too short for its transport checksum, and
/// `failed` if a helper fails.
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

/// Result of [`run`].
///
/// The values are integers, because an eBPF function that is not inlined can return nothing else.
struct Outcome;

impl Outcome {
    const DONE: u64 = 0;
    const MALFORMED: u64 = 1;
    const FAILED: u64 = 2;
}

/// Applies the changes.
///
/// The function is not inlined, so that the verifier checks the code once per caller.
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

/// Writes an address in the IPv4 header, and updates the checksum of the header.
#[inline(always)]
fn header(ctx: &TcContext, at: usize, change: Change) -> Option<()> {
    ctx.l3_csum_replace(
        IP_CHECKSUM,
        u64::from(change.old),
        u64::from(change.new),
        ADDRESS,
    )
    .ok()?;
    // The store needs no BPF_F_RECOMPUTE_CSUM: the changes of address and header checksum cancel
    // each other in the checksum of the whole packet.
    ctx.store(at, &change.new, 0).ok()
}

/// Decrements the TTL, and updates the checksum of the header. The caller drops packets with a TTL
/// of one or zero.
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

/// Updates the transport checksum at offset `at` after an address changed from `old` to `new`.
#[inline(always)]
fn replace(ctx: &TcContext, at: u32, old: u32, new: u32, flags: u64) -> Option<()> {
    ctx.l4_csum_replace(at as usize, u64::from(old), u64::from(new), flags)
        .ok()
}
