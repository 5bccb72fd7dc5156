//! Whether messages under a key arrive, and arrive still.
//!
//! All probes but one pass as WireGuard's messages, so a network that begins to drop ours, or a peer
//! that lost the key, would take all data and leave the session alive. So a question goes as data goes:
//! before the key is used, and again and again while it is.

use std::time::{Duration, Instant};

/// The shortest pause between an answer and the next question, while there is data.
const PAUSE: Duration = Duration::from_millis(500);

/// The same while there is little: fewer than [`LITTLE`] messages since the answer. Nodes ask each other
/// through idle sessions, too, which must stay cheap.
const PAUSE_LITTLE: Duration = Duration::from_secs(5);
const LITTLE: u64 = 8;

/// The shortest time that an answer is given before the question is put again.
const PATIENCE: Duration = Duration::from_millis(200);

/// How often a question is put in vain until data takes the other way.
const DOUBTED: u8 = 2;

/// How often it is put at most: a firewall that drops it will not change its mind.
const QUESTIONS_MAX: u8 = 20;

/// What is known of one key.
#[derive(Debug, Default)]
pub(super) struct Proof {
    is_given: bool,
    /// The time stamp of the last question, which no other has.
    sent: Option<i128>,
    /// That question, until it is answered.
    open: Option<Open>,
    /// When the last answer came.
    answered: Option<Instant>,
    /// How many messages had been sealed then.
    sealed: u64,
}

#[derive(Debug)]
struct Open {
    times: u8,
    last: Instant,
}

impl Proof {
    /// Returns whether messages arrive, for all that is known.
    pub(super) fn is_given(&self) -> bool {
        self.is_given
    }

    /// Returns the time stamp of the question to put, if one is due: `fresh` if it is a new one. So far
    /// `sealed` messages were sealed by the key; a round trip takes about `rtt`.
    pub(super) fn poll(
        &mut self,
        sealed: u64,
        fresh: i128,
        rtt: Duration,
        now: Instant,
    ) -> Option<i128> {
        let over = |since: Instant, least: Duration| {
            now.saturating_duration_since(since) >= least.max(rtt * 2)
        };
        match &mut self.open {
            Some(open) if open.times >= QUESTIONS_MAX => return None,
            Some(open) if self.is_given && !over(open.last, PATIENCE) => return None,
            Some(open) => {
                self.is_given &= open.times < DOUBTED;
                open.times += 1;
                open.last = now;
            }
            None => {
                let pause = match sealed.saturating_sub(self.sealed) {
                    0 if self.is_given => return None,
                    1..LITTLE => PAUSE_LITTLE,
                    _ => PAUSE,
                };
                if self.answered.is_some_and(|at| !over(at, pause)) {
                    return None;
                }
                self.sent = Some(fresh);
                self.open = Some(Open {
                    times: 1,
                    last: now,
                });
            }
        }

        self.sent
    }

    /// Handles the answer to the question of the time stamp `sent`; returns whether that is one of these.
    pub(super) fn handle_answer(&mut self, sent: i128, sealed: u64, now: Instant) -> bool {
        if self.sent != Some(sent) {
            return false;
        }
        // It may have been put, and be answered, more than once.
        if self.open.take().is_some() {
            self.is_given = true;
            self.answered = Some(now);
            self.sealed = sealed;
        }

        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const RTT: Duration = Duration::from_millis(10);
    /// Messages that were sealed when there is more than little since the answer that gave it.
    const MUCH: u64 = 1 + LITTLE;

    /// A proof that was given by the question 1, and when.
    fn given() -> (Proof, Instant) {
        let mut proof = Proof::default();
        let now = Instant::now();
        assert_eq!(proof.poll(0, 1, RTT, now), Some(1));
        assert!(proof.handle_answer(1, 1, now));
        (proof, now)
    }

    #[test]
    fn it_is_asked_for_until_it_is_given_or_in_vain() {
        let mut proof = Proof::default();
        let now = Instant::now();

        for fresh in 0..i128::from(QUESTIONS_MAX) {
            assert_eq!(proof.poll(0, 7 + fresh, RTT, now), Some(7), "the same");
            assert!(!proof.is_given());
        }
        assert_eq!(proof.poll(0, 99, RTT, now), None, "it is given up");

        assert!(!proof.handle_answer(8, 20, now), "another question's");
        assert!(!proof.is_given());
        assert!(proof.handle_answer(7, 20, now), "late is not never");
        assert!(proof.is_given());
        assert!(proof.handle_answer(7, 20, now), "it was put more than once");
    }

    #[test]
    fn it_is_asked_for_again_while_there_is_data_only() {
        let (mut proof, start) = given();

        for second in 1..100 {
            assert_eq!(proof.poll(1, 2, RTT, start + second * 1_000 * MS), None);
        }
        assert_eq!(proof.poll(MUCH, 2, RTT, start + PAUSE - MS), None, "early");
        assert_eq!(proof.poll(MUCH, 2, RTT, start + PAUSE), Some(2));
        assert!(proof.is_given(), "no doubt yet");
    }

    #[test]
    fn it_is_asked_for_seldom_while_there_is_little() {
        for little in [2, LITTLE] {
            let (mut proof, start) = given();

            let early = start + PAUSE_LITTLE - MS;
            assert_eq!(proof.poll(little, 2, RTT, early), None);
            assert_eq!(proof.poll(little, 2, RTT, start + PAUSE_LITTLE), Some(2));
        }
    }

    #[test]
    fn two_questions_in_vain_end_it_and_an_answer_to_any_brings_it_back() {
        let (mut proof, start) = given();
        let now = start + PAUSE;
        assert_eq!(proof.poll(MUCH, 2, RTT, now), Some(2));

        assert_eq!(proof.poll(MUCH, 3, RTT, now + PATIENCE - MS), None);
        assert_eq!(proof.poll(MUCH, 3, RTT, now + PATIENCE), Some(2));
        assert!(proof.is_given());
        assert_eq!(proof.poll(MUCH, 3, RTT, now + PATIENCE * 2), Some(2));
        assert!(!proof.is_given());

        assert!(proof.handle_answer(2, 12, now + PATIENCE * 2));
        assert!(proof.is_given());
    }

    #[test]
    fn a_long_way_is_given_its_time() {
        let (mut proof, start) = given();
        let rtt = 600 * MS;

        assert_eq!(proof.poll(MUCH, 2, rtt, start + rtt * 2 - MS), None);
        let now = start + rtt * 2;
        assert_eq!(proof.poll(MUCH, 2, rtt, now), Some(2));
        assert_eq!(proof.poll(MUCH, 3, rtt, now + rtt * 2 - MS), None);
        assert!(proof.is_given());
    }
}
