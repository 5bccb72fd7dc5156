//! Work items of a controller that other tasks add, because something outside of the cache has changed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Adds work items of one controller from other tasks. [`Runtime::add`](crate::Runtime::add) returns it.
///
/// The task and the controller share a state. The task changes the state first, then adds the item.
#[derive(Clone, Debug)]
pub struct Injector<I> {
    /// The items that the runtime has not taken yet.
    items: Arc<Mutex<BTreeSet<I>>>,
    wake: Arc<Notify>,
}

impl<I: Ord> Injector<I> {
    pub(crate) fn new(wake: Arc<Notify>) -> Self {
        let items = Arc::default();
        Self { items, wake }
    }

    /// Has an item planned, once the controller has started. One that is not taken yet is added once, so
    /// there are at most as many as the controller has items.
    pub fn push(&self, item: I) {
        self.lock().insert(item);
        self.wake.notify_one();
    }

    pub(crate) fn take(&self) -> BTreeSet<I> {
        std::mem::take(&mut *self.lock())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<I>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
