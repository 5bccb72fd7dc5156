//! Changes of objects.

use crate::entry::{Entry, Kept};
use control_client::object::Ref;
use std::any::Any;
use std::time::Instant;

/// A change of one object.
#[derive(Debug)]
pub struct Change<'a> {
    /// The object.
    pub object: &'a Ref,
    pub(crate) old: Option<&'a Entry>,
    pub(crate) new: Option<&'a Entry>,
    pub(crate) seen_at: Option<Instant>,
}

impl<'a> Change<'a> {
    /// Returns the object before the change; `None` if it was created, or is of another resource.
    pub fn before<T: Any + Send + Sync>(&self) -> Option<&'a T> {
        self.old?.get()
    }

    /// Returns the object after the change; `None` if it was deleted, or is of another resource.
    pub fn after<T: Any + Send + Sync>(&self) -> Option<&'a T> {
        self.new?.get()
    }

    /// Returns the entry after the change; `None` if the object was deleted.
    pub fn entry(&self) -> Option<&'a Entry> {
        self.new
    }

    /// Returns whether the object was created, as far as the cache knows.
    pub fn is_creation(&self) -> bool {
        self.old.is_none() && self.new.is_some()
    }

    /// Returns when a watch or a response reported the change, by the clock of [`Env::at`](crate::Env::at).
    ///
    /// `None` if this replica is not the leader, and if the object was in the cache before the controller started or became the
    /// leader: an interval that begins or ends there is no latency. An object in the list of a watch that a plan has added is seen
    /// with the list.
    pub fn seen_at(&self) -> Option<Instant> {
        self.seen_at
    }

    /// Returns whether the object is of this type's resource.
    pub fn is<T: Kept>(&self) -> bool {
        self.object.resource == T::resource()
    }
}

/// A change with its entries, as the cache returns it.
#[derive(Clone, Debug)]
pub struct Changed {
    pub(crate) object: Ref,
    pub(crate) old: Option<Entry>,
    pub(crate) new: Option<Entry>,
}

impl Changed {
    /// Returns the change as controllers observe it, without a time.
    pub fn as_change(&self) -> Change<'_> {
        self.seen(None)
    }

    /// Returns the change with the time at which it was seen.
    pub(crate) fn seen(&self, seen_at: Option<Instant>) -> Change<'_> {
        Change {
            object: &self.object,
            old: self.old.as_ref(),
            new: self.new.as_ref(),
            seen_at,
        }
    }
}
