//! Access to the cache from other tasks.

use super::Cache;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// Reads the cache from any task, for example for an admission review.
///
/// A reader waits at most for the change of one object, never for planning or for a list.
#[derive(Clone, Default)]
pub struct CacheReader {
    pub(crate) cache: Arc<RwLock<Cache>>,
}

impl CacheReader {
    /// Returns the cache for as long as the guard lives. Keep it briefly: changes wait for it.
    pub fn read(&self) -> RwLockReadGuard<'_, Cache> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner)
    }
}
