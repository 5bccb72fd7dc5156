//! Forwards packets from nodes to peers: checks the sender, remaps the destination, and replaces a
//! ClusterIP in the source by the address of its IP object.

use aya_ebpf::bindings::bpf_tunnel_key;
use aya_ebpf::helpers::{bpf_redirect, bpf_skb_get_tunnel_key};
use aya_ebpf::programs::TcContext;
use ebpf_common::counter::Counter;
use ebpf_common::maps::{LOCAL_NODE, LOCAL_SPREAD, Outbound};

use crate::mutants::is_on;
use crate::packet::{Frame, Refusals, skb};
use crate::rewrite::{Change, Rewrite, remap};
use crate::{icmp, probe, rewrite, settings, tables};

const REFUSALS: Refusals = Refusals {
    not_ipv4: Counter::OverlayNotIpv4,
    malformed: Counter::OverlayMalformed,
    source_routed: Counter::OverlaySourceRouted,
};

/// Handles a frame that arrived through the overlay.
///
/// Returns the verdict of the program. If the frame must be dropped, returns the counter of the
/// reason.
#[inline(always)]
pub(crate) fn handle(ctx: &TcContext) -> Result<i32, Counter> {
    let frame = Frame::read(ctx, &REFUSALS)?;
    let outer = outer_source(ctx)?;
    if settings::is_probe_address(frame.destination) {
        return probe::reply(ctx, &frame, outer);
    }
    let source = match tables::source(frame.source) {
        Some(source) => source,
        None if is_on!(SourceCheck) => return Err(Counter::OverlayUnknownSource),
        None => frame.source,
    };
    let Some(route) = tables::outbound(frame.destination) else {
        return Err(Counter::OverlayUnknownDestination);
    };

    let destination = remap(route.to, route.host_mask, frame.destination);
    frame.set_destination_mac(&route.mac);
    if frame.is_plain() && source == frame.source {
        frame.set_destination(destination);
        rewrite::finish_plain(ctx, &frame, frame.destination, destination)
            .ok_or(Counter::OverlayRewriteFailed)?;
    } else {
        rewrite_all(ctx, &frame, route, source, destination)?;
    }

    tables::count(Counter::OverlayForwarded);
    // SAFETY: The helper takes no pointers.
    Ok(unsafe { bpf_redirect(settings::tap_ifindex(), 0) } as i32)
}

/// Rewrites a packet whose source changes, or that [`Frame::is_plain`] excludes, such as a fragment,
/// ICMP error or TCP SYN.
#[inline(always)]
fn rewrite_all(
    ctx: &TcContext,
    frame: &Frame,
    route: &Outbound,
    source: u32,
    destination: u32,
) -> Result<(), Counter> {
    let mut rewrite = Rewrite::new(frame);
    rewrite.source.new = source;
    rewrite.destination.new = destination;
    rewrite.mss = route.mss;

    if icmp::is_error(ctx, frame) {
        let malformed = Counter::OverlayMalformed;
        let quote = icmp::quote(ctx, frame, malformed, Counter::OverlayQuoteRefused)?;
        // The peer sent the quoted packet to the address of an IP object, if the quoted destination
        // is a ClusterIP.
        let sent_to = tables::source(quote.destination).unwrap_or(quote.destination);
        if is_on!(QuoteCheck) && sent_to == quote.destination && !may_receive(quote.destination) {
            return Err(Counter::OverlayQuoteRefused);
        }
        // The peer sent the quoted packet, and the TAP program remapped the source of that packet.
        // The error must quote the original source.
        rewrite.quoted_source = Change::none(quote.source);
        if quote.source == frame.destination {
            rewrite.quoted_source.new = destination;
        }
        rewrite.quoted_destination = Change::new(quote.destination, sent_to);
        rewrite.quote = true;
    }

    rewrite::apply(
        skb(ctx),
        &rewrite,
        Counter::OverlayMalformed,
        Counter::OverlayRewriteFailed,
    )
}

/// Returns whether nodes may receive packets from peers for this address. The gateway replaces the
/// addresses of IP objects of the other kinds.
#[inline(always)]
fn may_receive(address: u32) -> bool {
    tables::local(address).is_some_and(|local| matches!(local.kind, LOCAL_NODE | LOCAL_SPREAD))
}

/// Returns the outer source address in host byte order, or an error unless it is a node's address.
#[inline(always)]
fn outer_source(ctx: &TcContext) -> Result<u32, Counter> {
    let outer = match settings::test_outer() {
        0 => tunnel_key(ctx)?,
        outer => outer,
    };
    if is_on!(OuterCheck) && !tables::is_node(outer) {
        return Err(Counter::OverlayUnknownNode);
    }

    Ok(outer)
}

/// Returns the address of the VXLAN tunnel's remote end, in host byte order.
#[inline(always)]
fn tunnel_key(ctx: &TcContext) -> Result<u32, Counter> {
    // The kernel accepts this size, which covers `struct bpf_tunnel_key` up to the IPv4 address.
    let mut key = [0u32; 2];
    let key_len = size_of_val(&key) as u32;
    let key_ptr: *mut bpf_tunnel_key = (&raw mut key).cast();
    // SAFETY: The kernel writes `key_len` bytes, which is the size of `key`.
    if unsafe { bpf_skb_get_tunnel_key(skb(ctx), key_ptr, key_len, 0) } < 0 {
        return Err(Counter::OverlayNoTunnelKey);
    }

    let [id, remote] = key;
    if id != settings::overlay_vni() {
        return Err(Counter::OverlayWrongVni);
    }

    Ok(remote)
}
