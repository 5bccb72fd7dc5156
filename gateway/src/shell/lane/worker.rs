//! The workers of a lane, which are threads for different groups of CPUs.
//!
//! When a burst of packets starts, the eBPF programs choose the worker whose group contains the CPU
//! that received the first packet (`active_worker`). This worker handles the whole burst. Parallel
//! workers would therefore not increase the throughput, so a mutex admits only one at a time.

use super::active_worker::ActiveWorker;
use super::cpu_affinity::CpuAffinity;
use super::ports::{self, READY_MAX};
use super::{Error, Lane};
use crate::shell::state::lock;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::epoll::{Epoll, EpollEvent, EpollTimeout};
use nix::unistd::Pid;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A worker whose thread has not been started yet.
pub(crate) struct Worker {
    number: usize,
    lane: Arc<Mutex<Lane>>,
    epoll: Arc<Epoll>,
    /// `None` if the lane has a single worker.
    active: Option<ActiveWorker>,
    /// The worker's own CPUs. The worker handles the packets that these CPUs receive.
    cpus: Vec<usize>,
}

/// Divides the CPUs on which this process may run into `workers` groups of almost equal size.
pub(crate) fn cpus(workers: usize) -> Vec<Vec<usize>> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let all: Vec<usize> = (0..CpuSet::count())
        .filter(|cpu| allowed.is_set(*cpu) == Ok(true))
        .collect();

    (0..workers)
        .map(|it| all[it * all.len() / workers..(it + 1) * all.len() / workers].to_vec())
        .collect()
}

impl Worker {
    /// Creates the workers of `lane`; `cpus` and `active` have an item for each worker.
    pub(crate) fn all(
        lane: Lane,
        cpus: Vec<Vec<usize>>,
        active: Vec<Option<ActiveWorker>>,
    ) -> Vec<Self> {
        let epolls = lane.ports.epolls();
        let lane = Arc::new(Mutex::new(lane));

        (epolls.into_iter().zip(cpus).zip(active).enumerate())
            .map(|(number, ((epoll, cpus), active))| Self {
                number,
                lane: Arc::clone(&lane),
                epoll,
                active,
                cpus,
            })
            .collect()
    }

    /// Forwards packets until [`Command::Stop`](super::Command::Stop).
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the TAP was deleted or epoll failed.
    pub(crate) fn run(self) -> Result<(), Error> {
        let Self {
            number,
            lane,
            epoll,
            active,
            cpus,
        } = self;
        let mut affinity = active
            .as_ref()
            .and_then(|_| CpuAffinity::new(&cpus, Instant::now()));
        let mut ready = [EpollEvent::empty(); READY_MAX];
        let mut done = None;
        let mut locked = lock(&lane);
        while locked.running {
            locked.worker = number;
            locked.now = Instant::now();
            locked.advance();
            let timeout = locked.timeout();
            let is_behind = !locked.backlog.is_empty();
            drop(locked);

            // A change of the affinity may make the thread wait for a CPU, so it must not hold the
            // lock.
            if let (Some(affinity), Some((work, at))) = (&mut affinity, done.take()) {
                affinity.handle_wake_up(work, at);
            }
            // An unpinned worker stays active after a burst, since it may run on any free CPU.
            let is_pinned = affinity.as_ref().is_none_or(CpuAffinity::is_pinned);
            let active = active.as_ref().filter(|_| is_pinned && !is_behind);
            let count = match wait(&epoll, active, &mut ready, timeout) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(error) => return Err(Error::Wait(error)),
            };

            locked = lock(&lane);
            locked.worker = number;
            locked.alarm.handle_wake_up(number);
            locked.now = Instant::now();
            let before = locked.work();
            let mut has_read = false;
            for event in &ready[..count] {
                match event.data() {
                    ports::TAP => {
                        locked.read_tap()?;
                        has_read = true;
                    }
                    ports::WAKE => locked.handle_commands(),
                    port => locked.receive(ports::id(port)),
                }
            }
            if !has_read && !locked.backlog.is_empty() {
                locked.read_tap()?;
            }
            done = Some((locked.work().since(before), locked.now));
        }
        locked.ports.wake(); // Wakes the next worker, which stops and wakes another one.

        Ok(())
    }
}

/// Waits for ready descriptors, at most for `timeout`.
///
/// Before the thread sleeps, reports that the worker has taken all packets of the burst.
fn wait(
    epoll: &Epoll,
    active: Option<&ActiveWorker>,
    ready: &mut [EpollEvent],
    timeout: EpollTimeout,
) -> Result<usize, Errno> {
    if let Some((active, last)) = active.and_then(|active| Some((active, active.last()?))) {
        // If a packet received up to `last` is still unread, its descriptor is ready now.
        let count = epoll.wait(ready, EpollTimeout::ZERO)?;
        if count > 0 {
            return Ok(count);
        }
        active.take(last);
    }

    epoll.wait(ready, timeout)
}
