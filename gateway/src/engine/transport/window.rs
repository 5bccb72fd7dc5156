//! Which messages were taken already (RFC 6479).

use crate::engine::drops::Drop;
use crate::mutant;

/// Bits are kept in a ring of words; the word of the newest message is partly used.
const WORDS: usize = 64;
const WORD_BITS: u64 = u64::BITS as u64;

/// How far behind the newest message one may come.
const SIZE: u64 = (WORDS as u64 - 1) * WORD_BITS;

/// The counters of the messages that were taken under one key.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// The counter after the newest one.
    next: u64,
    words: [u64; WORDS],
}

impl Default for Window {
    fn default() -> Self {
        Self {
            next: 0,
            words: [0; WORDS],
        }
    }
}

impl Window {
    /// Tells whether a message may be taken.
    ///
    /// # Errors
    ///
    /// Returns [`Drop::Replayed`] if it was taken, or is too old to know.
    #[inline]
    pub(super) fn check(&self, counter: u64) -> Result<(), Drop> {
        let is_new = counter >= self.next
            || self.next - counter <= SIZE && self.words[word(counter)] & bit(counter) == 0;
        if is_new || mutant::disables("replay-window") {
            return Ok(());
        }

        Err(Drop::Replayed)
    }

    /// Notes that a message was taken, which [`Window::check`] allowed.
    #[inline]
    pub(super) fn take(&mut self, counter: u64) {
        if counter >= self.next {
            let newest = self.next.saturating_sub(1) / WORD_BITS;
            let fresh = (counter / WORD_BITS - newest).min(WORDS as u64);
            for ahead in 1..=fresh {
                self.words[word((newest + ahead) * WORD_BITS)] = 0;
            }
            self.next = counter + 1;
        }
        self.words[word(counter)] |= bit(counter);
    }
}

#[inline]
fn word(counter: u64) -> usize {
    (counter / WORD_BITS) as usize % WORDS
}

#[inline]
fn bit(counter: u64) -> u64 {
    1 << (counter % WORD_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Counters near each other, and sometimes far ahead.
    fn steps() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let ahead = prop_oneof![
            8 => 0..3_u64,
            2 => 0..200_u64,
            1 => 0..3 * SIZE,
            1 => 0..1_u64 << 39,
        ];
        prop::collection::vec((ahead, 0..2 * SIZE), 1..300)
    }

    proptest! {
        #[test]
        fn each_is_taken_once_and_none_that_is_too_old(steps in steps()) {
            let mut window = Window::default();
            let mut taken = BTreeSet::new();
            let mut newest = 0;

            for (ahead, behind) in steps {
                newest += ahead;
                // The newest, one of before, and those at the border of what is known.
                for counter in [Some(newest), newest.checked_sub(behind), (newest + 1).checked_sub(SIZE), newest.checked_sub(SIZE)] {
                    let Some(counter) = counter else { continue };
                    let last = taken.last().copied();
                    let expected = !taken.contains(&counter)
                        && last.is_none_or(|last: u64| last < counter + SIZE);

                    prop_assert_eq!(window.check(counter).is_ok(), expected, "{} after {:?}", counter, last);
                    if expected {
                        window.take(counter);
                        taken.insert(counter);
                    }
                }
            }
        }
    }

    #[test]
    fn a_message_may_come_as_late_as_the_window_is_long() {
        let mut window = Window::default();
        window.take(SIZE + 10);

        assert_eq!(window.check(11), Ok(()));
        assert_eq!(window.check(10), Err(Drop::Replayed));
        window.take(11);
        assert_eq!(window.check(11), Err(Drop::Replayed));
    }
}
