//! Checks IPv4 options: the list must be well-formed and must not contain a source route.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use ebpf_common::counter::Counter;

use crate::packet::{HEADERS, skb};
use crate::verifier::opaque;

/// Highest number of options in one header. The options take at most 40 bytes, and the shortest
/// option takes one byte.
const OPTIONS_MAX: u32 = 40;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;

// Source route options (RFC 791). A host that honours such an option forwards the packet to an
// address that the gateway did not check.
const LOOSE_SOURCE_ROUTE: u8 = 0x83;
const STRICT_SOURCE_ROUTE: u8 = 0x89;

/// Result of [`inspect`].
///
/// The values are integers, because an eBPF function that is not inlined can return nothing else.
struct List;

impl List {
    const SOUND: u64 = 0;
    const SOURCE_ROUTE: u64 = 1;
    const MALFORMED: u64 = 2;
}

/// Returns an error if the options are malformed or contain a source route.
///
/// `end` is the offset of the end of the options from the start of the frame.
#[inline(always)]
pub(crate) fn check(
    ctx: &TcContext,
    end: u32,
    malformed: Counter,
    source_routed: Counter,
) -> Result<(), Counter> {
    match inspect(skb(ctx), end) {
        List::SOUND => Ok(()),
        List::SOURCE_ROUTE => Err(source_routed),
        _ => Err(malformed),
    }
}

/// Searches the options for source routes and format errors.
///
/// The function is not inlined, so that the verifier checks the loop once per caller.
#[inline(never)]
fn inspect(skb: *mut __sk_buff, end: u32) -> u64 {
    let ctx = TcContext::new(skb);
    let mut at = opaque(&ctx, HEADERS as u32);
    for _ in 0..OPTIONS_MAX {
        if opaque(&ctx, at) >= end {
            return List::SOUND;
        }
        let Ok(kind) = ctx.load::<u8>(at as usize) else {
            return List::MALFORMED;
        };
        match kind {
            END => return List::SOUND,
            NO_OPERATION => at += 1,
            LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE => return List::SOURCE_ROUTE,
            _ => {
                let Ok(len) = ctx.load::<u8>((at + 1) as usize) else {
                    return List::MALFORMED;
                };
                // This check also rejects an option whose length byte is after the end of the list.
                if len < 2 || opaque(&ctx, at + u32::from(len)) > end {
                    return List::MALFORMED;
                }
                at += u32::from(len);
            }
        }
    }

    List::SOUND
}
