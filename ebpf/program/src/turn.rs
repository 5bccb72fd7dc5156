//! Which worker of a lane takes what comes.
//!
//! A sleeping thread is woken soonest on the CPU that wakes it, which is awake already. So a lane
//! has a worker for each group of CPUs, and whoever serves the CPU on which something comes after
//! a pause is given that, and all that comes until the next pause: what belongs together is neither
//! taken apart nor put out of order.

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns};
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use aya_ebpf::programs::SkBuffContext;
use ebpf_common::maps::{CPUS_MAX, LANES_MAX, NO_WORKER, Turn};

use crate::settings;

#[map]
static TURNS: Array<Turn> = Array::with_max_entries(LANES_MAX, BPF_F_MMAPABLE);

#[map]
static WORKERS: Array<u32> = Array::with_max_entries(CPUS_MAX, 0);

/// The worker of a lane that has no turn.
const FIRST: u32 = 0;

/// How long nothing must have come for another worker's turn to begin.
const PAUSE_NS: i64 = 500_000;

/// The first byte of a response, whose sender's index comes before the receiver's.
const RESPONSE: u8 = 2;

/// Where the lowest byte of the slot is in a response, and in all else: the second byte of an
/// index, which is little-endian.
const SLOT_OF_RESPONSE: usize = 9;
const SLOT: usize = 5;

/// Returns who takes what comes now.
///
/// Another worker than before only after a pause, and if the one before has taken all: else its
/// CPU may be busy, and what comes now would be served first.
#[inline(always)]
pub(crate) fn worker(lane: u32) -> u32 {
    let Some(turn) = TURNS.get_ptr_mut(lane) else {
        return FIRST;
    };
    // SAFETY: the array's value, which lives as long as the program and is as aligned as its
    // type. Other CPUs and user space write it too, field by field: the worst that comes of it
    // is a turn that begins elsewhere.
    unsafe {
        let now = bpf_ktime_get_ns();
        let last = (&raw const (*turn).last).read_volatile();
        if now.wrapping_sub(last) as i64 > PAUSE_NS
            && (&raw const (*turn).taken).read_volatile() == last
        {
            let worker = WORKERS.get(bpf_get_smp_processor_id());
            let worker = worker.copied().unwrap_or(NO_WORKER);
            if worker != NO_WORKER {
                (&raw mut (*turn).worker).write_volatile(worker);
            }
        }
        (&raw mut (*turn).last).write_volatile(now);

        (&raw const (*turn).worker).read_volatile()
    }
}

/// Returns the number of a queue or socket: all lanes of the first worker come first.
#[inline(always)]
pub(crate) fn place(worker: u32, lane: u32) -> u32 {
    worker * settings::lane_count() + lane
}

/// Returns the lane of a WireGuard message: its index names it, by the lowest byte of the slot:
/// the sender's index in an initiation, the receiver's in all others (WireGuard's protocol,
/// section 5.4). A message that is too short for one is the first lane's.
#[inline(always)]
pub(crate) fn lane(ctx: &SkBuffContext) -> u32 {
    let slot = match ctx.load::<u8>(0) {
        Ok(RESPONSE) => SLOT_OF_RESPONSE,
        _ => SLOT,
    };
    let slot = ctx.load::<u8>(slot).unwrap_or_default();

    u32::from(slot) % settings::lane_count()
}
