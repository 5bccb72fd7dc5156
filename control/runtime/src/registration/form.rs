//! The types of a registration, erased, and the one form of all registrations of a resource.

use crate::entry::Signal;
use crate::entry::{DecodeError, Decoded, Entry, Source};
use control_client::object::{Cluster, Key, Resource};
use control_client::watch::{self, Target};
use futures_util::stream::BoxStream;
use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::sync::Arc;

/// Two registrations of a resource contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// They keep different types, and the cache has one form of an object.
    #[error("registrations of {resource} keep {first} and {second}: use one type in a process")]
    Types {
        /// Resource that is registered twice.
        resource: Box<Resource>,
        /// Type that the first registration keeps.
        first: &'static str,
        /// Type that the second registration keeps.
        second: &'static str,
    },
    /// They keep different fields, and neither keeps the whole objects.
    #[error(
        "registrations of {resource} keep different fields: use one function in a process, or `Registration::whole`"
    )]
    Fields {
        /// Resource that is registered twice.
        resource: Box<Resource>,
    },
    /// Two field managers declare one field.
    #[error(
        "{first} and {second} declare the field {field} of {resource}: one of them must own it"
    )]
    Owners {
        /// Resource of the field.
        resource: Box<Resource>,
        /// Path of the field.
        field: &'static str,
        /// Field manager of the first registration.
        first: &'static str,
        /// Field manager of the second registration.
        second: &'static str,
    },
    /// Their indexes have one name and different functions.
    #[error("registrations of {resource} compute the index {index} differently")]
    Indexes {
        /// Resource that is registered twice.
        resource: Box<Resource>,
        /// Name of the index.
        index: &'static str,
    },
}

/// The types of a registration, erased.
pub(crate) trait Form: Send + Sync {
    /// Starts a [watch](watch::stream). The stream never ends.
    fn watch(&self, target: Target) -> BoxStream<'static, Signal>;

    /// Decodes an object that a request to a cluster returned.
    fn decode(&self, text: &str, cluster: &Cluster) -> Result<Entry, DecodeError>;

    /// Returns whether two entries keep equal objects.
    fn is_equal(&self, a: &Entry, b: &Entry) -> bool;

    fn projection(&self) -> Projection;

    fn indexes(&self) -> &[Index];

    fn with(&self, indexes: Vec<Index>, is_full: bool) -> Arc<dyn Form>;
}

/// The conversion of an object to its cached form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Projection {
    pub(crate) kept: TypeId,
    name: &'static str,
    /// Type of the function, of which there is one value.
    function: TypeId,
    is_whole: bool,
    /// Whether entries carry the full objects.
    pub(crate) is_full: bool,
}

type IndexValues = Arc<dyn Fn(&Entry) -> Vec<String> + Send + Sync>;

/// Finds objects by values that a function returns.
#[derive(Clone)]
pub(crate) struct Index {
    pub(crate) name: &'static str,
    function: TypeId,
    pub(crate) values: IndexValues,
}

impl Index {
    pub(super) fn new<T, F>(name: &'static str, values: F) -> Self
    where
        T: Any + Send + Sync,
        F: Fn(&T) -> Vec<String> + Send + Sync + 'static,
    {
        const {
            assert!(
                size_of::<F>() == 0,
                "a closure that captures has no identity"
            )
        };
        Self {
            name,
            function: TypeId::of::<F>(),
            values: Arc::new(move |entry| entry.get::<T>().map(&values).unwrap_or_default()),
        }
    }
}

/// Returns the form of two registrations of a resource: the richer projection, with all indexes.
///
/// # Errors
///
/// Returns [`RegistrationError`] if neither projection contains the other.
pub(crate) fn merge(
    resource: &Resource,
    first: &Arc<dyn Form>,
    second: &Arc<dyn Form>,
) -> Result<Arc<dyn Form>, RegistrationError> {
    let resource = || Box::new(resource.clone());
    let (a, b) = (first.projection(), second.projection());
    if a.kept != b.kept {
        return Err(RegistrationError::Types {
            resource: resource(),
            first: a.name,
            second: b.name,
        });
    }
    let richer = if a.is_whole || a.function == b.function {
        first
    } else if b.is_whole {
        second
    } else {
        return Err(RegistrationError::Fields {
            resource: resource(),
        });
    };
    let mut indexes = first.indexes().to_vec();
    for index in second.indexes() {
        match indexes.iter().find(|it| it.name == index.name) {
            None => indexes.push(index.clone()),
            Some(known) if known.function == index.function => {}
            Some(_) => {
                return Err(RegistrationError::Indexes {
                    resource: resource(),
                    index: index.name,
                });
            }
        }
    }

    Ok(richer.with(indexes, a.is_full || b.is_full))
}

pub(super) struct Typed<K, T, F> {
    resource: Resource,
    keep: F,
    is_whole: bool,
    is_full: bool,
    indexes: Vec<Index>,
    marker: PhantomData<fn(K) -> T>,
}

impl<K, T, F: Fn(K, &Cluster) -> T> Typed<K, T, F> {
    pub(super) fn new(resource: Resource, keep: F) -> Self {
        const {
            assert!(
                size_of::<F>() == 0,
                "a closure that captures has no identity"
            )
        };
        Self {
            resource,
            keep,
            is_whole: false,
            is_full: false,
            indexes: Vec::new(),
            marker: PhantomData,
        }
    }
}

/// Returns the form that keeps whole objects.
pub(super) fn whole<K: Source + PartialEq>(resource: Resource) -> impl Form + 'static {
    Typed {
        is_whole: true,
        ..Typed::new(resource, |object: K, _: &Cluster| object)
    }
}

impl<K, T, F> Form for Typed<K, T, F>
where
    K: Source,
    T: Any + PartialEq + Send + Sync,
    F: Fn(K, &Cluster) -> T + Copy + Send + Sync + 'static,
{
    fn watch(&self, target: Target) -> BoxStream<'static, Signal> {
        let (keep, resource, is_full) = (self.keep, self.resource.clone(), self.is_full);
        let cluster = target.id.cluster.clone();
        let entry = move |decoded: Decoded<K>| {
            decoded.entry(&resource, |object| keep(object, &cluster), is_full)
        };
        watch::stream(target, entry)
    }

    fn decode(&self, text: &str, cluster: &Cluster) -> Result<Entry, DecodeError> {
        let decoded = Decoded::<K>::parse(text).map_err(|error| DecodeError {
            resource: Box::new(self.resource.clone()),
            key: Key::default(),
            reason: error.to_string(),
        })?;
        let keep = |object| (self.keep)(object, cluster);
        decoded.entry(&self.resource, keep, self.is_full)
    }

    fn is_equal(&self, a: &Entry, b: &Entry) -> bool {
        let is_kept_equal = || a.get::<T>().is_some() && a.get::<T>() == b.get::<T>();
        a.uid == b.uid && a.finalization == b.finalization && is_kept_equal()
    }

    fn projection(&self) -> Projection {
        Projection {
            kept: TypeId::of::<T>(),
            name: std::any::type_name::<T>(),
            function: TypeId::of::<F>(),
            is_whole: self.is_whole,
            is_full: self.is_full,
        }
    }

    fn indexes(&self) -> &[Index] {
        &self.indexes
    }

    fn with(&self, indexes: Vec<Index>, is_full: bool) -> Arc<dyn Form> {
        Arc::new(Self {
            resource: self.resource.clone(),
            keep: self.keep,
            is_whole: self.is_whole,
            is_full,
            indexes,
            marker: PhantomData,
        })
    }
}
