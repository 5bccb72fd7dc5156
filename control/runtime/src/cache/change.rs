//! Changes of objects.

use crate::entry::{Entry, Kept};
use control_client::object::Ref;
use std::any::Any;

/// A change of one object.
#[derive(Debug)]
pub struct Change<'a> {
    /// The object.
    pub object: &'a Ref,
    pub(crate) old: Option<&'a Entry>,
    pub(crate) new: Option<&'a Entry>,
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
    /// Returns the change as controllers observe it.
    pub fn as_change(&self) -> Change<'_> {
        Change {
            object: &self.object,
            old: self.old.as_ref(),
            new: self.new.as_ref(),
        }
    }
}
