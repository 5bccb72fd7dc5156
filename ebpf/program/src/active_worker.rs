//! Chooses the active worker of a lane, which receives the lane's packets.
//!
//! A sleeping thread wakes fastest on the CPU that wakes it, because that CPU is awake already. So
//! a lane has a worker for each group of CPUs. After a pause the worker of the CPU on which the
//! first packet arrives becomes active and stays so until the next pause: a burst is neither split
//! nor reordered.

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns};
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use aya_ebpf::programs::SkBuffContext;
use ebpf_common::maps::{ActiveWorker, CPUS_MAX, LANES_MAX, NO_WORKER};

use crate::settings;

#[map]
static ACTIVE_WORKERS: Array<ActiveWorker> = Array::with_max_entries(LANES_MAX, BPF_F_MMAPABLE);

#[map]
static WORKERS: Array<u32> = Array::with_max_entries(CPUS_MAX, 0);

/// The worker of a lane without an entry.
const FIRST: u32 = 0;

/// How long no packet must have arrived before another worker may become active.
const PAUSE_NS: i64 = 500_000;

/// The first byte of a handshake response, whose sender's index precedes the receiver's.
const RESPONSE: u8 = 2;

/// Offsets of the slot's lowest byte in a response and in all other messages: the second byte of
/// an index, which is little-endian.
const SLOT_OF_RESPONSE: usize = 9;
const SLOT: usize = 5;

/// Returns the worker for a packet that arrives now.
///
/// It changes only after a pause, and only if the active worker has read everything: else its CPU
/// may be busy, and this packet would overtake earlier ones.
#[inline(always)]
pub(crate) fn worker(lane: u32) -> u32 {
    let Some(active) = ACTIVE_WORKERS.get_ptr_mut(lane) else {
        return FIRST;
    };
    // SAFETY: A value of the array lives as long as the program and is aligned. Other CPUs and
    // user space write it too, field by field; at worst another worker becomes active.
    unsafe {
        let now = bpf_ktime_get_ns();
        let last = (&raw const (*active).last).read_volatile();
        if now.wrapping_sub(last) as i64 > PAUSE_NS
            && (&raw const (*active).taken).read_volatile() == last
        {
            let worker = WORKERS.get(bpf_get_smp_processor_id());
            let worker = worker.copied().unwrap_or(NO_WORKER);
            if worker != NO_WORKER {
                (&raw mut (*active).worker).write_volatile(worker);
            }
        }
        (&raw mut (*active).last).write_volatile(now);

        (&raw const (*active).worker).read_volatile()
    }
}

/// Returns the index of a queue or socket; the indices of the first worker's lanes come first.
#[inline(always)]
pub(crate) fn place(worker: u32, lane: u32) -> u32 {
    worker * settings::lane_count() + lane
}

/// Returns the lane of a WireGuard message, by the lowest byte of the slot in its index: the
/// sender's index in an initiation, the receiver's in all others (WireGuard whitepaper, section
/// 5.4). A message that is too short for an index belongs to the first lane.
#[inline(always)]
pub(crate) fn lane(ctx: &SkBuffContext) -> u32 {
    let slot = match ctx.load::<u8>(0) {
        Ok(RESPONSE) => SLOT_OF_RESPONSE,
        _ => SLOT,
    };
    let slot = ctx.load::<u8>(slot).unwrap_or_default();

    u32::from(slot) % settings::lane_count()
}
