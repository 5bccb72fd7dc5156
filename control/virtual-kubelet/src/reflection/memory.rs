//! Outcomes of writes that the next plan of an object depends on. None of it is needed after a restart.

use super::conflicts::{Cause, Conflicts};
use super::idle::IdleWrites;
use super::item::WorkItem;
use super::registrations::FIELD_MANAGER;
use control_runtime::{Digest, Restores};
use kube::core::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Longest part of a provider's message that is published, in characters.
const MESSAGE_LEN_MAX: usize = 300;

/// Interval at which the Event about a conflict is repeated. Kubernetes deletes Events after an hour.
const REPORT_INTERVAL: Duration = Duration::from_secs(30 * 60);

/// Outcomes of writes, by object.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The desired states that are being written.
    sent: BTreeMap<WorkItem, Sent>,
    /// The state that was written last, for some time.
    restores: Restores<WorkItem>,
    /// Writes without effect.
    idle: IdleWrites,
    /// Desired state that was written, and a different one that the provider has stored.
    settled: BTreeMap<WorkItem, (Digest, Digest)>,
    /// Objects whose name another object of the provider has.
    foreign: BTreeSet<WorkItem>,
    /// When conflicts were reported.
    reported: BTreeMap<WorkItem, Instant>,
    /// UIDs of objects of the provider whose immutable fields differ.
    replaced: BTreeMap<WorkItem, String>,
    /// Messages of the provider.
    refused: BTreeMap<WorkItem, String>,
    /// Objects whose last write has failed.
    failed: BTreeSet<WorkItem>,
    /// Objects that were written since.
    recovered: BTreeSet<WorkItem>,
    conflicts: Conflicts,
}

/// A desired state that is being written.
#[derive(Clone, Copy, Debug)]
struct Sent {
    desired: Digest,
    /// The state that it replaces; `None` if there is no object.
    present: Option<Digest>,
    at: Instant,
}

impl Memory {
    pub(super) fn new(conflicts: Conflicts) -> Self {
        Self {
            conflicts,
            ..Self::default()
        }
    }

    /// Drops everything.
    pub(super) fn reset(&mut self) {
        self.conflicts.reset();
        *self = Self::new(self.conflicts.clone());
    }

    /// Notes that the desired state of an object is written in place of the present one.
    pub(super) fn send<T: Hash>(
        &mut self,
        item: &WorkItem,
        (desired, present): (&T, Option<&T>),
        at: Instant,
    ) {
        let sent = Sent {
            desired: Digest::of(desired),
            present: present.map(Digest::of),
            at,
        };
        self.sent.insert(item.clone(), sent);
    }

    /// Returns how long to wait before this state of an object is written again, because another field manager changes it.
    pub(super) fn wait(
        &self,
        item: &WorkItem,
        desired: &impl Hash,
        now: Instant,
    ) -> Option<Duration> {
        self.restores.wait(item, Digest::of(desired), now)
    }

    /// Returns how long to wait before this state of an object is written again, because the last writes of it had no effect.
    pub(super) fn rest(
        &self,
        item: &WorkItem,
        desired: &impl Hash,
        now: Instant,
    ) -> Option<Duration> {
        self.idle.rest(item, Digest::of(desired), now)
    }

    /// Notes that the provider has stored an object.
    pub(super) fn stored(&mut self, item: &WorkItem, present: &impl Hash) {
        self.refused.remove(item);
        self.release(item);
        self.settled.remove(item);
        let present = Digest::of(present);
        if let Some(sent) = self.sent.remove(item) {
            // A write without effect restores nothing: others have changed fields of their own.
            if sent.present == Some(present) {
                self.idle.note(item, sent.desired, sent.at);
            } else {
                self.idle.forget(item);
                self.track(item, |restores| restores.wrote(item, sent.desired, sent.at));
            }
            if sent.desired != present {
                self.settled.insert(item.clone(), (sent.desired, present));
            }
        }
        if self.failed.remove(item) {
            self.recovered.insert(item.clone());
        }
    }

    /// Returns whether the provider has stored the desired state as the present one, for example because a webhook of it
    /// changes a field or another controller adds one. Writing it again has no effect.
    pub(super) fn is_settled(
        &self,
        item: &WorkItem,
        desired: &impl Hash,
        present: &impl Hash,
    ) -> bool {
        let settled = self.settled.get(item);
        settled.is_some_and(|it| *it == (Digest::of(desired), Digest::of(present)))
    }

    /// Notes that an object has its desired state. Returns when to look again whether it stays so.
    pub(super) fn calm(&mut self, item: &WorkItem, now: Instant) -> Option<Duration> {
        self.track(item, |restores| restores.calm(item, now))
    }

    /// Changes the state of an object in [`Restores`], and counts the beginning or the end of a contest.
    fn track<T>(
        &mut self,
        item: &WorkItem,
        change: impl FnOnce(&mut Restores<WorkItem>) -> T,
    ) -> T {
        let was_contested = self.restores.is_contested(item);
        let result = change(&mut self.restores);
        match (was_contested, self.restores.is_contested(item)) {
            (false, true) => self.conflicts.begin(item, Cause::Contested),
            (true, false) => {
                self.reported.remove(item);
                self.conflicts.end(item, Cause::Contested);
            }
            (false, false) | (true, true) => {}
        }

        result
    }

    /// Notes the field manager that changes an object again and again.
    pub(super) fn name_other_manager<'a>(
        &mut self,
        item: &WorkItem,
        managers: impl IntoIterator<Item = &'a str>,
    ) {
        self.restores.name(item, managers, FIELD_MANAGER);
    }

    /// Returns the field manager that changes an object again and again, if it is known.
    pub(super) fn other_manager(&self, item: &WorkItem) -> Option<&str> {
        self.restores.other_manager(item)
    }

    /// Notes that another object has the name.
    pub(super) fn mark_foreign(&mut self, item: &WorkItem) {
        self.failed.insert(item.clone());
        if self.foreign.insert(item.clone()) {
            self.conflicts.begin(item, Cause::Foreign);
        }
    }

    /// Notes that the name is free.
    pub(super) fn release(&mut self, item: &WorkItem) {
        if self.foreign.remove(item) {
            self.reported.remove(item);
            self.conflicts.end(item, Cause::Foreign);
        }
    }

    pub(super) fn is_foreign(&self, item: &WorkItem) -> bool {
        self.foreign.contains(item)
    }

    /// Takes whether the Event about a conflict is published now although it is the last one.
    pub(super) fn take_report(&mut self, item: &WorkItem, now: Instant) -> bool {
        let last = self.reported.get(item);
        let is_due =
            last.is_none_or(|last| now.saturating_duration_since(*last) >= REPORT_INTERVAL);
        if is_due {
            self.reported.insert(item.clone(), now);
        }

        is_due
    }

    /// Notes that the provider has refused a write.
    pub(super) fn refuse(&mut self, item: &WorkItem, status: &Status) {
        self.refuse_with(item, &status.message);
    }

    /// Notes why a write has no effect.
    pub(super) fn refuse_with(&mut self, item: &WorkItem, message: &str) {
        self.failed.insert(item.clone());
        self.refused.insert(item.clone(), printable(message));
    }

    /// Takes the provider's message about a refused write.
    pub(super) fn take_refusal(&mut self, item: &WorkItem) -> Option<String> {
        self.refused.remove(item)
    }

    /// Notes that the object with this UID has another value of an immutable field.
    pub(super) fn replace(&mut self, item: &WorkItem, uid: &str) {
        self.replaced.insert(item.clone(), uid.to_owned());
    }

    /// Notes that the object needs no replacement any more.
    pub(super) fn keep(&mut self, item: &WorkItem) {
        self.replaced.remove(item);
    }

    /// Returns whether the object with this UID must be deleted, and created again.
    pub(super) fn is_replaced(&self, item: &WorkItem, uid: &str) -> bool {
        self.replaced.get(item).is_some_and(|it| it == uid)
    }

    /// Takes whether the object was written after a failure.
    pub(super) fn take_recovery(&mut self, item: &WorkItem) -> bool {
        self.recovered.remove(item)
    }

    /// Drops everything about an object.
    pub(super) fn forget(&mut self, item: &WorkItem) {
        self.release(item);
        self.track(item, |restores| restores.forget(item));
        let Self {
            sent,
            idle,
            restores: _,
            settled,
            foreign: _,
            reported,
            replaced,
            refused,
            failed,
            recovered,
            conflicts: _,
        } = self;
        sent.remove(item);
        idle.forget(item);
        settled.remove(item);
        reported.remove(item);
        replaced.remove(item);
        refused.remove(item);
        failed.remove(item);
        recovered.remove(item);
    }
}

/// Returns the beginning of a text of the provider without control characters, because it is shown on terminals.
fn printable(text: &str) -> String {
    let text = text.chars();
    let text = text.map(|it| if it.is_control() { ' ' } else { it });
    text.take(MESSAGE_LEN_MAX).collect()
}
