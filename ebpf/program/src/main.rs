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
mod packet;
mod rewrite;

mod mutants;
mod settings;
mod tables;
mod trace;
mod turn;

use aya_ebpf::bindings::{TC_ACT_SHOT, TC_ACT_UNSPEC};
use aya_ebpf::macros::{classifier, socket_filter};
use aya_ebpf::programs::{SkBuffContext, TcContext};
use ebpf_common::counter::Counter;

/// Attached to the ingress of the overlay device: what nodes send to peers.
#[classifier]
pub(crate) fn overlay_ingress(ctx: TcContext) -> i32 {
    match overlay::handle(&ctx) {
        Ok(verdict) => verdict,
        Err(reason) => refuse(&ctx, reason),
    }
}

/// Attached to the ingress of the TAP: what the engine has from peers.
#[classifier]
pub(crate) fn tap_ingress(ctx: TcContext) -> i32 {
    match tap::handle(&ctx) {
        Ok(verdict) => verdict,
        Err(reason) => refuse(&ctx, reason),
    }
}

/// Attached to the sockets of the listening port: returns the one that takes a datagram.
#[socket_filter]
pub(crate) fn listen(ctx: SkBuffContext) -> i64 {
    let lane = turn::lane(&ctx);

    turn::place(turn::worker(lane), lane).into()
}

/// Attached to the sockets of a port that is one lane's: returns the one that takes a datagram.
#[socket_filter]
pub(crate) fn reply(ctx: SkBuffContext) -> i64 {
    turn::worker(turn::lane(&ctx)).into()
}

/// Attached to a TAP with several queues: returns the one that takes a frame.
#[socket_filter]
pub(crate) fn steer(ctx: SkBuffContext) -> i64 {
    steer::queue(&ctx).into()
}

/// Counts what is not forwarded: most is dropped, the rest is not ours.
#[inline(always)]
fn refuse(ctx: &TcContext, reason: Counter) -> i32 {
    tables::count(reason);
    if !reason.is_drop() {
        // TCX_NEXT, and for clsact as much: the next program decides.
        return TC_ACT_UNSPEC;
    }

    trace::dropped(ctx, reason);
    TC_ACT_SHOT
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // Never reached, and the verifier would refuse it: no code here can panic.
    loop {}
}

/// Some helpers may only be called by programs under this licence.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";
