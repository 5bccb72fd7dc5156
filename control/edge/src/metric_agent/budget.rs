//! Limits of the memory for samples: of one scrape, and of all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An amount of memory that several shares use.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    used: Arc<AtomicUsize>,
    limit: usize,
}

/// The samples exceed a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the samples exceed {limit} bytes: see --memory-max and --scrape-memory-max")]
pub(super) struct Exceeded {
    pub(super) limit: usize,
}

/// Memory that is used until this value is dropped.
#[derive(Debug)]
pub(super) struct Share {
    budgets: [Budget; 2],
    len: usize,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            used: Arc::default(),
            limit,
        }
    }

    /// Returns a share of two budgets, without memory yet.
    pub(super) fn share(&self, other: &Self) -> Share {
        Share {
            budgets: [self.clone(), other.clone()],
            len: 0,
        }
    }

    /// Returns the memory in use, in bytes.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl Share {
    /// Lets the share use `len` bytes, which is at least as much as before.
    ///
    /// # Errors
    ///
    /// Returns the limit that is exceeded. The share then counts as it is, until it is dropped.
    pub(super) fn resize(&mut self, len: usize) -> Result<(), Exceeded> {
        let more = len.saturating_sub(self.len);
        self.len += more;
        let mut exceeded = None;
        for budget in &self.budgets {
            let used = budget.used.fetch_add(more, Ordering::Relaxed) + more;
            if used > budget.limit {
                exceeded = Some(budget.limit);
            }
        }

        exceeded.map_or(Ok(()), |limit| Err(Exceeded { limit }))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        for budget in &self.budgets {
            budget.used.fetch_sub(self.len, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_scrape_leaves_memory_for_others_and_a_dropped_share_is_free() {
        let all = Budget::new(10);
        let [first, second] = [(); 2].map(|()| all.share(&Budget::new(6)));
        let (mut first, mut second) = (first, second);

        assert_eq!(first.resize(6), Ok(()));
        assert_eq!(first.resize(7), Err(Exceeded { limit: 6 }));
        assert_eq!(second.resize(4), Err(Exceeded { limit: 10 }));
        drop(first);
        assert_eq!(second.resize(4), Ok(()));

        drop(second);
        assert_eq!(all.used(), 0);
    }
}
