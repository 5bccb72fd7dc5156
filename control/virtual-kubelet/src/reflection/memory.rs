//! Outcomes of writes that the next plan of an object depends on. None of it is needed after a restart.

use super::item::WorkItem;
use super::summary::Fingerprint;
use control_runtime::Digest;
use kube::core::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Shortest interval between writes of one state, so that a controller of the provider that changes an object again and again
/// causes few of them.
const RESTORE_INTERVAL: Duration = Duration::from_secs(1);

/// Number of remembered writes from which older ones are dropped.
const WRITTEN_MAX: usize = 256;

/// Longest part of a provider's message that is published, in characters.
const MESSAGE_LEN_MAX: usize = 300;

/// Outcomes of writes, by object.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The desired state that is being written.
    sent: BTreeMap<WorkItem, (Digest, Instant)>,
    /// The state that was written last, for some time.
    written: BTreeMap<WorkItem, (Digest, Instant)>,
    /// Desired state that was written, and a different one that the provider has stored.
    settled: BTreeMap<WorkItem, (Digest, Digest)>,
    /// Objects whose name another object of the provider has.
    foreign: BTreeSet<WorkItem>,
    /// UIDs of objects of the provider whose immutable fields differ.
    replaced: BTreeMap<WorkItem, String>,
    /// Messages of the provider.
    refused: BTreeMap<WorkItem, String>,
    created: BTreeSet<WorkItem>,
}

impl Memory {
    /// Notes that the desired state of an object is written.
    pub(super) fn send(&mut self, item: &WorkItem, desired: &Fingerprint, now: Instant) {
        self.sent.insert(item.clone(), (Digest::of(desired), now));
    }

    /// Returns how long to wait before this state of an object is written again.
    pub(super) fn wait(
        &self,
        item: &WorkItem,
        desired: &Fingerprint,
        now: Instant,
    ) -> Option<Duration> {
        let (written, at) = self.written.get(item)?;
        let rest = RESTORE_INTERVAL.checked_sub(now.saturating_duration_since(*at))?;
        (*written == Digest::of(desired) && !rest.is_zero()).then_some(rest)
    }

    /// Notes that the provider has stored an object.
    pub(super) fn stored(&mut self, item: &WorkItem, present: &Fingerprint, is_new: bool) {
        self.refused.remove(item);
        self.foreign.remove(item);
        self.settled.remove(item);
        let present = Digest::of(present);
        if let Some((sent, at)) = self.sent.remove(item) {
            if self.written.len() >= WRITTEN_MAX {
                let is_recent = |it: &Instant| at.saturating_duration_since(*it) < RESTORE_INTERVAL;
                self.written.retain(|_, (_, it)| is_recent(it));
            }
            self.written.insert(item.clone(), (sent, at));
            if sent != present {
                self.settled.insert(item.clone(), (sent, present));
            }
        }
        if is_new {
            self.created.insert(item.clone());
        }
    }

    /// Returns whether the provider has stored the desired state as the present one, for example because a webhook of it
    /// changes a field or another controller adds one. Writing it again has no effect.
    pub(super) fn is_settled(
        &self,
        item: &WorkItem,
        desired: &Fingerprint,
        present: &Fingerprint,
    ) -> bool {
        let settled = self.settled.get(item);
        settled.is_some_and(|it| *it == (Digest::of(desired), Digest::of(present)))
    }

    /// Notes that another object has the name.
    pub(super) fn mark_foreign(&mut self, item: &WorkItem) {
        self.foreign.insert(item.clone());
    }

    /// Notes that the name is free.
    pub(super) fn release(&mut self, item: &WorkItem) {
        self.foreign.remove(item);
    }

    pub(super) fn is_foreign(&self, item: &WorkItem) -> bool {
        self.foreign.contains(item)
    }

    /// Notes that the provider has refused a write.
    pub(super) fn refuse(&mut self, item: &WorkItem, status: &Status) {
        // It is shown on terminals.
        let message = status.message.chars();
        let message = message.map(|it| if it.is_control() { ' ' } else { it });
        self.refused
            .insert(item.clone(), message.take(MESSAGE_LEN_MAX).collect());
    }

    /// Takes the provider's message about a refused write.
    pub(super) fn take_refusal(&mut self, item: &WorkItem) -> Option<String> {
        self.refused.remove(item)
    }

    /// Notes that the object with this UID has another value of an immutable field.
    pub(super) fn replace(&mut self, item: &WorkItem, uid: &str) {
        self.replaced.insert(item.clone(), uid.to_owned());
    }

    /// Returns whether the object with this UID must be deleted, and created again.
    pub(super) fn is_replaced(&self, item: &WorkItem, uid: &str) -> bool {
        self.replaced.get(item).is_some_and(|it| it == uid)
    }

    /// Takes whether the object was created.
    pub(super) fn take_created(&mut self, item: &WorkItem) -> bool {
        self.created.remove(item)
    }

    /// Drops everything about an object.
    pub(super) fn forget(&mut self, item: &WorkItem) {
        let Self {
            sent,
            written: _,
            settled,
            foreign,
            replaced,
            refused,
            created,
        } = self;
        sent.remove(item);
        settled.remove(item);
        foreign.remove(item);
        replaced.remove(item);
        refused.remove(item);
        created.remove(item);
    }
}
