//! When the packet loop's thread changes its core: decisions over counters and times.

use std::time::{Duration, Instant};

/// Packets and bytes that a wake-up may move to count as little.
const PACKETS_MAX: u64 = 2;
const BYTES_MAX: u64 = 2048;

/// So many wake-ups in a row must have moved little before it is looked where to be, and again
/// after as many, or up to three times as many: two loops that send to each other must not
/// change places for ever.
const WAKE_UPS: u32 = 64;

/// How long they must have taken at least: to move a thread costs, too.
const CALM: Duration = Duration::from_millis(100);

/// The mean wait for the core, of the wake-ups since the last look, that is too long.
const WAIT_MAX: Duration = Duration::from_micros(50);

/// After how long without a packet the thread runs anywhere again.
const QUIET: Duration = Duration::from_secs(1);

/// How long to stay away from a core that others want.
const REST: Duration = Duration::from_secs(10);

/// What a loop has moved since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Moved {
    /// Packets from and to the TAP.
    pub(in super::super) packets: u64,
    /// Their bytes.
    pub(in super::super) bytes: u64,
}

/// What the thread is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// Nothing.
    Stay,
    /// Look where datagrams arrive.
    Look,
    /// Run on this core only.
    Move(u32),
    /// Run anywhere.
    Leave,
}

/// When to be where.
#[derive(Debug)]
pub(super) struct Pace {
    /// Of a generator whose only task is not to be in step with another process's.
    random: u64,
    seen: Moved,
    last_packet: Instant,
    /// Wake-ups that moved little, one after the other, and since when.
    calm: u32,
    since: Instant,
    /// When it is enough of them.
    enough: u32,
    /// On which core the thread is kept.
    kept: Option<u32>,
    /// How long it had waited when it was looked last.
    waited: Option<Duration>,
    rest_until: Option<Instant>,
}

impl Pace {
    /// Starts with a thread that runs anywhere; `seed` is any number.
    pub(super) fn new(seed: u64, now: Instant) -> Self {
        Self {
            // Not 0, and unlike for numbers that follow each other (Knuth's golden ratio).
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).max(1),
            seen: Moved::default(),
            last_packet: now,
            calm: 0,
            since: now,
            enough: WAKE_UPS,
            kept: None,
            waited: None,
            rest_until: None,
        }
    }

    /// Learns what a wake-up has moved.
    pub(super) fn handle_wake_up(&mut self, moved: Moved, now: Instant) -> Advice {
        let packets = moved.packets - self.seen.packets;
        let bytes = moved.bytes - self.seen.bytes;
        self.seen = moved;
        if packets == 0 {
            // A timer, a probe: whoever takes the core meanwhile would not be noticed.
            let is_over = now.saturating_duration_since(self.last_packet) >= QUIET;
            return if is_over { self.leave() } else { Advice::Stay };
        }
        self.last_packet = now;

        if packets > PACKETS_MAX || bytes > BYTES_MAX {
            self.start_over(now);
            return self.leave();
        }
        self.calm = self.calm.saturating_add(1);
        let is_enough = self.calm >= self.enough && now.duration_since(self.since) >= CALM;
        if is_enough && self.rest_until.is_none_or(|until| now >= until) {
            return Advice::Look;
        }
        Advice::Stay
    }

    /// Learns on which CPU datagrams arrive, and how long the thread has waited for a core
    /// since it began.
    pub(super) fn handle_look(
        &mut self,
        cpu: Option<u32>,
        waited: Option<Duration>,
        now: Instant,
    ) -> Advice {
        let before = std::mem::replace(&mut self.waited, waited);
        let wake_ups = self.calm.max(1);
        self.start_over(now);
        let (Some(cpu), Some(waited)) = (cpu, waited) else {
            return self.leave();
        };
        if self.kept.is_some()
            && before.is_some_and(|before| (waited.saturating_sub(before)) / wake_ups > WAIT_MAX)
        {
            self.rest_until = Some(now + REST);
            return self.leave();
        }

        if self.kept == Some(cpu) {
            return Advice::Stay;
        }
        self.kept = Some(cpu);
        Advice::Move(cpu)
    }

    fn leave(&mut self) -> Advice {
        match self.kept.take() {
            Some(_) => Advice::Leave,
            None => Advice::Stay,
        }
    }

    fn start_over(&mut self, now: Instant) {
        // Marsaglia's xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let more = u32::try_from(self.random % u64::from(2 * WAKE_UPS)).unwrap_or_default();
        self.enough = WAKE_UPS + more;
        self.calm = 0;
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Option<Duration> = Some(Duration::ZERO);

    /// A loop under simulated time.
    struct Loop {
        pace: Pace,
        moved: Moved,
        now: Instant,
        waited: Duration,
    }

    impl Loop {
        fn new(seed: u64) -> Self {
            let now = Instant::now();
            Self {
                pace: Pace::new(seed, now),
                moved: Moved::default(),
                now,
                waited: Duration::ZERO,
            }
        }

        fn moves(&mut self, packets: u64, arrival: u32) -> Advice {
            self.now += Duration::from_millis(1);
            self.moved.packets += packets;
            self.moved.bytes += packets * 84;
            match self.pace.handle_wake_up(self.moved, self.now) {
                Advice::Look => {
                    let waited = Some(self.waited);
                    self.pace.handle_look(Some(arrival), waited, self.now)
                }
                advice @ (Advice::Stay | Advice::Move(_) | Advice::Leave) => advice,
            }
        }

        /// Moves single packets, and returns all advice but to stay.
        fn is_calm(&mut self, wake_ups: u32, arrival: u32) -> Vec<Advice> {
            let advice = (0..wake_ups).map(|_| self.moves(1, arrival));
            advice.filter(|it| *it != Advice::Stay).collect()
        }
    }

    #[test]
    fn a_calm_loop_goes_where_datagrams_arrive_and_stays() {
        let mut it = Loop::new(7);

        assert_eq!(it.is_calm(1000, 3), [Advice::Move(3)]);
        assert_eq!(it.is_calm(1000, 5), [Advice::Move(5)]);
    }

    #[test]
    fn a_burst_sets_it_free_at_once() {
        let mut it = Loop::new(7);
        it.is_calm(1000, 3);

        assert_eq!(it.moves(PACKETS_MAX + 1, 3), Advice::Leave);
        assert_eq!(it.moves(PACKETS_MAX + 1, 3), Advice::Stay);
        assert_eq!(it.is_calm(WAKE_UPS - 1, 3), []);
        assert_eq!(it.is_calm(1000, 3), [Advice::Move(3)]);
    }

    #[test]
    fn silence_sets_it_free() {
        let mut it = Loop::new(7);
        it.is_calm(1000, 3);

        let silent: Vec<_> = (0..2 * QUIET.as_millis()).map(|_| it.moves(0, 3)).collect();
        assert_eq!(silent.iter().filter(|it| **it == Advice::Leave).count(), 1);
        assert_eq!(it.is_calm(1000, 3), [Advice::Move(3)]);
    }

    #[test]
    fn many_wake_ups_in_a_moment_are_no_calm() {
        let mut it = Loop::new(7);
        let now = it.now;

        for count in 1..10_000 {
            it.moved.packets = count;
            assert_eq!(it.pace.handle_wake_up(it.moved, now), Advice::Stay);
        }
    }

    #[test]
    fn a_core_that_others_want_is_left_for_a_while() {
        let mut it = Loop::new(7);
        it.is_calm(1000, 3);

        it.waited += WAIT_MAX * 4 * WAKE_UPS;
        assert_eq!(it.is_calm(1000, 3), [Advice::Leave]);
        assert_eq!(it.is_calm(8000, 3), []);
        assert_eq!(it.is_calm(2000, 3), [Advice::Move(3)]);
    }

    #[test]
    fn where_the_kernel_tells_nothing_nothing_is_done() {
        let mut it = Loop::new(7);
        it.is_calm(1000, 3);
        let now = it.now;

        assert_eq!(it.pace.handle_look(None, NEVER, now), Advice::Leave);
        assert_eq!(it.pace.handle_look(Some(3), None, now), Advice::Stay);
    }

    #[test]
    fn two_that_send_to_each_other_do_not_change_places_for_ever() {
        for seeds in [(1, 2), (100, 101), (4242, 9000)] {
            let mut loops = [Loop::new(seeds.0), Loop::new(seeds.1)];
            let mut at = [0, 1];
            let mut moves = 0;
            for _ in 0..10_000 {
                let advice = [loops[0].moves(1, at[1]), loops[1].moves(1, at[0])];
                for (at, advice) in at.iter_mut().zip(advice) {
                    if let Advice::Move(cpu) = advice {
                        moves += u32::from(*at != cpu);
                        *at = cpu;
                    }
                }
            }

            assert_eq!(at[0], at[1]);
            assert!(moves <= 8, "{moves}");
        }
    }
}
