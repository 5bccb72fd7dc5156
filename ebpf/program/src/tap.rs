//! Forwards packets from peers to nodes or to other peers: checks and remaps their addresses.

use aya_ebpf::bindings::BPF_F_ZERO_CSUM_TX;
use aya_ebpf::helpers::{bpf_redirect, bpf_skb_set_tunnel_key};
use aya_ebpf::programs::TcContext;
use ebpf_common::counter::Counter;
use ebpf_common::maps::{
    Inbound, LOCAL_NODE, LOCAL_SERVICE, LOCAL_TRANSIT, Local, SPREAD_BUCKETS, TunnelKey,
    spread_bucket,
};

use crate::icmp::Quote;
use crate::mutants::is_on;
use crate::packet::{Frame, Refusals, skb};
use crate::rewrite::{Change, Rewrite, remap};
use crate::{icmp, rewrite, settings, tables};

const REFUSALS: Refusals = Refusals {
    not_ipv4: Counter::TapNotIpv4,
    malformed: Counter::TapMalformed,
    source_routed: Counter::TapSourceRouted,
};

/// Handles a frame that the engine wrote to the TAP.
///
/// Returns the verdict of the program. If the frame must be dropped, returns the counter of the
/// reason.
#[inline(always)]
pub(crate) fn handle(ctx: &TcContext) -> Result<i32, Counter> {
    let frame = Frame::read(ctx, &REFUSALS)?;
    let Some(peer) = frame.peer(settings::peer_mac_prefix()) else {
        return Err(Counter::TapUnknownPeer);
    };
    let inbound = tables::inbound(peer, frame.source);
    if inbound.is_none()
        && is_on!(SourceCheck)
        && is_on!(PrefixOnly)
        && !icmp::is_error(ctx, &frame)
    {
        return Err(Counter::TapUnknownSource);
    }
    let Some(local) = tables::local(frame.destination) else {
        return refuse_destination(ctx, &frame);
    };

    if local.kind == LOCAL_TRANSIT {
        return transit(ctx, &frame, peer, inbound, local);
    }
    let spread_key = match inbound {
        Some(inbound) if frame.is_plain() && local.kind != LOCAL_SERVICE => {
            let source = remap(inbound.to, inbound.host_mask, frame.source);
            frame.set_source(source);
            rewrite::finish_plain(ctx, &frame, frame.source, source)
                .ok_or(Counter::TapRewriteFailed)?;
            source
        }
        inbound => deliver(ctx, &frame, peer, inbound, local)?,
    };

    tables::count(Counter::TapForwarded);
    send_to_node(ctx, local, spread_key)
}

/// Rewrites a packet to a ClusterIP, a packet that [`Frame::is_plain`] excludes, or a packet whose
/// source is in no CIDR of the peer.
///
/// Returns the address by which [`send_to_node`] selects one of several nodes: the remapped source.
/// For an ICMP error, returns the remapped destination of the quoted packet, because the error must
/// reach the node that forwarded the quoted packet.
#[inline(always)]
fn deliver(
    ctx: &TcContext,
    frame: &Frame,
    peer: [u8; 2],
    inbound: Option<&Inbound>,
    local: &Local,
) -> Result<u32, Counter> {
    let mut rewrite = Rewrite::new(frame);
    if local.kind == LOCAL_SERVICE {
        rewrite.destination.new = u32::from_ne_bytes(local.to);
    }

    if icmp::is_error(ctx, frame) {
        quote_delivered(ctx, &mut rewrite, frame, peer)?;
        if inbound.is_none() && is_on!(SourceCheck) && is_on!(PrefixOnly) {
            // A router or node of the peer sent the error, and its address is in no CIDR of the
            // peer. Path MTU discovery needs such errors.
            let unknown = tables::unknown_source(peer).ok_or(Counter::TapUnknownSource)?;
            rewrite.source.new = unknown;
            tables::count(Counter::TapUnknownSourceMapped);
        }
    }
    if let Some(inbound) = inbound {
        rewrite.source.new = remap(inbound.to, inbound.host_mask, frame.source);
        rewrite.mss = inbound.mss;
    } else if !is_on!(PrefixOnly)
        && let Some(unknown) = tables::unknown_source(peer)
    {
        // A mutation test has switched `PrefixOnly` off. The program then has the bug that
        // `PrefixOnly` prevents: it remaps a source that is in no CIDR of the peer.
        let upper = [0xff, 0xff, 0, 0];
        let lower = [0, 0, 0xff, 0xff];
        let net = unknown & u32::from_ne_bytes(upper);
        rewrite.source.new = remap(net.to_ne_bytes(), lower, frame.source);
    }

    rewrite::apply(
        skb(ctx),
        &rewrite,
        Counter::TapMalformed,
        Counter::TapRewriteFailed,
    )?;
    Ok(if rewrite.quote {
        rewrite.quoted_destination.new
    } else {
        rewrite.source.new
    })
}

/// Remaps the quoted destination of an ICMP error from a peer to this cluster, and replaces the
/// quoted source like the destination of the error.
///
/// Returns `TapQuoteRefused` if the quoted destination is not an address of the peer, because then
/// the quoted packet was not sent to the peer.
#[inline(always)]
fn quote_delivered(
    ctx: &TcContext,
    rewrite: &mut Rewrite,
    frame: &Frame,
    peer: [u8; 2],
) -> Result<(), Counter> {
    let quote = icmp::quote(ctx, frame, Counter::TapMalformed, Counter::TapQuoteRefused)?;
    let inbound = tables::inbound(peer, quote.destination);
    if is_on!(QuoteCheck) && inbound.is_none() {
        return Err(Counter::TapQuoteRefused);
    }

    rewrite.quoted_source = Change::none(quote.source);
    if quote.source == frame.destination {
        rewrite.quoted_source.new = rewrite.destination.new;
    }
    rewrite.quoted_destination = Change::none(quote.destination);
    if let Some(inbound) = inbound {
        rewrite.quoted_destination.new = remap(inbound.to, inbound.host_mask, quote.destination);
    }
    rewrite.quote = true;

    Ok(())
}

/// Forwards a packet to another peer, if IP objects stand for both of its ends.
#[inline(always)]
fn transit(
    ctx: &TcContext,
    frame: &Frame,
    peer: [u8; 2],
    inbound: Option<&Inbound>,
    local: &Local,
) -> Result<i32, Counter> {
    let mut rewrite = Rewrite::new(frame);
    rewrite.destination.new = u32::from_ne_bytes(local.to);
    rewrite.mss = lower_mss(inbound.map_or(0, |inbound| inbound.mss), local.mss);
    // If several clusters forward packets between their peers, a packet may loop without passing a
    // node. Only the TTL ends such a loop.
    rewrite.hop = true;
    if frame.ttl() <= 1 {
        return Err(Counter::TapTtlExceeded);
    }

    let known = tables::transit_source(peer, frame.source);
    if let Some(source) = known {
        rewrite.source.new = source;
    }
    if icmp::is_error(ctx, frame) {
        let quote = icmp::quote(ctx, frame, Counter::TapMalformed, Counter::TapQuoteRefused)?;
        let reported = quote_transited(&mut rewrite, frame, peer, &quote);
        if is_on!(QuoteCheck) && reported.is_none() {
            return Err(Counter::TapQuoteRefused);
        }
        if known.is_none() {
            // A router on the path sent the error, and has no IP object. The error gets the address
            // of the IP object that stands for the receiver of the quoted packet.
            rewrite.source.new = reported.ok_or(Counter::TapTransitRefused)?;
        }
    } else if known.is_none() && is_on!(TransitDrop) {
        return Err(Counter::TapTransitRefused);
    }

    frame.set_destination_mac(&local.mac);
    rewrite::apply(
        skb(ctx),
        &rewrite,
        Counter::TapMalformed,
        Counter::TapRewriteFailed,
    )?;
    tables::count(Counter::TapTransited);
    Ok(redirect(settings::tap_ifindex()))
}

/// Remaps the quoted addresses to the addresses that the quoted packet had when it arrived here
/// from the other peer.
///
/// Returns the address of the IP object that stands for the quoted destination, a pod of `peer`.
#[inline(always)]
fn quote_transited(
    rewrite: &mut Rewrite,
    frame: &Frame,
    peer: [u8; 2],
    quote: &Quote,
) -> Option<u32> {
    rewrite.quote = true;
    rewrite.quoted_source = Change::none(quote.source);
    if quote.source == frame.destination {
        rewrite.quoted_source.new = rewrite.destination.new;
    }
    rewrite.quoted_destination = Change::none(quote.destination);
    let stands_for = tables::transit_source(peer, quote.destination);
    if let Some(address) = stands_for {
        rewrite.quoted_destination.new = address;
    }

    stands_for
}

/// Returns the reason for which a packet to a destination outside of this cluster is dropped.
///
/// If a mutation test has switched `TransitDrop` off, forwards packets to another peer instead.
#[inline(always)]
fn refuse_destination(ctx: &TcContext, frame: &Frame) -> Result<i32, Counter> {
    let Some(route) = tables::outbound(frame.destination) else {
        return Err(Counter::TapUnknownDestination);
    };
    if is_on!(TransitDrop) {
        return Err(Counter::TapTransitRefused);
    }

    let mut rewrite = Rewrite::new(frame);
    rewrite.destination.new = remap(route.to, route.host_mask, frame.destination);
    frame.set_destination_mac(&route.mac);
    rewrite::apply(
        skb(ctx),
        &rewrite,
        Counter::TapMalformed,
        Counter::TapRewriteFailed,
    )?;
    Ok(redirect(settings::tap_ifindex()))
}

/// Sends the packet through the overlay to the node for the destination `local`.
///
/// If several nodes can forward packets to the destination, a hash of `spread_key` selects the
/// node.
#[inline(always)]
fn send_to_node(ctx: &TcContext, local: &Local, spread_key: u32) -> Result<i32, Counter> {
    let sent = if local.kind != LOCAL_NODE {
        let bucket = spread_bucket(spread_key.to_ne_bytes()) % SPREAD_BUCKETS;
        // SAFETY: The remainder is less than the length of the array.
        let remote = unsafe { *local.spread.as_ptr().add(bucket) };
        let key = TunnelKey::new(settings::overlay_vni(), remote);
        set_tunnel_key(ctx, &key)
    } else {
        set_tunnel_key(ctx, &local.key)
    };
    sent.ok_or(Counter::TapRewriteFailed)?;

    Ok(redirect(settings::overlay_ifindex()))
}

/// Sets the outer destination address and the VXLAN network identifier of the packet.
#[inline(always)]
pub(crate) fn set_tunnel_key(ctx: &TcContext, key: &TunnelKey) -> Option<()> {
    if settings::test_outer() != 0 {
        ctx.set_mark(key.remote[0]);
    }

    let key_len = size_of::<TunnelKey>() as u32;
    let key: *const TunnelKey = key;
    // UDP over IPv4 does not need the outer checksum, and the inner packet has its own checksums.
    let flags = u64::from(BPF_F_ZERO_CSUM_TX);
    // SAFETY: The kernel reads `key_len` bytes and writes none.
    let result = unsafe { bpf_skb_set_tunnel_key(skb(ctx), key.cast_mut().cast(), key_len, flags) };
    (result == 0).then_some(())
}

#[inline(always)]
pub(crate) fn redirect(ifindex: u32) -> i32 {
    // SAFETY: The helper takes no pointers.
    unsafe { bpf_redirect(ifindex, 0) as i32 }
}

/// Returns the lower of two MSS limits; zero means no limit.
#[inline(always)]
fn lower_mss(a: u16, b: u16) -> u16 {
    match (a, b) {
        (0, mss) | (mss, 0) => mss,
        (a, b) => a.min(b),
    }
}
