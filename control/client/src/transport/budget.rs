//! Limits of the bytes in memory, per response and in total.
//!
//! A server decides when its responses end, so without a limit of their sum it could let every request of this
//! process hold a response of the largest length. A response beyond the sum fails; it does not wait, because
//! then responses in progress could wait for each other until their deadlines.

use super::kind::Kind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The largest response that is not a stream, in bytes. kube-apiserver's largest object is 3 MiB,
/// and lists are paged.
pub(super) const BODY_MAX: usize = 32 << 20;

/// The longest line of a watch, in bytes. A line contains one object.
pub(super) const LINE_MAX: usize = 4 << 20;

/// The largest sum of the responses in progress of one cluster, in bytes: several of the largest pages.
pub(super) const SUM_MAX: usize = 4 * BODY_MAX;

/// The server sent more than a response of this kind may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// The body of a response is too long.
    #[error("the API server sent a response of more than {BODY_MAX} bytes")]
    Body,

    /// A line of a watch is too long.
    #[error("the API server sent a watch event of more than {LINE_MAX} bytes")]
    Line,

    /// The responses in progress are too long together.
    #[error("the API server sent more than {SUM_MAX} bytes in all responses in progress")]
    Sum,
}

/// The bytes of all responses in progress of one cluster.
#[derive(Debug, Default)]
pub(super) struct Budget(AtomicUsize);

/// Counts the bytes of a response, as long as it is in progress, against the limits of its kind and of the sum.
#[derive(Debug)]
pub(super) struct Meter {
    kind: Kind,
    /// Bytes of the response, or of the present line of a watch.
    held: usize,
    budget: Arc<Budget>,
}

impl Meter {
    pub(super) fn new(kind: Kind, budget: Arc<Budget>) -> Self {
        let held = 0;
        Self { kind, held, budget }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Adds received bytes.
    ///
    /// # Errors
    ///
    /// Returns [`LimitError`] if the response exceeds a limit.
    pub(super) fn add(&mut self, data: &[u8]) -> Result<(), LimitError> {
        match self.kind {
            Kind::Log | Kind::Upgrade => Ok(()),
            Kind::Read | Kind::List | Kind::Write | Kind::Lease => {
                let total = self.held.saturating_add(data.len());
                if total > BODY_MAX {
                    return Err(LimitError::Body);
                }
                self.hold(total)
            }
            Kind::Watch => {
                let mut lines = data.split(|byte| *byte == b'\n').map(<[u8]>::len);
                let mut last = self.held + lines.next().unwrap_or_default();
                let mut longest = last;
                for line in lines {
                    longest = longest.max(line);
                    last = line;
                }
                if longest > LINE_MAX {
                    return Err(LimitError::Line);
                }
                self.hold(last)
            }
        }
    }

    /// Sets the bytes that the response holds.
    fn hold(&mut self, held: usize) -> Result<(), LimitError> {
        let sum = &self.budget.0;
        let growth = held.saturating_sub(self.held);
        let before = sum.fetch_add(growth, Ordering::Relaxed);
        sum.fetch_sub(self.held.saturating_sub(held), Ordering::Relaxed);
        self.held = held;
        if growth > 0 && before.saturating_add(growth) > SUM_MAX {
            return Err(LimitError::Sum);
        }
        Ok(())
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.held, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn meter(kind: Kind) -> Meter {
        Meter::new(kind, Arc::default())
    }

    #[test]
    fn a_response_may_have_exactly_the_largest_length() {
        let mut meter = meter(Kind::List);
        let mebibyte = vec![b'\n'; 1 << 20];

        for _ in 0..BODY_MAX >> 20 {
            assert_eq!(meter.add(&mebibyte), Ok(()));
        }

        assert_eq!(meter.add(b"x"), Err(LimitError::Body));
    }

    #[test]
    fn a_watch_is_limited_by_line_and_not_in_total() {
        let mut meter = meter(Kind::Watch);
        let mut line = vec![b'x'; LINE_MAX];
        line.push(b'\n');

        for _ in 0..SUM_MAX / LINE_MAX + 1 {
            assert_eq!(meter.add(&line), Ok(()));
        }

        assert_eq!(meter.add(&line[..LINE_MAX]), Ok(()));
        assert_eq!(meter.add(b"x"), Err(LimitError::Line));
    }

    #[test]
    fn all_responses_of_a_cluster_are_limited_together_until_they_end() {
        let budget = Arc::<Budget>::default();
        let line = vec![b'x'; LINE_MAX];
        let page = vec![b'x'; BODY_MAX];
        let new = |kind| Meter::new(kind, budget.clone());
        let mut watches: Vec<_> = (0..SUM_MAX / LINE_MAX).map(|_| new(Kind::Watch)).collect();
        for watch in &mut watches {
            assert_eq!(watch.add(&line), Ok(()));
        }

        let mut list = new(Kind::List);
        assert_eq!(list.add(b"x"), Err(LimitError::Sum));
        drop(list);

        for watch in watches.iter_mut().take(BODY_MAX / LINE_MAX) {
            assert_eq!(watch.add(b"\n"), Ok(()));
        }
        let mut list = new(Kind::List);
        assert_eq!(list.add(&page), Ok(()));
        drop((list, watches));
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }

    proptest! {
        #[test]
        fn the_limit_of_a_line_does_not_depend_on_frames(
            lengths in prop::collection::vec(0_usize..LINE_MAX * 5 / 4, 1..4),
            frame in 1_usize << 16..LINE_MAX,
        ) {
            let mut text = Vec::new();
            for length in &lengths {
                text.resize(text.len() + length, b'x');
                text.push(b'\n');
            }
            let mut meter = meter(Kind::Watch);

            let result = text.chunks(frame).try_for_each(|chunk| meter.add(chunk));

            let is_too_long = lengths.iter().any(|length| *length > LINE_MAX);
            prop_assert_eq!(result.is_err(), is_too_long);
        }
    }
}
