//! The active worker of each lane, in memory shared with the kernel programs.
//!
//! The programs choose the worker that serves a burst (`ebpf/program`), by the CPU that received its
//! first packet; the worker reports when it has taken everything, so that the next burst may be
//! another worker's.

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

/// The entries of all lanes, mapped until the process ends.
#[derive(Debug)]
pub(crate) struct ActiveWorkers(NonNull<Shared>);

// SAFETY: its fields are accessed as atomics only.
unsafe impl Send for ActiveWorkers {}
// SAFETY: As above.
unsafe impl Sync for ActiveWorkers {}

/// The entry of a lane, as one of its workers uses it.
#[derive(Clone, Debug)]
pub(crate) struct ActiveWorker {
    entries: Arc<ActiveWorkers>,
    lane: usize,
    worker: u32,
}

impl ActiveWorkers {
    /// Maps the eBPF map into memory.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error.
    pub(crate) fn map(map: BorrowedFd<'_>) -> Result<Self, Errno> {
        let len = size_of::<Shared>() * LANES_MAX as usize;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
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

    /// Returns the entry of `lane` for one of its workers; `None` beyond the map's size.
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
    /// Returns when the lane received its last packet, on the kernel's clock; `None` if another
    /// worker is active.
    pub(super) fn last(&self) -> Option<u64> {
        let shared = self.shared();
        // SAFETY: fields of an entry within the mapping, which is never unmapped.
        let (worker, last) = unsafe {
            (
                AtomicU32::from_ptr(&raw mut (*shared).worker),
                AtomicU64::from_ptr(&raw mut (*shared).last),
            )
        };
        // Read first: the kernel changes it when another worker becomes active.
        let last = last.load(Ordering::Acquire);

        (worker.load(Ordering::Acquire) == self.worker).then_some(last)
    }

    /// Reports that all packets until `last` are taken, so that another worker may become active.
    pub(super) fn take(&self, last: u64) {
        // SAFETY: As above.
        let taken = unsafe { AtomicU64::from_ptr(&raw mut (*self.shared()).taken) };
        taken.store(last, Ordering::Release);
    }

    fn shared(&self) -> *mut Shared {
        // SAFETY: `entry` has checked the lane against the length of the mapping.
        unsafe { self.entries.0.as_ptr().add(self.lane) }
    }
}
