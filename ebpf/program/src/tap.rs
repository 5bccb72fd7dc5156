//! From a peer to a node, or to another peer: checks and swaps the source, finds the way.

use aya_ebpf::bindings::BPF_F_ZERO_CSUM_TX;
use aya_ebpf::helpers::{bpf_redirect, bpf_skb_set_tunnel_key};
use aya_ebpf::programs::TcContext;
use ebpf_common::counter::Counter;
use ebpf_common::maps::{
    Inbound, LOCAL_SPREAD, LOCAL_TRANSIT, Local, SPREAD_BUCKETS, TunnelKey, spread_bucket,
};

use crate::icmp::Quote;
use crate::mutants::is_on;
use crate::packet::{Frame, skb};
use crate::rewrite::{Change, Rewrite, swap};
use crate::{icmp, rewrite, settings, tables};

/// Decides on a frame from the engine.
#[inline(always)]
pub(crate) fn handle(ctx: &TcContext) -> Result<i32, Counter> {
    let frame = Frame::read(ctx, Counter::TapNotIpv4, Counter::TapMalformed)?;
    let Some(peer) = frame.peer(settings::peer_mac_prefix()) else {
        return Err(Counter::TapUnknownPeer);
    };
    let seen = tables::inbound(peer, frame.source);
    if seen.is_none() && is_on!(SourceCheck) && is_on!(PrefixOnly) && !icmp::is_error(ctx, &frame) {
        return Err(Counter::TapUnknownSource);
    }
    let Some(local) = tables::local(frame.destination) else {
        return refuse_destination(ctx, &frame);
    };

    if local.kind == LOCAL_TRANSIT {
        return transit(ctx, &frame, peer, seen, local);
    }
    let source = match seen {
        Some(seen) if frame.is_plain() => {
            let source = swap(seen.to, seen.host_mask, frame.source);
            frame.set_source(source);
            rewrite::finish_plain(ctx, &frame, frame.source, source)
                .ok_or(Counter::TapRewriteFailed)?;
            source
        }
        seen => deliver(ctx, &frame, peer, seen)?,
    };

    tables::count(Counter::TapForwarded);
    send_to_node(ctx, local, source)
}

/// Rewrites what is not plain, or comes from a source that the peer did not announce.
///
/// Returns the new source.
#[inline(always)]
fn deliver(
    ctx: &TcContext,
    frame: &Frame,
    peer: [u8; 2],
    seen: Option<&Inbound>,
) -> Result<u32, Counter> {
    let mut rewrite = Rewrite::new(frame);

    if icmp::is_error(ctx, frame) {
        // The quoted packet is one that went to the peer, with its destination swapped.
        let quote = icmp::quote(ctx, frame).ok_or(Counter::TapMalformed)?;
        rewrite.quoted_source = Change::none(quote.source);
        rewrite.quoted_destination = Change::none(quote.destination);
        let back = tables::inbound(peer, quote.destination);
        if let Some(back) = back {
            rewrite.quoted_destination.new = swap(back.to, back.host_mask, quote.destination);
        }
        rewrite.quote = true;
        if seen.is_none() && is_on!(SourceCheck) && is_on!(PrefixOnly) {
            if back.is_none() || !quote.is_ours(frame) {
                return Err(Counter::TapUnknownSource);
            }
            let unknown = tables::unknown_source(peer).ok_or(Counter::TapUnknownSource)?;
            rewrite.source.new = unknown;
            tables::count(Counter::TapUnknownSourceMapped);
        }
    }
    if let Some(seen) = seen {
        rewrite.source.new = swap(seen.to, seen.host_mask, frame.source);
        rewrite.mss = seen.mss;
    } else if !is_on!(PrefixOnly)
        && let Some(unknown) = tables::unknown_source(peer)
    {
        // What a swap that trusts every source would do: overwrite the upper half.
        let upper = [0xff, 0xff, 0, 0];
        let lower = [0, 0, 0xff, 0xff];
        let net = unknown & u32::from_ne_bytes(upper);
        rewrite.source.new = swap(net.to_ne_bytes(), lower, frame.source);
    }

    rewrite::apply(
        skb(ctx),
        &rewrite,
        Counter::TapMalformed,
        Counter::TapRewriteFailed,
    )?;
    Ok(rewrite.source.new)
}

/// Passes a packet on to another peer, if IP objects stand for both of its ends.
#[inline(always)]
fn transit(
    ctx: &TcContext,
    frame: &Frame,
    peer: [u8; 2],
    seen: Option<&Inbound>,
    local: &Local,
) -> Result<i32, Counter> {
    let mut rewrite = Rewrite::new(frame);
    rewrite.destination.new = u32::from_ne_bytes(local.to);
    rewrite.mss = lower_mss(seen.map_or(0, |seen| seen.mss), local.mss);
    // A packet may meet several hubs, and no node in between: it must not live for ever.
    rewrite.hop = true;
    if frame.ttl() <= 1 {
        return Err(Counter::TapTtlExceeded);
    }

    let known = tables::transit_source(peer, frame.source);
    if let Some(source) = known {
        rewrite.source.new = source;
    }
    if icmp::is_error(ctx, frame) {
        let quote = icmp::quote(ctx, frame).ok_or(Counter::TapMalformed)?;
        let quoted = quote_transit(&mut rewrite, frame, peer, &quote);
        if known.is_none() {
            // A router on the way: the address it reports on speaks for it.
            rewrite.source.new = match quoted {
                Some(source) if quote.is_ours(frame) => source,
                _ => return Err(Counter::TapTransitRefused),
            };
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

/// Swaps the quoted header back; returns what stands for its destination.
#[inline(always)]
fn quote_transit(
    rewrite: &mut Rewrite,
    frame: &Frame,
    peer: [u8; 2],
    quote: &Quote,
) -> Option<u32> {
    rewrite.quote = true;
    rewrite.quoted_source = Change::none(quote.source);
    if quote.is_ours(frame) {
        rewrite.quoted_source.new = rewrite.destination.new;
    }
    rewrite.quoted_destination = Change::none(quote.destination);
    let stands_for = tables::transit_source(peer, quote.destination);
    if let Some(address) = stands_for {
        rewrite.quoted_destination.new = address;
    }

    stands_for
}

/// Tells apart what belongs to another peer from what belongs to nobody.
#[inline(always)]
fn refuse_destination(ctx: &TcContext, frame: &Frame) -> Result<i32, Counter> {
    let Some(route) = tables::outbound(frame.destination) else {
        return Err(Counter::TapUnknownDestination);
    };
    if is_on!(TransitDrop) {
        return Err(Counter::TapTransitRefused);
    }

    let mut rewrite = Rewrite::new(frame);
    rewrite.destination.new = swap(route.to, route.host_mask, frame.destination);
    frame.set_destination_mac(&route.mac);
    rewrite::apply(
        skb(ctx),
        &rewrite,
        Counter::TapMalformed,
        Counter::TapRewriteFailed,
    )?;
    Ok(redirect(settings::tap_ifindex()))
}

/// Tells the overlay device which node to send to.
#[inline(always)]
fn send_to_node(ctx: &TcContext, local: &Local, source: u32) -> Result<i32, Counter> {
    let sent = if local.kind == LOCAL_SPREAD {
        let bucket = spread_bucket(source.to_ne_bytes()) % SPREAD_BUCKETS;
        // SAFETY: The remainder is an index of the array.
        let remote = unsafe { *local.spread.as_ptr().add(bucket) };
        let key = TunnelKey::new(settings::overlay_vni(), remote);
        set_tunnel_key(ctx, &key)
    } else {
        set_tunnel_key(ctx, &local.key)
    };
    sent.ok_or(Counter::TapRewriteFailed)?;

    Ok(redirect(settings::overlay_ifindex()))
}

/// Sets where VXLAN sends the frame.
#[inline(always)]
pub(crate) fn set_tunnel_key(ctx: &TcContext, key: &TunnelKey) -> Option<()> {
    if settings::test_outer() != 0 {
        ctx.set_mark(key.remote[0]);
    }

    let key_len = size_of::<TunnelKey>() as u32;
    let key: *const TunnelKey = key;
    // IPv4 needs no outer checksum, and the inner packet carries its own.
    let flags = u64::from(BPF_F_ZERO_CSUM_TX);
    // SAFETY: The kernel reads `key_len` bytes and writes none.
    let result = unsafe { bpf_skb_set_tunnel_key(skb(ctx), key.cast_mut().cast(), key_len, flags) };
    (result == 0).then_some(())
}

#[inline(always)]
pub(crate) fn redirect(ifindex: u32) -> i32 {
    // SAFETY: The call takes numbers.
    unsafe { bpf_redirect(ifindex, 0) as i32 }
}

/// Returns the lower limit; zero is none.
#[inline(always)]
fn lower_mss(a: u16, b: u16) -> u16 {
    match (a, b) {
        (0, mss) | (mss, 0) => mss,
        (a, b) => a.min(b),
    }
}
