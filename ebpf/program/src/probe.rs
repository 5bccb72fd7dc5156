//! Replies to overlay probes on behalf of the engine, without waking the engine's process.
//!
//! The program replies only if two checks succeed:
//!
//! - A socket is open on the probe's port. The engine's process opens it in the network namespace
//!   of the overlay device, and the kernel closes it when the process dies.
//! - The heartbeat is recent. The process refreshes it, so an old heartbeat shows that the process
//!   hangs.

use aya_ebpf::bindings::{
    __sk_buff, BPF_F_MARK_MANGLED_0, bpf_sock_tuple, bpf_sock_tuple__bindgen_ty_1,
    bpf_sock_tuple__bindgen_ty_1__bindgen_ty_1,
};
use aya_ebpf::helpers::generated::{bpf_sk_lookup_udp, bpf_sk_release};
use aya_ebpf::helpers::{bpf_csum_diff, bpf_ktime_get_ns, bpf_skb_load_bytes};
use aya_ebpf::programs::TcContext;
use core::mem::MaybeUninit;
use ebpf_common::counter::Counter;
use ebpf_common::maps::TunnelKey;
use ebpf_common::probe::{Body, HEARTBEAT_AGE_MAX_NS, Heartbeat, LEN, MAGIC};

use crate::mutants::is_on;
use crate::packet::{ETHERNET, Frame, IPV4, SOURCE, UDP, skb};
use crate::tap::{redirect, set_tunnel_key};
use crate::{settings, tables};

const UDP_HEADER: usize = ETHERNET + IPV4;
const UDP_CHECKSUM: usize = UDP_HEADER + 6;
const PAYLOAD: usize = UDP_HEADER + 8;
const BODY: usize = PAYLOAD + LEN - size_of::<Body>();
const END: usize = PAYLOAD + LEN;

/// Turns a probe request into its reply, and sends the reply to the node at `outer`.
#[inline(always)]
pub(crate) fn reply(ctx: &TcContext, frame: &Frame, outer: u32) -> Result<i32, Counter> {
    check(ctx, frame).ok_or(Counter::OverlayProbeMalformed)?;
    note(ctx, outer);
    let Some(heartbeat) = tables::heartbeat() else {
        return Err(Counter::OverlayProbeStale);
    };
    // SAFETY: The helper takes no arguments.
    let age_ns = unsafe { bpf_ktime_get_ns() }.saturating_sub(heartbeat.ktime_ns);
    if is_on!(HeartbeatAge) && age_ns > HEARTBEAT_AGE_MAX_NS {
        return Err(Counter::OverlayProbeStale);
    }
    if is_on!(LifeSocket) && !has_socket(ctx, frame) {
        return Err(Counter::OverlayProbeStale);
    }

    if write(skb(ctx), heartbeat, frame.source, frame.destination) != DONE {
        return Err(Counter::OverlayRewriteFailed);
    }
    let key = TunnelKey::new(settings::overlay_vni(), outer);
    set_tunnel_key(ctx, &key).ok_or(Counter::OverlayRewriteFailed)?;

    tables::count(Counter::OverlayProbeAnswered);
    Ok(redirect(settings::overlay_ifindex()))
}

/// Returns `None` unless the packet is an unfragmented probe request.
#[inline(always)]
fn check(ctx: &TcContext, frame: &Frame) -> Option<()> {
    let is_datagram = frame.is_plain() && frame.protocol == UDP;
    let is_sized = frame.packet_end == END as u32;
    if !is_datagram || !is_sized {
        return None;
    }

    let port: u16 = ctx.load(UDP_HEADER + 2).ok()?;
    let magic: [u8; 4] = ctx.load(PAYLOAD).ok()?;
    let flags: [u8; 2] = ctx.load(BODY).ok()?;
    // The flags are zero only in requests. If a reply got a reply, two gateways would exchange
    // replies forever.
    (port == settings::probe_port() && magic == MAGIC && flags == [0; 2]).then_some(())
}

/// Stores the request of the node at `outer` and its time of arrival, for the gateway's process.
///
/// A concurrent reader may see some bytes of the previous report and some of the new one. Such a
/// mixture is harmless, because each byte comes from one of the node's last two reports.
#[inline(always)]
fn note(ctx: &TcContext, outer: u32) {
    let Some(last_request) = tables::last_request(outer) else {
        return;
    };
    // SAFETY: The value lives until the program returns, and `body` has `len` bytes.
    unsafe {
        let body = (&raw mut (*last_request).body).cast();
        let len = size_of::<Body>() as u32;
        bpf_skb_load_bytes(skb(ctx).cast(), BODY as u32, body, len);
        (*last_request).ktime_ns = bpf_ktime_get_ns();
    }
}

/// Returns whether a socket in the namespace of the overlay device is bound to the probe's port.
#[inline(always)]
fn has_socket(ctx: &TcContext, frame: &Frame) -> bool {
    let mut tuple = bpf_sock_tuple {
        __bindgen_anon_1: bpf_sock_tuple__bindgen_ty_1 {
            ipv4: bpf_sock_tuple__bindgen_ty_1__bindgen_ty_1 {
                saddr: frame.source,
                daddr: frame.destination,
                sport: 0,
                dport: settings::probe_port(),
            },
        },
    };
    let len = size_of::<bpf_sock_tuple__bindgen_ty_1__bindgen_ty_1>() as u32;
    // SAFETY: The tuple has at least `len` bytes, and the kernel only reads them.
    let socket =
        unsafe { bpf_sk_lookup_udp(skb(ctx).cast(), &raw mut tuple, len, OWN_NAMESPACE, 0) };
    if socket.is_null() {
        return false;
    }
    // SAFETY: The lookup returned a reference, which this call releases once.
    unsafe { bpf_sk_release(socket.cast()) };

    true
}

/// Selects the network namespace of the packet's device (`BPF_F_CURRENT_NETNS`).
const OWN_NAMESPACE: u64 = u64::MAX;

const DONE: u64 = 0;

/// Writes the reply in place.
///
/// The function is not inlined, so that its buffer does not increase the caller's stack frame.
#[inline(never)]
fn write(skb: *mut __sk_buff, heartbeat: &Heartbeat, source: u32, destination: u32) -> u64 {
    let ctx = TcContext::new(skb);
    match steps(&ctx, heartbeat, [destination, source]) {
        Some(()) => DONE,
        None => !DONE,
    }
}

/// Writes the heartbeat into the body, and exchanges source and destination: IP addresses, ports
/// and MAC addresses.
///
/// Only the new body changes the UDP checksum: an exchange does not change the sum of the words.
#[inline(always)]
fn steps(ctx: &TcContext, heartbeat: &Heartbeat, addresses: [u32; 2]) -> Option<()> {
    // `ctx.load` would need a second buffer on the stack.
    let mut old = MaybeUninit::<[u32; size_of::<Body>() / 4]>::uninit();
    let old = old.as_mut_ptr();
    let new = &raw const heartbeat.body;
    let len = size_of::<Body>() as u32;
    // SAFETY: The kernel writes `len` bytes, which is the size of `old`.
    let loaded = unsafe { bpf_skb_load_bytes(skb(ctx).cast(), BODY as u32, old.cast(), len) };
    if loaded != 0 {
        return None;
    }
    // SAFETY: Both buffers have `len` bytes, and the kernel only reads them.
    let change = unsafe { bpf_csum_diff(old.cast(), len, new.cast_mut().cast(), len, 0) };
    let change = u64::try_from(change).ok()?;
    let [source, destination]: [u16; 2] = ctx.load(UDP_HEADER).ok()?;

    // Without BPF_F_PSEUDO_HDR, the helper does not change a checksum that the device completes
    // later, because such a checksum covers only the pseudo header.
    ctx.l4_csum_replace(UDP_CHECKSUM, 0, change, u64::from(BPF_F_MARK_MANGLED_0))
        .ok()?;
    ctx.store(BODY, &heartbeat.body, 0).ok()?;
    ctx.store(UDP_HEADER, &[destination, source], 0).ok()?;
    ctx.store(SOURCE, &addresses, 0).ok()?;
    ctx.store(0, &[settings::node_mac(), settings::gateway_mac()], 0)
        .ok()
}
