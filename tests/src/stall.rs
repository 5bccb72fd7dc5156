//! Detects that the machine was suspended while a test measured time.
//!
//! On shared hardware, a hypervisor may suspend a virtual CPU for a second or more. A test with a
//! time limit then fails, although the program under test has no fault. To detect this, one thread
//! per CPU sleeps for short intervals, and records late wake-ups. Without a suspension, even a busy
//! machine wakes the thread within milliseconds.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Interval for which each thread sleeps.
const TICK: Duration = Duration::from_millis(25);

/// Delay above which a wake-up counts as a stall. It equals the interval of the gateways' liveness
/// probes.
const LATE: Duration = Duration::from_millis(250);

/// Threads that detect stalls on every CPU that this process may use.
#[derive(Debug)]
pub struct Witness {
    stalls: Arc<Mutex<Stalls>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// The stalls that a [`Witness`] recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Number of late wake-ups on all CPUs.
    pub count: u32,
    /// Longest delay of a wake-up.
    pub longest: Duration,
}

impl Stalls {
    fn note(&mut self, slept: Duration) {
        let late = slept.saturating_sub(TICK);
        if late > LATE {
            self.count += 1;
            self.longest = self.longest.max(late);
        }
    }
}

impl Witness {
    /// Starts one thread on each CPU that this process may use.
    #[must_use]
    pub fn start() -> Self {
        let stalls = Arc::new(Mutex::new(Stalls::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let here = Pid::from_raw(0);
        let usable = sched_getaffinity(here).unwrap_or_default();
        let processors = (0..CpuSet::count()).filter(|it| usable.is_set(*it).unwrap_or(false));

        let threads = processors
            .map(|processor| {
                let (stalls, stop) = (Arc::clone(&stalls), Arc::clone(&stop));
                thread::spawn(move || {
                    let mut only = CpuSet::new();
                    let pinned = only
                        .set(processor)
                        .and_then(|()| sched_setaffinity(here, &only));
                    while pinned.is_ok() && !stop.load(Ordering::Relaxed) {
                        let before = Instant::now();
                        thread::sleep(TICK);
                        let mut stalls = stalls.lock().unwrap_or_else(PoisonError::into_inner);
                        stalls.note(before.elapsed());
                    }
                })
            })
            .collect();

        Self {
            stalls,
            stop,
            threads,
        }
    }

    /// Stops the threads, and returns the recorded stalls.
    #[must_use]
    pub fn finish(self) -> Stalls {
        *self.stalls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_late_wake_up_is_a_stall() {
        let mut stalls = Stalls::default();

        stalls.note(TICK + LATE);
        assert_eq!(stalls, Stalls::default());
        stalls.note(TICK + Duration::from_millis(1_500));
        stalls.note(TICK + Duration::from_millis(300));

        assert_eq!(stalls.count, 2);
        assert_eq!(stalls.longest, Duration::from_millis(1_500));
    }

    #[test]
    fn every_processor_has_a_witness() {
        let witness = Witness::start();

        let usable = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let processors = (0..CpuSet::count()).filter(|it| usable.is_set(*it).unwrap());
        assert_eq!(witness.threads.len(), processors.count());
    }
}
