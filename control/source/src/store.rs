//! What the watches have told: a pure store.

use crate::blocks::{self, Blocks};
use control_api::Connection;
use control_fabric::{Object, Objects};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use zeroize::Zeroizing;

/// The private keys of this cluster's gateways, raw, by the peer's cluster id.
pub type Keys = BTreeMap<String, Zeroizing<Vec<u8>>>;

/// One thing that is watched.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// An object of the fabric.
    Object(Box<Object>),
    /// All private keys: there is one Secret.
    Keys(Keys),
    /// What a CNI gives to a node.
    Blocks(Blocks),
    /// Metadata of a namespace with the tenant label.
    TenantNamespace(Box<ObjectMeta>),
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// A list begins: what it does not name is gone at its end.
    Begin,
    /// The object is there.
    Apply(Id, Item),
    /// The object is gone.
    Delete(Id),
    /// The list is complete.
    End,
}

/// Namespace, if the kind has one, and name.
pub type Id = (Option<String>, String);

/// What is there, of all kinds.
#[derive(Debug, Default)]
pub struct Store {
    kinds: BTreeMap<usize, Kind>,
    /// How many of them, the first ones, must have been listed.
    required: usize,
}

/// What is there of one kind.
#[derive(Debug, Default)]
struct Kind {
    items: BTreeMap<Id, Item>,
    /// What a list that is not complete has named.
    listing: Option<BTreeSet<Id>>,
    is_known: bool,
}

impl Store {
    /// Creates one that waits for the lists of `required` kinds, numbered from 0; for those of higher
    /// numbers it does not wait.
    pub fn new(required: usize) -> Self {
        Self {
            kinds: (0..required).map(|kind| (kind, Kind::default())).collect(),
            required,
        }
    }

    /// Takes what the watch of a kind tells; returns whether that changes anything.
    pub fn apply(&mut self, kind: usize, update: Update) -> bool {
        self.kinds.entry(kind).or_default().apply(update)
    }

    /// Returns whether all kinds that are required were listed once.
    pub fn is_complete(&self) -> bool {
        let mut required = self.kinds.range(..self.required);
        required.all(|(_, kind)| kind.is_known)
    }

    /// Returns the objects of the fabric; nodes have the prefixes that their CNI tells.
    pub fn objects(&self) -> Objects {
        let mut objects = Objects::default();
        objects.extend(self.iter().cloned());
        let blocks = self.items().filter_map(|item| match item {
            Item::Blocks(blocks) => Some(blocks),
            Item::Object(_) | Item::Keys(_) | Item::TenantNamespace(_) => None,
        });
        blocks::assign(&mut objects, blocks);

        objects
    }

    /// Returns the objects of the fabric, borrowed.
    pub fn iter(&self) -> impl Iterator<Item = &Object> {
        self.items().filter_map(|item| match item {
            Item::Object(object) => Some(&**object),
            Item::Keys(_) | Item::Blocks(_) | Item::TenantNamespace(_) => None,
        })
    }

    /// Returns the private keys.
    pub fn keys(&self) -> Keys {
        let keys = self.items().filter_map(|item| match item {
            Item::Keys(keys) => Some(keys.clone()),
            Item::Object(_) | Item::Blocks(_) | Item::TenantNamespace(_) => None,
        });

        keys.flatten().collect()
    }

    /// Returns the metadata of the namespaces with the tenant label.
    pub fn tenant_namespaces(&self) -> impl Iterator<Item = &ObjectMeta> {
        self.items().filter_map(|item| match item {
            Item::TenantNamespace(metadata) => Some(&**metadata),
            Item::Object(_) | Item::Keys(_) | Item::Blocks(_) => None,
        })
    }

    /// Returns the Connections.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.iter().filter_map(|object| object.try_into().ok())
    }

    fn items(&self) -> impl Iterator<Item = &Item> {
        self.kinds.values().flat_map(|kind| kind.items.values())
    }
}

impl Kind {
    fn apply(&mut self, update: Update) -> bool {
        match update {
            Update::Begin => {
                self.listing = Some(BTreeSet::new());
                false
            }
            Update::Apply(id, item) => {
                if let Some(listing) = &mut self.listing {
                    listing.insert(id.clone());
                }
                let is_same = self.items.get(&id) == Some(&item);
                self.items.insert(id, item);
                !is_same
            }
            Update::Delete(id) => self.items.remove(&id).is_some(),
            Update::End => {
                let before = self.items.len();
                if let Some(listing) = self.listing.take() {
                    self.items.retain(|id, _| listing.contains(id));
                }
                let was_known = std::mem::replace(&mut self.is_known, true);
                !was_known || before != self.items.len()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_new_list_does_not_name_is_gone() {
        let mut store = Store::new(1);
        store.apply(0, Update::Begin);
        store.apply(0, apply("a", 1));
        store.apply(0, apply("b", 2));
        assert!(!store.is_complete());
        assert!(store.apply(0, Update::End));
        assert!(store.is_complete());

        store.apply(0, Update::Begin);
        assert!(!store.apply(0, apply("b", 2)), "it says what it said");
        assert!(store.apply(0, Update::End));

        assert_eq!(store.keys(), Keys::from([("b".to_owned(), vec![2].into())]));
    }

    #[test]
    fn only_news_is_a_change() {
        let mut store = Store::new(1);

        assert!(store.apply(0, apply("a", 1)));
        assert!(!store.apply(0, apply("a", 1)));
        assert!(store.apply(0, apply("a", 2)));
        assert!(store.apply(0, Update::Delete(id("a"))));
        assert!(!store.apply(0, Update::Delete(id("a"))));
    }

    #[test]
    fn a_broken_list_removes_nothing() {
        let mut store = Store::new(1);
        store.apply(0, apply("a", 1));

        store.apply(0, Update::Begin);
        store.apply(0, Update::Begin);
        store.apply(0, apply("a", 1));
        assert_eq!(store.keys().len(), 1);
        assert!(store.apply(0, Update::End), "the first list");

        assert_eq!(store.keys().len(), 1);
    }

    #[test]
    fn all_kinds_must_be_known() {
        let mut store = Store::new(2);

        store.apply(1, Update::End);
        assert!(!store.is_complete());
        store.apply(0, Update::End);
        store.apply(2, Update::Begin);

        assert!(store.is_complete(), "the third is not required");
    }

    fn id(name: &str) -> Id {
        (None, name.to_owned())
    }

    fn apply(name: &str, key: u8) -> Update {
        let keys = Keys::from([(name.to_owned(), vec![key].into())]);
        Update::Apply(id(name), Item::Keys(keys))
    }
}
