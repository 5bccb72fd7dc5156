//! Lowers the maximum segment size (MSS) that a TCP handshake announces.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use ebpf_common::counter::Counter;

use crate::tables;
use crate::verifier::opaque;

/// Length of the TCP header without options.
const HEADER: u32 = 20;

/// Highest number of options in one header. The options take at most 40 bytes, and the shortest
/// option takes one byte.
const OPTIONS_MAX: u32 = 40;

// Offsets in the TCP header.
const LENGTH: u32 = 12;
const CHECKSUM: u32 = 16;

const SYN: u8 = 0x02;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
const MSS_LEN: u32 = 4;

/// Lowers the announced MSS of a SYN segment to `limit`, if the announced MSS is higher.
///
/// Returns 1 if the function lowered the MSS, else 0. Malformed options stay unchanged: the
/// receiver of the segment has to handle them.
#[inline(never)]
pub(crate) fn clamp(skb: *mut __sk_buff, tcp: u32, packet_end: u32, limit: u16) -> u64 {
    let ctx = TcContext::new(skb);
    let clamped = find(&ctx, tcp, packet_end).and_then(|at| lower(&ctx, tcp, at, limit));

    u64::from(clamped.is_some())
}

/// Returns the offset of the announced MSS from the start of the TCP header.
#[inline(always)]
fn find(ctx: &TcContext, tcp: u32, packet_end: u32) -> Option<u32> {
    let [length, flags]: [u8; 2] = ctx.load((tcp + LENGTH) as usize).ok()?;
    let options_end = u32::from(length >> 4) * 4;
    if flags & SYN == 0 || tcp + options_end > packet_end {
        return None;
    }

    let mut at = opaque(ctx, HEADER);
    for _ in 0..OPTIONS_MAX {
        if opaque(ctx, at + MSS_LEN) > options_end {
            return None;
        }
        let [kind, len]: [u8; 2] = ctx.load((tcp + at) as usize).ok()?;
        match kind {
            END => return None,
            NO_OPERATION => at += 1,
            MSS if u32::from(len) == MSS_LEN => return Some(at + 2),
            _ if len < 2 => return None,
            _ => at += u32::from(len),
        }
    }

    None
}

#[inline(always)]
fn lower(ctx: &TcContext, tcp: u32, at: u32, limit: u16) -> Option<()> {
    let announced: [u8; 2] = ctx.load((tcp + at) as usize).ok()?;
    if u16::from_be_bytes(announced) <= limit {
        return None;
    }

    let limit = limit.to_be_bytes();
    let mut old = u16::from_ne_bytes(announced);
    let mut new = u16::from_ne_bytes(limit);
    if at & 1 == 1 {
        // At an odd offset, the two bytes belong to different 16-bit words of the checksum.
        (old, new) = (old.swap_bytes(), new.swap_bytes());
    }
    let checksum = (tcp + CHECKSUM) as usize;
    ctx.l4_csum_replace(checksum, u64::from(old), u64::from(new), 2)
        .ok()?;
    ctx.store((tcp + at) as usize, &limit, 0).ok()?;
    tables::count(Counter::MssClamped);

    Some(())
}
