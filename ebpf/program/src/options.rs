//! IPv4 options: the list must be sound, and must not route the packet.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use ebpf_common::counter::Counter;

use crate::packet::{HEADERS, skb};
use crate::verifier::opaque;

/// Most options, all of one byte: the header's length has four bits of words.
const OPTIONS_MAX: u32 = 40;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;

/// Loose and strict source route (RFC 791): an end host of ours that honours one would forward
/// the packet to an address that was never checked.
const LOOSE_SOURCE_ROUTE: u8 = 0x83;
const STRICT_SOURCE_ROUTE: u8 = 0x89;

/// What an option list is, as a number: what a function of the kernel can return.
struct List;

impl List {
    const SOUND: u64 = 0;
    const SOURCE_ROUTE: u64 = 1;
    const MALFORMED: u64 = 2;
}

/// Refuses a packet whose options, which end at `end`, are malformed or route it.
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

/// A function of its own, so that the verifier looks at the loop once per caller.
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
                // If the list ends before the length byte, so does the option.
                if len < 2 || opaque(&ctx, at + u32::from(len)) > end {
                    return List::MALFORMED;
                }
                at += u32::from(len);
            }
        }
    }

    List::SOUND
}
