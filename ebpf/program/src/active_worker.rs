//! Selects the active worker of a lane, which receives the lane's packets.
//!
//! A lane is a share of the engine's traffic, and a worker is one of the lane's threads. A sleeping
//! thread wakes fastest on the CPU that wakes it, because this CPU is already running. Therefore a
//! lane has a worker for each group of CPUs.
//!
//! After a pause in the traffic, the worker of the CPU on which the first packet arrives becomes
//! active. It stays active until the next pause, so that a burst is neither split nor reordered.
//!
//! A WireGuard message identifies its session by a 32-bit index. The upper three bytes of the index
//! are the *slot*. The engine chooses the slot of a session such that the slot's lowest byte modulo
//! the number of lanes is the session's lane.

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

/// The worker of a lane without an entry in `ACTIVE_WORKERS`.
const FIRST: u32 = 0;

/// Minimum time without packets after which another worker may become active.
const PAUSE_NS: i64 = 500_000;

/// Message type of a WireGuard handshake response.
const RESPONSE: u8 = 2;

/// Offset of the slot's lowest byte in a handshake response.
///
/// The receiver's index, which contains the slot, follows the sender's index in a response.
const SLOT_OF_RESPONSE: usize = 9;

/// Offset of the slot's lowest byte in all messages except a handshake response.
///
/// The index is little-endian, and the slot begins at its second byte.
const SLOT: usize = 5;

/// Returns the worker that receives the current packet of `lane`.
///
/// Another worker becomes active only after a pause, and only if the active worker has read all
/// packets. Otherwise the current packet could overtake earlier packets.
#[inline(always)]
pub(crate) fn worker(lane: u32) -> u32 {
    let Some(active) = ACTIVE_WORKERS.get_ptr_mut(lane) else {
        return FIRST;
    };
    // SAFETY: A value of the array is aligned and lives as long as the program. Other CPUs and user
    // space write the fields concurrently. A lost update has no other effect than a different
    // active worker.
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

/// Returns the index of the TAP queue or of the listening socket that `worker` reads for `lane`.
///
/// The first indices belong to the first worker of each lane, in the order of the lanes. The next
/// indices belong to the second worker of each lane, and so on.
#[inline(always)]
pub(crate) fn place(worker: u32, lane: u32) -> u32 {
    worker * settings::lane_count() + lane
}

/// Returns the lane of a WireGuard message: the lowest byte of its slot modulo the number of lanes.
///
/// The slot is the upper part of an index: of the sender's index in a handshake initiation, and of
/// the receiver's index in all other messages (WireGuard whitepaper, section 5.4). A message that
/// is too short to contain an index belongs to the first lane.
#[inline(always)]
pub(crate) fn lane(ctx: &SkBuffContext) -> u32 {
    let slot = match ctx.load::<u8>(0) {
        Ok(RESPONSE) => SLOT_OF_RESPONSE,
        _ => SLOT,
    };
    let slot = ctx.load::<u8>(slot).unwrap_or_default();

    u32::from(slot) % settings::lane_count()
}
