//! Whose turn it is among a lane's workers, in memory that the kernel shares.

#![expect(
    unsafe_code,
    reason = "the kernel and other threads write the same memory"
)]

use crate::engine::LaneId;
use ebpf_common::maps::{LANES_MAX, Turn as Shared};
use nix::errno::Errno;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The turns of all lanes, for as long as the process runs.
#[derive(Debug)]
pub(crate) struct Turns(NonNull<Shared>);

// SAFETY: its fields are reached as atomics only.
unsafe impl Send for Turns {}
// SAFETY: As above.
unsafe impl Sync for Turns {}

/// A worker's view of its lane's turn.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    lane: usize,
    worker: u32,
}

impl Turns {
    /// Maps the map.
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

    /// Returns the view of one of a lane's workers.
    pub(crate) fn turn(self: &Arc<Self>, lane: LaneId, worker: usize) -> Option<Turn> {
        let lane = usize::from(lane.number());
        let turn = Turn {
            turns: Arc::clone(self),
            lane,
            worker: u32::try_from(worker).ok()?,
        };

        (lane < LANES_MAX as usize).then_some(turn)
    }
}

impl Turn {
    /// Returns when something came last for the worker, if it is its turn.
    pub(super) fn last(&self) -> Option<u64> {
        let shared = self.shared();
        // SAFETY: fields of an entry that is within the mapping, which is never undone.
        let (worker, last) = unsafe {
            (
                AtomicU32::from_ptr(&raw mut (*shared).worker),
                AtomicU64::from_ptr(&raw mut (*shared).last),
            )
        };
        // First: a turn that begins meanwhile makes it another.
        let last = last.load(Ordering::Acquire);

        (worker.load(Ordering::Acquire) == self.worker).then_some(last)
    }

    /// Says that all that came until then is taken: after a pause, the turn may be another one's.
    pub(super) fn take(&self, last: u64) {
        // SAFETY: As above.
        let taken = unsafe { AtomicU64::from_ptr(&raw mut (*self.shared()).taken) };
        taken.store(last, Ordering::Release);
    }

    fn shared(&self) -> *mut Shared {
        // SAFETY: within the mapping, which was made for so many lanes.
        unsafe { self.turns.0.as_ptr().add(self.lane) }
    }
}
