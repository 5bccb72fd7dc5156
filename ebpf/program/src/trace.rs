//! Logs single packets through aya-log, if the loader has switched that on.
//!
//! The level is a constant, so the verifier removes all logging that is off.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use aya_log_ebpf::debug;
use aya_log_ebpf::macro_support::{Level, level_enabled};
use ebpf_common::counter::Counter;

use crate::packet::SOURCE;

/// Logs a dropped packet: the number of the reason, and the addresses.
///
/// User space replaces the number by the reason's name.
#[inline(always)]
pub(crate) fn dropped(ctx: &TcContext, reason: Counter) {
    if level_enabled(Level::Debug) {
        log(ctx.skb.skb, reason as u32);
    }
}

/// A function of its own, because of the stack that it needs.
#[inline(never)]
fn log(skb: *mut __sk_buff, reason: u32) -> u64 {
    let ctx = &TcContext::new(skb);
    let addresses: [u32; 2] = ctx.load(SOURCE).unwrap_or_default();
    let [source, destination] = addresses.map(u32::from_be);
    debug!(ctx, "{} {:i} -> {:i}", reason, source, destination);
    0
}
