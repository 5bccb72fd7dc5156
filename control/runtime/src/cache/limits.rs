//! How much of a cluster the cache keeps.

use control_client::watch::WatchId;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Interval at which the objects of a cluster are listed again because some were rejected.
const RELIST_INTERVAL: Duration = Duration::from_secs(60);

/// Upper limits of what the cache keeps of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Number of objects.
    pub objects: usize,
    /// Sum of the sizes of the objects, in bytes: the lengths of their JSON, or more if they have many nested objects.
    pub bytes: usize,
}

impl CacheLimits {
    /// Limits of the local cluster, which is trusted.
    pub const LOCAL: Self = Self {
        objects: usize::MAX,
        bytes: usize::MAX,
    };
    /// Limits of a peer.
    pub const REMOTE: Self = Self {
        objects: 100_000,
        bytes: 256 << 20,
    };
}

/// Cached objects and bytes of one cluster, with their limits.
#[derive(Debug)]
pub(super) struct Usage {
    pub(super) limits: CacheLimits,
    pub(super) objects: usize,
    pub(super) bytes: usize,
    /// Watches whose objects exceeded the limits.
    pub(super) rejected: BTreeSet<WatchId>,
    /// Number of objects that exceeded the limits, since it was reported.
    pub(super) rejections: u64,
    relisted_at: Option<Instant>,
}

impl Usage {
    pub(super) fn new(limits: CacheLimits) -> Self {
        Self {
            limits,
            objects: 0,
            bytes: 0,
            rejected: BTreeSet::new(),
            rejections: 0,
            relisted_at: None,
        }
    }

    /// Adds an object of `size` bytes in place of one of `old` bytes, unless it exceeds the limits.
    pub(super) fn replace(&mut self, old: Option<usize>, size: usize) -> Result<(), CacheLimits> {
        let objects = self.objects + usize::from(old.is_none());
        let bytes = (self.bytes + size).saturating_sub(old.unwrap_or_default());
        if objects > self.limits.objects || bytes > self.limits.bytes {
            self.rejections += 1;
            return Err(self.limits);
        }
        (self.objects, self.bytes) = (objects, bytes);
        Ok(())
    }

    pub(super) fn remove(&mut self, size: usize) {
        self.objects = self.objects.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(size);
    }

    /// Takes the watches whose rejected objects may fit now, because a tenth of the limits is free.
    pub(super) fn relistable(&mut self, now: Instant) -> BTreeSet<WatchId> {
        let is_early = (self.relisted_at).is_some_and(|at| now < at + RELIST_INTERVAL);
        let has_room = self.objects <= self.limits.objects / 10 * 9
            && self.bytes <= self.limits.bytes / 10 * 9;
        if self.rejected.is_empty() || is_early || !has_room {
            return BTreeSet::new();
        }
        self.relisted_at = Some(now);
        std::mem::take(&mut self.rejected)
    }
}
