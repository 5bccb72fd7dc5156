//! The eBPF programs of the gateway, with one function per hook.
//!
//! ```text
//!  nodes ──> liqo-overlay ──overlay_ingress──> liqo-tap ──> engine ──> peers
//!  nodes <── liqo-overlay <───tap_ingress───── liqo-tap <── engine <── peers
//! ```

#![no_std]
#![no_main]

mod overlay;
mod probe;
mod steer;
mod tap;

mod icmp;
mod mss;
mod options;
mod packet;
mod rewrite;

mod active_worker;
mod mutants;
mod settings;
mod tables;
mod trace;

mod verifier;

use aya_ebpf::bindings::TC_ACT_SHOT;
use aya_ebpf::macros::{classifier, socket_filter};
use aya_ebpf::programs::{SkBuffContext, TcContext};
use ebpf_common::counter::Counter;

/// Handles packets from nodes to peers, at the ingress hook of the overlay device.
#[classifier]
pub(crate) fn overlay_ingress(ctx: TcContext) -> i32 {
    match overlay::handle(&ctx) {
        Ok(verdict) => verdict,
        Err(reason) => drop_frame(&ctx, reason),
    }
}

/// Handles decrypted packets from peers, at the ingress hook of the TAP.
#[classifier]
pub(crate) fn tap_ingress(ctx: TcContext) -> i32 {
    match tap::handle(&ctx) {
        Ok(verdict) => verdict,
        Err(reason) => drop_frame(&ctx, reason),
    }
}

/// Returns the index of the socket that receives a WireGuard message to the listening port.
///
/// The workers of all lanes share this port. Each worker of each lane has its own socket.
#[socket_filter]
pub(crate) fn listen(ctx: SkBuffContext) -> i64 {
    let lane = active_worker::lane(&ctx);

    active_worker::place(active_worker::worker(lane), lane).into()
}

/// Returns the index of the socket that receives a WireGuard message to the port of one lane.
///
/// The workers of the lane share this port. Each worker has its own socket.
#[socket_filter]
pub(crate) fn reply(ctx: SkBuffContext) -> i64 {
    active_worker::worker(active_worker::lane(&ctx)).into()
}

/// Returns the queue that receives a frame, on a TAP with several queues.
#[socket_filter]
pub(crate) fn steer(ctx: SkBuffContext) -> i64 {
    steer::queue(&ctx).into()
}

/// Drops and counts a frame, so that it does not reach the IP stack of the gateway's namespace.
#[inline(always)]
fn drop_frame(ctx: &TcContext, reason: Counter) -> i32 {
    tables::count(reason);
    trace::dropped(ctx, reason);
    TC_ACT_SHOT
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier rejects a program that contains this loop, so the loop never runs.
    loop {}
}

/// The licence of the programs. Some kernel helpers require a GPL-compatible licence.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";
