//! Selects the queue of the TAP for a packet, and thereby the lane and worker that receive it.

use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::macros::map;
use aya_ebpf::maps::HashMap;
use aya_ebpf::programs::SkBuffContext;
use ebpf_common::maps::{CAPACITY, LANES_MAX};

use crate::{active_worker, settings};

#[map]
static LANES: HashMap<[u8; 2], u32> = HashMap::with_max_entries(CAPACITY, BPF_F_NO_PREALLOC);

/// The lane for peers without an entry in `LANES`, and for frames whose destination MAC address is
/// not that of a peer.
const FIRST: u32 = 0;

const ETHERNET: usize = 14;
const IHL: usize = ETHERNET;
const FRAGMENT: usize = ETHERNET + 6;
const PROTOCOL: usize = ETHERNET + 9;
const ADDRESSES: usize = ETHERNET + 12;

const MORE_FRAGMENTS_OR_OFFSET: u16 = 0x3fff;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Returns the queue for a frame that the overlay program redirected to the TAP.
#[inline(always)]
pub(crate) fn queue(ctx: &SkBuffContext) -> u32 {
    let lane = lane(ctx);

    active_worker::place(active_worker::worker(lane), lane)
}

#[inline(always)]
fn lane(ctx: &SkBuffContext) -> u32 {
    let Ok([a, b, c, d, high, low]) = ctx.load::<[u8; 6]>(0) else {
        return FIRST;
    };
    if u32::from_ne_bytes([a, b, c, d]) != u32::from_ne_bytes(settings::peer_mac_prefix()) {
        return FIRST;
    }
    let Some(lanes) = LANES.get_ptr([high, low]) else {
        return FIRST;
    };
    // SAFETY: The value is an aligned `u32` and lives until the program returns.
    let lanes = unsafe { lanes.read_volatile() };

    choose(lanes, hash(ctx))
}

/// Returns one of the lanes whose bits are set; equal arguments always select the same lane.
#[inline(always)]
fn choose(lanes: u32, hash: u32) -> u32 {
    let mut count = 0;
    for lane in 0..LANES_MAX {
        count += lanes >> lane & 1;
    }
    // This multiplication scales the hash from the range 0..2^32 to the range 0..count.
    let mut left = ((u64::from(hash) * u64::from(count)) >> 32) as u32;
    for lane in 0..LANES_MAX {
        if lanes >> lane & 1 == 1 {
            if left == 0 {
                return lane;
            }
            left -= 1;
        }
    }
    FIRST
}

/// Returns a hash of the packet's flow: addresses, protocol and ports.
#[inline(always)]
fn hash(ctx: &SkBuffContext) -> u32 {
    let addresses = ctx.load::<u64>(ADDRESSES).unwrap_or_default();
    let protocol = ctx.load::<u8>(PROTOCOL).unwrap_or_default();
    let is_fragment = ctx
        .load::<u16>(FRAGMENT)
        .is_ok_and(|word| u16::from_be(word) & MORE_FRAGMENTS_OR_OFFSET != 0);
    let mut ports = 0;
    if (protocol == TCP || protocol == UDP) && !is_fragment {
        let header = usize::from(ctx.load::<u8>(IHL).unwrap_or_default() & 0xf) * 4;
        ports = ctx.load::<u32>(ETHERNET + header).unwrap_or_default();
    }

    let mixed = mix(addresses ^ mix(u64::from(ports) << 8 | u64::from(protocol)));
    (mixed >> 32) as u32
}

/// Mixes the bits of a number with the finalizer of SplitMix64, so that each input bit affects all
/// output bits.
#[inline(always)]
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
