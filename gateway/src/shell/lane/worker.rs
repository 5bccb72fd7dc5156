//! A thread of a lane. A lane has one for each group of CPUs, so that a packet is served where it
//! comes up; whose turn it is, the kernel programs decide (`ebpf/program/src/turn.rs`). All of a
//! burst is one worker's, so nothing is won by two of them at once: they exclude each other.

use super::near::Near;
use super::ports::{self, READY_MAX};
use super::turn::Turn;
use super::{Error, Lane};
use crate::shell::state::lock;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::epoll::{Epoll, EpollEvent, EpollTimeout};
use nix::unistd::Pid;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// One of a lane's threads, before it runs.
pub(crate) struct Worker {
    number: usize,
    lane: Arc<Mutex<Lane>>,
    epoll: Arc<Epoll>,
    turn: Option<Turn>,
    /// The CPUs that it serves.
    home: Vec<usize>,
}

/// Returns the CPUs that this process may run on, in groups of equal size, one for each of `of`
/// workers.
pub(crate) fn cpus(of: usize) -> Vec<Vec<usize>> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let all: Vec<usize> = (0..CpuSet::count())
        .filter(|cpu| allowed.is_set(*cpu) == Ok(true))
        .collect();

    (0..of)
        .map(|worker| all[worker * all.len() / of..(worker + 1) * all.len() / of].to_vec())
        .collect()
}

impl Worker {
    /// Creates all workers of a lane; `homes` and `turns` are theirs, in their order.
    pub(crate) fn all(lane: Lane, homes: Vec<Vec<usize>>, turns: Vec<Option<Turn>>) -> Vec<Self> {
        let epolls = lane.ports.epolls();
        let lane = Arc::new(Mutex::new(lane));

        (epolls.into_iter().zip(homes).zip(turns).enumerate())
            .map(|(number, ((epoll, home), turn))| Self {
                number,
                lane: Arc::clone(&lane),
                epoll,
                turn,
                home,
            })
            .collect()
    }

    /// Moves packets until [`Command::Stop`](super::Command::Stop).
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the TAP is gone.
    pub(crate) fn run(self) -> Result<(), Error> {
        let Self {
            number,
            lane,
            epoll,
            turn,
            home,
        } = self;
        let mut near = (turn.as_ref()).and_then(|_| Near::new(&home, Instant::now()));
        let mut ready = [EpollEvent::empty(); READY_MAX];
        let mut woken = None;
        let mut at_work = lock(&lane);
        while at_work.running {
            at_work.worker = number;
            at_work.now = Instant::now();
            at_work.advance();
            let timeout = at_work.timeout();
            drop(at_work);

            // Now that others may work: it may have to wait for a CPU.
            if let (Some(near), Some((moved, at))) = (&mut near, woken.take()) {
                near.handle_wake_up(moved, at);
            }
            // A burst is moved by one worker, and where there is room, not where it comes up.
            let is_home = near.as_ref().is_none_or(Near::is_home);
            let turn = turn.as_ref().filter(|_| is_home);
            let count = match wait(&epoll, turn, &mut ready, timeout) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(error) => return Err(Error::Wait(error)),
            };

            at_work = lock(&lane);
            at_work.worker = number;
            at_work.alarm.handle_wake_up(number);
            at_work.now = Instant::now();
            let before = at_work.moved();
            for event in &ready[..count] {
                match event.data() {
                    ports::TAP => at_work.read_tap()?,
                    ports::WAKE => at_work.obey(),
                    port => at_work.receive(ports::id(port)),
                }
            }
            woken = Some((at_work.moved().since(before), at_work.now));
        }
        at_work.ports.wake(); // The next of them, until all have seen it.

        Ok(())
    }
}

/// Waits; says before it sleeps that all is taken, if so.
fn wait(
    epoll: &Epoll,
    turn: Option<&Turn>,
    ready: &mut [EpollEvent],
    timeout: EpollTimeout,
) -> Result<usize, Errno> {
    if let Some((turn, last)) = turn.and_then(|turn| turn.last().map(|last| (turn, last))) {
        // What came until then is seen here, if it is there still.
        let count = epoll.wait(ready, EpollTimeout::ZERO)?;
        if count > 0 {
            return Ok(count);
        }
        turn.take(last);
    }

    epoll.wait(ready, timeout)
}
