//! Shares the active worker of each lane with the eBPF programs.
//!
//! The active worker handles all packets of its lane. When a burst of packets starts, the eBPF
//! programs (`ebpf/program`) select the worker of the CPU that received the first packet. The
//! worker reports when it has read all packets of the burst. Then the programs may select another
//! worker for the next burst.

#![expect(
    unsafe_code,
    reason = "the kernel and other threads write the same memory"
)]

use crate::engine::LaneId;
use ebpf_common::maps::{ActiveWorker as Shared, LANES_MAX};
use nix::errno::Errno;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The entries of all lanes in an eBPF map. The memory stays mapped until the process ends.
#[derive(Debug)]
pub(crate) struct ActiveWorkers(NonNull<Shared>);

// SAFETY: all accesses to the fields of the entries are atomic.
unsafe impl Send for ActiveWorkers {}
// SAFETY: all accesses to the fields of the entries are atomic.
unsafe impl Sync for ActiveWorkers {}

/// A worker's access to the entry of its lane.
#[derive(Clone, Debug)]
pub(crate) struct ActiveWorker {
    entries: Arc<ActiveWorkers>,
    lane: usize,
    worker: u32,
}

impl ActiveWorkers {
    /// Maps the eBPF map `map` into the memory of the process.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error.
    pub(crate) fn map(map: BorrowedFd<'_>) -> Result<Self, Errno> {
        let len = size_of::<Shared>() * LANES_MAX as usize;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the address of the new mapping, which overlaps no other
        // memory.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                protection,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(Errno::last());
        }

        NonNull::new(memory.cast()).map(Self).ok_or(Errno::EFAULT)
    }

    /// Returns the access of a worker to the entry of `lane`; `None` if the map has no such entry.
    pub(crate) fn entry(self: &Arc<Self>, lane: LaneId, worker: usize) -> Option<ActiveWorker> {
        let lane = usize::from(lane.number());
        let entry = ActiveWorker {
            entries: Arc::clone(self),
            lane,
            worker: u32::try_from(worker).ok()?,
        };

        (lane < LANES_MAX as usize).then_some(entry)
    }
}

impl ActiveWorker {
    /// Returns the arrival time of the lane's last packet, in nanoseconds of the monotonic clock
    /// (`bpf_ktime_get_ns`).
    ///
    /// Returns `None` if another worker is active.
    pub(super) fn last(&self) -> Option<u64> {
        let shared = self.shared();
        // SAFETY: both fields are in an entry within the mapping, which is never unmapped.
        let (worker, last) = unsafe {
            (
                AtomicU32::from_ptr(&raw mut (*shared).worker),
                AtomicU64::from_ptr(&raw mut (*shared).last),
            )
        };
        // The eBPF programs write `worker` before `last`. Reads in the reverse order ensure that
        // `worker` is at least as recent as `last`.
        let last = last.load(Ordering::Acquire);

        (worker.load(Ordering::Acquire) == self.worker).then_some(last)
    }

    /// Reports that the worker has read all packets received up to the time `last`.
    ///
    /// The eBPF programs may then select another worker.
    pub(super) fn take(&self, last: u64) {
        // SAFETY: the field is in an entry within the mapping, which is never unmapped.
        let taken = unsafe { AtomicU64::from_ptr(&raw mut (*self.shared()).taken) };
        taken.store(last, Ordering::Release);
    }

    fn shared(&self) -> *mut Shared {
        // SAFETY: `entry` has checked the lane against the length of the mapping.
        unsafe { self.entries.0.as_ptr().add(self.lane) }
    }
}
