//! When a worker leaves its CPUs, and when it comes back: decisions over counters and times.

use std::time::{Duration, Instant};

/// Packets and bytes that a wake-up may move to count as little.
const PACKETS_MAX: u64 = 2;
const BYTES_MAX: u64 = 2048;

/// So many wake-ups in a row must have moved little, and for so long, before the worker comes
/// back: to move a thread costs, too.
const CALM: (u32, Duration) = (16, Duration::from_millis(20));

/// After so many, and after so long, it is looked how long it had to wait.
const LOOK: (u32, Duration) = (64, Duration::from_millis(100));

/// The mean wait for the CPU, of the wake-ups between two looks, that is too long.
const WAIT_MAX: Duration = Duration::from_micros(250);

/// After how long without a packet the worker comes back.
const QUIET: Duration = Duration::from_secs(1);

/// How long to stay away from a CPU that others want.
const REST: Duration = Duration::from_secs(3);

/// What a wake-up, or a lane since it began, has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Moved {
    /// Packets from and to the TAP.
    pub(in super::super) packets: u64,
    /// Their bytes.
    pub(in super::super) bytes: u64,
}

impl Moved {
    /// Returns what was moved after `before`.
    pub(in super::super) fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
        }
    }
}

/// What the worker is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// Nothing.
    Stay,
    /// Look how long it has waited for a CPU.
    Look,
    /// Run on its own CPUs only.
    Return,
    /// Run anywhere.
    Leave,
}

/// When to be where.
#[derive(Debug)]
pub(super) struct Pace {
    is_away: bool,
    last_packet: Instant,
    /// Wake-ups that moved little, one after the other, and since when.
    calm: u32,
    since: Instant,
    /// How long it had waited when it was looked last.
    waited: Option<Duration>,
    rest_until: Option<Instant>,
}

impl Pace {
    /// Starts with a worker that runs on its own CPUs.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            is_away: false,
            last_packet: now,
            calm: 0,
            since: now,
            waited: None,
            rest_until: None,
        }
    }

    /// Returns whether the worker runs on its own CPUs only.
    pub(super) fn is_home(&self) -> bool {
        !self.is_away
    }

    /// Learns what a wake-up has moved.
    pub(super) fn handle_wake_up(&mut self, moved: Moved, now: Instant) -> Advice {
        if moved.packets == 0 {
            // A timer, a probe: whoever wants the CPU meanwhile would not be noticed.
            let is_over = now.saturating_duration_since(self.last_packet) >= QUIET;
            return if is_over {
                self.come_back(now)
            } else {
                Advice::Stay
            };
        }
        self.last_packet = now;
        if moved.packets > PACKETS_MAX || moved.bytes > BYTES_MAX {
            self.start_over(now);
            return self.leave();
        }

        self.calm = self.calm.saturating_add(1);
        let (wake_ups, calm) = if self.is_away { CALM } else { LOOK };
        if self.calm < wake_ups || now.saturating_duration_since(self.since) < calm {
            return Advice::Stay;
        }
        if self.is_away {
            return self.come_back(now);
        }
        Advice::Look
    }

    /// Learns how long the worker has waited for a CPU since it began, if the kernel tells.
    pub(super) fn handle_look(&mut self, waited: Option<Duration>, now: Instant) -> Advice {
        let before = std::mem::replace(&mut self.waited, waited);
        let wake_ups = self.calm.max(1);
        self.start_over(now);
        let (Some(before), Some(waited)) = (before, waited) else {
            return Advice::Stay;
        };
        if waited.saturating_sub(before) / wake_ups <= WAIT_MAX {
            return Advice::Stay;
        }
        self.rest_until = Some(now + REST);
        self.leave()
    }

    fn leave(&mut self) -> Advice {
        if std::mem::replace(&mut self.is_away, true) {
            return Advice::Stay;
        }
        Advice::Leave
    }

    fn come_back(&mut self, now: Instant) -> Advice {
        if !self.is_away || self.rest_until.is_some_and(|until| now < until) {
            return Advice::Stay;
        }
        self.is_away = false;
        self.waited = None;
        self.start_over(now);
        Advice::Return
    }

    fn start_over(&mut self, now: Instant) {
        self.calm = 0;
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker under simulated time.
    struct Worker {
        pace: Pace,
        now: Instant,
        waited: Duration,
    }

    impl Worker {
        fn new() -> Self {
            let now = Instant::now();
            Self {
                pace: Pace::new(now),
                now,
                waited: Duration::ZERO,
            }
        }

        fn moves(&mut self, packets: u64) -> Advice {
            self.now += Duration::from_millis(2);
            let moved = Moved {
                packets,
                bytes: packets * 84,
            };
            match self.pace.handle_wake_up(moved, self.now) {
                Advice::Look => self.pace.handle_look(Some(self.waited), self.now),
                advice @ (Advice::Stay | Advice::Return | Advice::Leave) => advice,
            }
        }

        /// Moves single packets, and returns all advice but to stay.
        fn is_calm(&mut self, wake_ups: u32) -> Vec<Advice> {
            let advice = (0..wake_ups).map(|_| self.moves(1));
            advice.filter(|it| *it != Advice::Stay).collect()
        }
    }

    #[test]
    fn a_calm_worker_stays() {
        assert_eq!(Worker::new().is_calm(10_000), []);
    }

    #[test]
    fn a_burst_sets_it_free_at_once_and_calm_brings_it_back() {
        let mut it = Worker::new();

        assert_eq!(it.moves(PACKETS_MAX + 1), Advice::Leave);
        assert_eq!(it.moves(PACKETS_MAX + 1), Advice::Stay);
        assert_eq!(it.is_calm(CALM.0 - 1), []);
        assert_eq!(it.moves(PACKETS_MAX + 1), Advice::Stay);
        assert_eq!(it.is_calm(1000), [Advice::Return]);
    }

    #[test]
    fn silence_brings_it_back() {
        let mut it = Worker::new();
        it.moves(PACKETS_MAX + 1);

        let silent: Vec<_> = (0..QUIET.as_millis()).map(|_| it.moves(0)).collect();
        assert_eq!(silent.iter().filter(|it| **it == Advice::Return).count(), 1);
        assert_eq!(silent[0], Advice::Stay);
    }

    #[test]
    fn many_wake_ups_in_a_moment_are_no_calm() {
        let mut it = Worker::new();
        it.moves(PACKETS_MAX + 1);
        let now = it.now;
        let moved = Moved {
            packets: 1,
            bytes: 84,
        };

        for _ in 1..10_000 {
            assert_eq!(it.pace.handle_wake_up(moved, now), Advice::Stay);
        }
    }

    #[test]
    fn cpus_that_others_want_are_left_for_a_while() {
        let mut it = Worker::new();
        it.is_calm(1000);

        it.waited += WAIT_MAX * 4 * LOOK.0;
        assert_eq!(it.is_calm(1000), [Advice::Leave]);
        assert_eq!(it.is_calm(500), []);
        assert_eq!(it.is_calm(2000), [Advice::Return]);
    }

    #[test]
    fn where_the_kernel_tells_nothing_it_stays() {
        let mut it = Worker::new();
        let now = it.now;

        assert_eq!(it.pace.handle_look(None, now), Advice::Stay);
        assert_eq!(it.pace.handle_look(None, now), Advice::Stay);
    }
}
