//! The wall clock of this process, which a test can set back.
//!
//! No namespace of the kernel has a wall clock of its own, and the machine's clock belongs to all
//! processes. So this program defines `clock_gettime(2)`, which replaces the function of the C
//! library in all code of the program. Other clocks are the kernel's.

use nix::libc::{self, c_int, c_long, clockid_t, timespec};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// How far the wall clock is behind the kernel's, in seconds.
static BEHIND: AtomicI64 = AtomicI64::new(0);

/// Sets the wall clock of this process to `behind` before the machine's.
pub(super) fn set_back(behind: Duration) {
    let seconds = i64::try_from(behind.as_secs()).unwrap_or(i64::MAX);
    BEHIND.store(seconds, Ordering::Relaxed);
}

// SAFETY: the name, the arguments and the result are those of clock_gettime(2).
#[unsafe(no_mangle)]
extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    // SAFETY: `time` is valid for writes, as clock_gettime(2) requires of the caller.
    let result = unsafe { libc::syscall(libc::SYS_clock_gettime, c_long::from(clock), time) };
    if result == 0 && clock == libc::CLOCK_REALTIME {
        // SAFETY: the kernel has written to `time`, so it is valid.
        unsafe { (*time).tv_sec -= BEHIND.load(Ordering::Relaxed) };
    }

    c_int::try_from(result).unwrap_or(-1)
}
