//! The kernel programs of the gateway, one function per hook.
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

/// Attached to the ingress of the overlay device: packets from nodes to peers.
#[classifier]
pub(crate) fn overlay_ingress(ctx: TcContext) -> i32 {
    match overlay::handle(&ctx) {
        Ok(verdict) => verdict,
        Err(reason) => drop_frame(&ctx, reason),
    }
}

/// Attached to the ingress of the TAP: decrypted packets from peers.
#[classifier]
pub(crate) fn tap_ingress(ctx: TcContext) -> i32 {
    match tap::handle(&ctx) {
        Ok(verdict) => verdict,
        Err(reason) => drop_frame(&ctx, reason),
    }
}

/// Attached to the sockets of the listening port; returns the index of the receiving socket.
#[socket_filter]
pub(crate) fn listen(ctx: SkBuffContext) -> i64 {
    let lane = active_worker::lane(&ctx);

    active_worker::place(active_worker::worker(lane), lane).into()
}

/// Attached to the sockets of one lane's port; returns the index of the receiving socket.
#[socket_filter]
pub(crate) fn reply(ctx: SkBuffContext) -> i64 {
    active_worker::worker(active_worker::lane(&ctx)).into()
}

/// Attached to a TAP with several queues; returns the queue of a frame.
#[socket_filter]
pub(crate) fn steer(ctx: SkBuffContext) -> i64 {
    steer::queue(&ctx).into()
}

/// Drops a frame, of whatever protocol: none reaches the IP stack of the gateway's namespace.
#[inline(always)]
fn drop_frame(ctx: &TcContext, reason: Counter) -> i32 {
    tables::count(reason);
    trace::dropped(ctx, reason);
    TC_ACT_SHOT
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // Unreachable: the verifier refuses a program that contains this loop.
    loop {}
}

/// The kernel offers some helpers only to programs under this licence.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";
