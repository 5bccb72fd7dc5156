//! How many scrapes are in progress, in total and by consumer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Scrapes in progress. Clones share them. Consumers without scrapes take no memory.
#[derive(Clone, Debug)]
pub(super) struct InProgress {
    total_max: usize,
    per_consumer_max: usize,
    scrapes: Arc<Mutex<BTreeMap<String, usize>>>,
}

/// A scrape, until this value is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    in_progress: InProgress,
    consumer: String,
}

/// A limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy;

impl InProgress {
    pub(super) fn new(total_max: usize, per_consumer_max: usize) -> Self {
        Self {
            total_max,
            per_consumer_max,
            scrapes: Arc::default(),
        }
    }

    /// Begins a scrape.
    ///
    /// # Errors
    ///
    /// Returns [`Busy`] if there are too many.
    pub(super) fn begin(&self, consumer: &str) -> Result<Slot, Busy> {
        let mut scrapes = self.lock();
        let of_consumer = scrapes.get(consumer).copied().unwrap_or_default();
        let total: usize = scrapes.values().sum();
        if of_consumer >= self.per_consumer_max || total >= self.total_max {
            return Err(Busy);
        }
        scrapes.insert(consumer.to_owned(), of_consumer + 1);

        Ok(Slot {
            in_progress: self.clone(),
            consumer: consumer.to_owned(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.scrapes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut scrapes = self.in_progress.lock();
        match scrapes.get_mut(&self.consumer) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => {
                scrapes.remove(&self.consumer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_consumer_leaves_scrapes_for_others() {
        let in_progress = InProgress::new(3, 2);

        let rome = [(); 2].map(|()| in_progress.begin("rome").unwrap());
        assert_eq!(in_progress.begin("rome").unwrap_err(), Busy);
        let milan = in_progress.begin("milan").unwrap();
        assert_eq!(in_progress.begin("turin").unwrap_err(), Busy);
        drop(rome);
        let rome = in_progress.begin("rome").unwrap();

        drop((rome, milan));
        assert!(in_progress.lock().is_empty());
    }
}
