//! Outcomes of requests that the next plan of a name needs. None of them has to survive the process.

use super::demand::Demand;
use super::pod::Removed;
use control_api::ShadowPod;
use control_runtime::Key;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The outcomes for one name.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// When the creation of the pod was requested, while its outcome is unknown.
    pub(super) sent: Option<Instant>,
    /// Reason and message of the last refusal by the API server.
    pub(super) failure: Option<(&'static str, String)>,
    /// Whether an Event reports that the pod is not created.
    pub(super) was_refused: bool,
    /// Whether the pod was created after such an Event, and no Event reports it yet.
    pub(super) is_created: bool,
    /// UID of this ShadowPod's pod that has lost the label of its watch.
    pub(super) unlabelled: Option<String>,
    /// Whether another pod has the name.
    pub(super) is_taken: bool,
    /// The ShadowPod as it was read, until the next plan.
    pub(super) read: Option<Arc<ShadowPod>>,
    /// When a resize was requested, and what the pod requests after it, while its outcome is unknown.
    pub(super) resizing: Option<(Instant, Arc<Demand>)>,
    /// Last refusals of changes by the API server, by subresource.
    pub(super) refusals: BTreeMap<&'static str, Refusal>,
    /// Labels and annotations that the pod must lose.
    pub(super) removed: Removed,
}

/// The API server's refusal of a change of the pod.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) message: String,
    /// When the change is sent again; `None` after each attempt, until the next plan determines it.
    pub(super) retry_at: Option<Instant>,
}

impl Memory {
    fn is_empty(&self) -> bool {
        self.sent.is_none()
            && self.failure.is_none()
            && !self.was_refused
            && !self.is_created
            && self.unlabelled.is_none()
            && !self.is_taken
            && self.read.is_none()
            && self.resizing.is_none()
            && self.refusals.is_empty()
            && self.removed.is_empty()
    }
}

/// The outcomes for all names.
#[derive(Debug, Default)]
pub(super) struct Memories(BTreeMap<Key, Memory>);

impl Memories {
    /// Returns what is known of a name.
    pub(super) fn get(&self, key: &Key) -> Option<&Memory> {
        self.0.get(key)
    }

    /// Changes what is known of a name.
    pub(super) fn change<T>(&mut self, key: &Key, change: impl FnOnce(&mut Memory) -> T) -> T {
        let memory = self.0.entry(key.clone()).or_default();
        let result = change(memory);
        if memory.is_empty() {
            self.0.remove(key);
        }

        result
    }

    /// Returns when the creation of the pod was requested, if its outcome is unknown.
    pub(super) fn sent(&self, key: &Key) -> Option<Instant> {
        self.get(key)?.sent
    }

    /// Returns when a resize of the pod was requested, and what the pod requests after it, if the outcome is unknown.
    pub(super) fn resizing(&self, key: &Key) -> Option<&(Instant, Arc<Demand>)> {
        self.get(key)?.resizing.as_ref()
    }

    /// Forgets a name whose ShadowPod is gone, but not a creation or a resize whose outcome is unknown.
    pub(super) fn forget(&mut self, key: &Key) {
        self.change(key, |memory| {
            *memory = Memory {
                sent: memory.sent,
                resizing: memory.resizing.take(),
                ..Memory::default()
            };
        });
    }
}
