//! Finalizers, with a limit on how long they delay a deletion.
//!
//! A finalizer is written by a merge patch that carries UID and resourceVersion, under a field manager
//! of its own. So the runtime adds and removes it independently of its owner, and an Apply of the controller,
//! which omits it, does not remove it.

use crate::controller::{Action, Event, Plan, Write};
use crate::entry::Entry;
use control_client::object::Ref;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// Reason of the Event about an object whose finalizer is removed before its clean-up has ended.
pub const CLEANUP_TIMED_OUT: &str = "CleanupTimedOut";

/// A finalizer of a controller: it delays the deletion of an object until the controller has cleaned
/// up, for example in another cluster, which may never answer again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finalizer {
    /// Name, for example `liqo.io/tenant`.
    pub name: &'static str,
    /// Time from the request to delete the object after which the finalizer is removed in any case.
    pub wait_max: Duration,
}

/// State of an object with regard to a finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// It lacks the finalizer. Nothing may be created for it yet that must be cleaned up.
    Missing,
    /// It has the finalizer.
    Set,
    /// It is being deleted, and the clean-up may take this long.
    CleaningUp(Duration),
    /// It is being deleted, and the clean-up has reached its limit.
    Expired,
    /// It is being deleted, and the finalizer is removed.
    Released,
}

impl Finalizer {
    /// Returns the state of an object.
    pub fn protection(&self, entry: &Entry, now: Timestamp) -> Protection {
        let is_set = entry.finalizers().iter().any(|it| it == self.name);
        match (entry.deleted_at(), is_set) {
            (None, false) => Protection::Missing,
            (None, true) => Protection::Set,
            (Some(_), false) => Protection::Released,
            (Some(deleted_at), true) => {
                let elapsed = now.duration_since(deleted_at);
                // The clock of the API server may be ahead.
                let elapsed = Duration::try_from(elapsed).unwrap_or_default();
                match self.wait_max.checked_sub(elapsed) {
                    Some(left) if !left.is_zero() => Protection::CleaningUp(left),
                    Some(_) | None => Protection::Expired,
                }
            }
        }
    }

    /// Adds to a plan what the state of an object requires, and returns the state: adds the finalizer;
    /// or removes it when the object is being deleted and `is_clean`, or at the limit, which an Event
    /// reports. Until then, `item` is planned again at the limit.
    ///
    /// The removal waits for the other writes of the plan.
    pub fn apply<I>(
        &self,
        plan: &mut Plan<I>,
        (object, entry): (&Ref, &Entry),
        item: I,
        is_clean: bool,
        now: Timestamp,
    ) -> Protection {
        let protection = self.protection(entry, now);
        match protection {
            Protection::Missing => plan.writes.push(self.write(object, entry, true)),
            Protection::CleaningUp(left) if !is_clean => plan.requeue.push((left, item)),
            Protection::CleaningUp(_) | Protection::Expired => {
                plan.writes.push(self.write(object, entry, false));
            }
            Protection::Set | Protection::Released => {}
        }
        if protection == Protection::Expired && !is_clean {
            plan.events.push(Event {
                object: object.clone(),
                is_warning: true,
                reason: CLEANUP_TIMED_OUT,
                note: format!(
                    "removed the finalizer {} although the clean-up has not ended within {} s: delete what is left by hand",
                    self.name,
                    self.wait_max.as_secs()
                ),
                is_repeated: false,
            });
        }

        protection
    }

    fn write(&self, object: &Ref, entry: &Entry, is_set: bool) -> Write {
        let mut finalizers = entry.finalizers().to_vec();
        finalizers.retain(|it| it != self.name);
        if is_set {
            finalizers.push(self.name.to_owned());
        }
        let mut write = Write::new(object.clone(), Action::Finalize(finalizers));
        write.uid = Some(entry.uid.clone());
        write.resource_version = entry.version.map(|version| version.to_string());
        write.is_last = !is_set;
        write
    }
}

#[cfg(test)]
mod tests;
