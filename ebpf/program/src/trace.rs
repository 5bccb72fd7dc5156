//! Logs dropped packets through aya-log, if the loader has enabled the log level.
//!
//! The log level is a constant of the loaded program, so the verifier removes disabled logging.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use aya_log_ebpf::debug;
use aya_log_ebpf::macro_support::{Level, level_enabled};
use ebpf_common::counter::Counter;

use crate::packet::SOURCE;

/// Logs the reason and the addresses of a dropped packet.
///
/// The program logs the number of the reason, and user space replaces the number by the name.
#[inline(always)]
pub(crate) fn dropped(ctx: &TcContext, reason: Counter) {
    if level_enabled(Level::Debug) {
        log(ctx.skb.skb, reason as u32);
    }
}

/// Writes the log record.
///
/// The function is not inlined, so that its buffers do not increase the caller's stack frame.
#[inline(never)]
fn log(skb: *mut __sk_buff, reason: u32) -> u64 {
    let ctx = &TcContext::new(skb);
    let addresses: [u32; 2] = ctx.load(SOURCE).unwrap_or_default();
    let [source, destination] = addresses.map(u32::from_be);
    debug!(ctx, "{} {:i} -> {:i}", reason, source, destination);
    0
}
