//! The namespaces that are offloaded to the provider, by the status that it reports.

use super::peering::Peering;
use control_api::NamespaceMap;
use control_api::offloading::namespace_map::MappingPhase;
use control_runtime::{Cache, Cluster, Key, Plan, WatchChange, WatchId};
use std::collections::{BTreeMap, BTreeSet};

/// Namespaces of which objects are followed. The provider chooses what the status contains.
pub(crate) const FOLLOWED_MAX: usize = 4096;

/// Length of the name of a namespace, in bytes (RFC 1123).
const NAME_LEN_MAX: usize = 63;

/// Length of the name of an object, in bytes (RFC 1123).
const OBJECT_NAME_LEN_MAX: usize = 253;

/// State of the reflection of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State<'a> {
    /// Objects are reflected into this namespace of the provider.
    Accepted(&'a str),
    /// The provider has no namespace at present, so objects stay as they are.
    Suspended,
    /// The namespace is no longer offloaded, so reflected objects are removed from this namespace of the provider.
    Withdrawn(&'a str),
    /// The provider has no namespace for it.
    Absent,
}

impl<'a> State<'a> {
    /// Returns the state of a namespace.
    pub(crate) fn of(map: Option<&'a NamespaceMap>, namespace: &str) -> Self {
        let Some(map) = map else {
            return Self::Absent;
        };
        // A deleted NamespaceMap ends with the peering, and the namespaces of the provider with it.
        let is_active = map.metadata.deletion_timestamp.is_none();
        let desired = map
            .spec
            .desired_mapping
            .get(namespace)
            .filter(|_| is_active);
        let current = map.status.as_ref();
        let current = current.and_then(|it| it.current_mapping.get(namespace));
        let remote = current.and_then(|it| it.remote_namespace.as_deref());
        let remote = remote.filter(|it| is_namespace(it));
        let phase = current.and_then(|it| it.phase);
        match (desired, remote, phase) {
            (Some(desired), Some(remote), Some(MappingPhase::Accepted)) if desired == remote => {
                Self::Accepted(remote)
            }
            (Some(_), _, _) => Self::Suspended,
            (None, Some(remote), Some(MappingPhase::Accepted | MappingPhase::Terminating)) => {
                Self::Withdrawn(remote)
            }
            (None, _, _) => Self::Absent,
        }
    }

    /// Returns the state of a namespace by the NamespaceMap in the cache, whose key is `map`.
    pub(crate) fn in_cache(cache: &'a Cache, map: &Key, namespace: &str) -> Self {
        State::of(cache.local::<NamespaceMap>(map), namespace)
    }
}

/// Returns the namespaces of this cluster that a NamespaceMap names.
pub(crate) fn names(map: &NamespaceMap) -> BTreeSet<&str> {
    let desired = map.spec.desired_mapping.keys();
    let current = map.status.iter().flat_map(|it| it.current_mapping.keys());
    let names = desired.chain(current).map(String::as_str);
    names.filter(|it| is_namespace(it)).collect()
}

/// Returns whether a text is the name of a namespace (RFC 1123 label).
fn is_namespace(name: &str) -> bool {
    (1..=NAME_LEN_MAX).contains(&name.len()) && is_label(name)
}

/// Returns whether a text is the name of an object (RFC 1123 subdomain).
pub(crate) fn is_object_name(name: &str) -> bool {
    name.len() <= OBJECT_NAME_LEN_MAX && name.split('.').all(is_label)
}

fn is_label(text: &str) -> bool {
    let is_valid = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    !text.is_empty() && text.bytes().all(is_valid)
}

/// The namespaces whose objects a controller follows.
#[derive(Debug)]
pub(crate) struct Namespaces {
    /// Their largest number: [`FOLLOWED_MAX`], except in tests.
    max: usize,
    /// Namespace of the provider by namespace of this cluster.
    remotes: BTreeMap<String, String>,
    locals: BTreeMap<String, String>,
    watches: BTreeMap<String, BTreeSet<WatchId>>,
}

impl Default for Namespaces {
    fn default() -> Self {
        Self::with_max(FOLLOWED_MAX)
    }
}

impl Namespaces {
    pub(crate) fn with_max(max: usize) -> Self {
        Self {
            max,
            remotes: BTreeMap::new(),
            locals: BTreeMap::new(),
            watches: BTreeMap::new(),
        }
    }

    /// Drops all namespaces.
    pub(crate) fn clear(&mut self) {
        *self = Self::with_max(self.max);
    }

    /// Returns the namespace of the provider.
    pub(crate) fn remote(&self, local: &str) -> Option<&str> {
        self.remotes.get(local).map(String::as_str)
    }

    /// Returns the namespace of this cluster.
    pub(crate) fn local(&self, remote: &str) -> Option<&str> {
        self.locals.get(remote).map(String::as_str)
    }

    /// Returns the namespace of this cluster whose objects a watch reports.
    pub(crate) fn of_watch(&self, id: &WatchId, peering: &Peering) -> Option<&str> {
        let namespace = id.namespace.as_deref()?;
        match &id.cluster {
            Cluster::Local => self
                .remotes
                .get_key_value(namespace)
                .map(|(local, _)| local.as_str()),
            cluster if *cluster == peering.cluster() => self.local(namespace),
            Cluster::Remote(_) => None,
        }
    }

    /// Adds the watches of a namespace to a plan, and removes those that it no longer needs. Returns whether it is left out, because
    /// the most others are followed.
    ///
    /// Two namespaces of this cluster never have one of the provider: it is the first one's.
    pub(crate) fn plan<I>(
        &mut self,
        namespace: &str,
        state: State<'_>,
        watches: impl Fn(&str) -> BTreeSet<WatchId>,
        plan: &mut Plan<I>,
    ) -> bool {
        let remote = match state {
            State::Accepted(remote) | State::Withdrawn(remote) => Some(remote),
            State::Suspended => return false,
            State::Absent => None,
        };
        let owner = remote.and_then(|remote| self.local(remote));
        let is_owned = owner.is_none_or(|owner| owner == namespace);
        let is_full = self.remotes.len() >= self.max && !self.remotes.contains_key(namespace);
        let is_omitted = remote.is_some() && is_owned && is_full;
        // No change reports when another one releases its namespace or its place.
        plan.is_incomplete |= !is_owned || is_omitted;
        let remote = remote.filter(|_| is_owned && !is_full);
        let desired = remote.map(watches).unwrap_or_default();
        let present = self.watches.remove(namespace).unwrap_or_default();
        let removed = present.difference(&desired).cloned();
        plan.watches.extend(removed.map(WatchChange::Remove));
        let added = desired.difference(&present).cloned();
        plan.watches.extend(added.map(WatchChange::Add));
        if let Some(before) = self.remotes.remove(namespace) {
            self.locals.remove(&before);
        }
        if let Some(remote) = remote {
            self.remotes.insert(namespace.to_owned(), remote.to_owned());
            self.locals.insert(remote.to_owned(), namespace.to_owned());
            self.watches.insert(namespace.to_owned(), desired);
        }

        is_omitted
    }
}
