//! Resolves the objects of an API server incrementally.
//!
//! ```text
//! changes --> entities --facts--> Index
//!                |
//!                v   entities that depend on a change, and those that they depend on
//!             Tenancy::prune --> LastGood::resolve --> outcomes of the former --> Resolution
//! ```
//!
//! An entity is a node, an IP, a user's Network, a peer with all its objects, or the set of all gateway replicas.
//! Its facts are the values on which its outcome depends, and the values that it provides for others. A change
//! is resolved by the same functions as all objects, but only with the entities that are connected with it.
//! `tests` compares the result with that of all objects, over random changes.

use super::error::Error;
use super::objects::{Object, Objects};
use super::resolve::{LastGood, Resolution, Waiting};
use super::tenancy::{Tenancy, set_reference_namespace};
use super::view::Fabric;
use super::{Errors, PEERS_MAX};
use control_api::tenant_namespace;
use entity::Entity;
use facts::Facts;
use index::Index;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod blocks;
mod entity;
mod facts;
mod index;
mod part;

pub use blocks::Blocks;
pub use entity::ObjectKey;

/// Changes of objects: the new state by key, or `None` for a deletion.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Objects of the fabric.
    pub objects: BTreeMap<ObjectKey, Option<Arc<Object>>>,
    /// Metadata of namespaces, by name.
    pub namespaces: BTreeMap<String, Option<ObjectMeta>>,
    /// Prefixes of nodes that a CNI has assigned, by any key of the CNI's object.
    pub blocks: BTreeMap<String, Option<Blocks>>,
}

/// The objects of an API server, and their resolution.
#[derive(Debug)]
pub struct Resolver {
    /// The namespaces of the settings; `labelled` is empty.
    tenancy: Tenancy,
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    entities: BTreeMap<Entity, Members>,
    /// Namespaces with the tenant labels, by the peer.
    namespaces: BTreeMap<String, BTreeMap<String, ObjectMeta>>,
    /// The peer of each of these namespaces.
    peer_of_namespace: BTreeMap<String, String>,
    peer_count: usize,
    index: Index,
    blocks: blocks::Assignment,
    last_good: LastGood,
    /// The outcome of each entity that is not or not completely served.
    outcomes: BTreeMap<Entity, Outcome>,
    tenants: Arc<BTreeMap<String, String>>,
    resolution: Resolution,
    /// Whether the resolution depends on all objects. It then has to be computed from all after any change.
    is_global: bool,
}

#[derive(Debug, Default)]
struct Members {
    keys: BTreeSet<ObjectKey>,
    facts: Facts,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Outcome {
    refused: Vec<Error>,
    waiting: Vec<Waiting>,
    /// The reason why the peer is not served.
    unserved: Option<String>,
}

/// The effect of changes on the entities.
#[derive(Debug, Default)]
struct Dirty {
    /// Entities that have changed, and those that depended on their state before.
    entities: BTreeSet<Entity>,
    /// Names of the Configurations that were deleted.
    deleted: BTreeSet<(Option<String>, Option<String>)>,
}

impl Resolver {
    /// Creates a resolver without objects, for an installation in the namespace `liqo`. `named` are the
    /// namespaces that the settings name as tenant namespaces of any peer.
    pub fn new(liqo: &str, named: &[String]) -> Self {
        Self {
            tenancy: Tenancy {
                liqo: liqo.to_owned(),
                named: named.to_vec(),
                labelled: Vec::new(),
            },
            objects: BTreeMap::new(),
            entities: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            peer_of_namespace: BTreeMap::new(),
            peer_count: 0,
            index: Index::default(),
            blocks: blocks::Assignment::default(),
            last_good: LastGood::default(),
            outcomes: BTreeMap::new(),
            tenants: Arc::default(),
            resolution: Resolution {
                fabric: Err(Errors(Vec::new())),
                refused: Vec::new(),
                waiting: Vec::new(),
                unserved: BTreeMap::new(),
            },
            is_global: true,
        }
    }

    /// Applies changes and returns the new resolution.
    ///
    /// The cost depends on the number of changed objects and of those that depend on them. It depends on the number of
    /// all objects if an object of the cluster itself has changed or is invalid, or if there are more than
    /// [`PEERS_MAX`] peers.
    pub fn apply(&mut self, changes: Changes) -> &Resolution {
        let mut dirty = Dirty::default();
        for (name, namespace) in changes.namespaces {
            self.set_namespace(&name, namespace, &mut dirty);
        }
        for (key, object) in changes.objects {
            self.set_object(key, object, &mut dirty);
        }
        let is_of_cluster = dirty.entities.contains(&Entity::Cluster);
        if self.blocks.set(changes.blocks) || is_of_cluster {
            self.assign_blocks(&mut dirty);
        }

        let is_global = self.is_global || is_of_cluster || self.peer_count > PEERS_MAX;
        let is_unchanged = dirty.entities.is_empty() && !self.is_global;
        if !is_unchanged && (is_global || !self.resolve_part(dirty)) {
            self.resolve_all();
        }

        &self.resolution
    }

    /// Returns the resolution of all changes that were applied.
    pub fn resolution(&self) -> &Resolution {
        &self.resolution
    }

    /// Returns the objects, with the prefixes of the CNI in Nodes.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values().map(|object| &**object)
    }

    /// Returns the tenant namespace of each peer that has one, by cluster ID. A change creates another map,
    /// so equal pointers mean that the map is unchanged.
    pub fn tenant_namespaces(&self) -> &Arc<BTreeMap<String, String>> {
        &self.tenants
    }

    fn set_namespace(&mut self, name: &str, namespace: Option<ObjectMeta>, dirty: &mut Dirty) {
        let namespace = namespace.and_then(|namespace| {
            let peer = tenant_namespace::peer_of(&namespace)?.to_owned();
            Some((peer, namespace))
        });
        if let Some(peer) = self.peer_of_namespace.remove(name) {
            if let Some(namespaces) = self.namespaces.get_mut(&peer) {
                namespaces.remove(name);
                if namespaces.is_empty() {
                    self.namespaces.remove(&peer);
                }
            }
            self.update(Entity::Peer(peer), dirty);
        }
        if let Some((peer, namespace)) = namespace {
            let namespaces = self.namespaces.entry(peer.clone()).or_default();
            namespaces.insert(name.to_owned(), namespace);
            self.peer_of_namespace.insert(name.to_owned(), peer.clone());
            self.update(Entity::Peer(peer), dirty);
        }
    }

    fn set_object(&mut self, key: ObjectKey, object: Option<Arc<Object>>, dirty: &mut Dirty) {
        let object = object.map(|mut object| {
            set_reference_namespace(&mut object);
            self.blocks.set_node(&key, Some(&mut object));
            object
        });
        if object.is_none() {
            self.blocks.set_node(&key, None);
            dirty.deleted.extend(key.configuration());
        }
        self.put(key, object, dirty);
    }

    /// Sets an object in its final form.
    fn put(&mut self, key: ObjectKey, object: Option<Arc<Object>>, dirty: &mut Dirty) {
        let liqo = &self.tenancy.liqo;
        let new = object.as_ref().and_then(|it| Entity::of(it, liqo));
        let old = match object {
            Some(object) if new.is_some() => self.objects.insert(key.clone(), object),
            Some(_) | None => self.objects.remove(&key),
        };
        let old = old.and_then(|it| Entity::of(&it, liqo));
        if let Some(old) = old.filter(|old| Some(old) != new.as_ref()) {
            if let Some(members) = self.entities.get_mut(&old) {
                members.keys.remove(&key);
            }
            self.update(old, dirty);
        }
        if let Some(new) = new {
            let members = self.entities.entry(new.clone());
            let is_new = matches!(members, std::collections::btree_map::Entry::Vacant(_));
            members.or_default().keys.insert(key);
            self.peer_count += usize::from(is_new && new.is_peer());
            self.update(new, dirty);
        }
    }

    /// Recomputes the facts of an entity, and marks the entities that depended on the old ones.
    fn update(&mut self, entity: Entity, dirty: &mut Dirty) {
        let is_labelled =
            matches!(&entity, Entity::Peer(peer) if self.namespaces.contains_key(peer));
        if let Some(members) = self.entities.get_mut(&entity) {
            dirty.entities.extend(self.index.readers(&members.facts));
            self.index.remove(&entity, &members.facts);
            let objects = members.keys.iter().filter_map(|key| self.objects.get(key));
            members.facts = Facts::of(objects.map(|object| &**object), &self.last_good);
            self.index.insert(&entity, &members.facts);
            if members.keys.is_empty() && !is_labelled {
                self.entities.remove(&entity);
                self.peer_count -= usize::from(entity.is_peer());
            }
        } else if is_labelled {
            self.entities.insert(entity.clone(), Members::default());
            self.peer_count += 1;
        }
        dirty.entities.insert(entity);
    }

    /// Assigns the prefixes of the CNI to nodes again.
    fn assign_blocks(&mut self, dirty: &mut Dirty) {
        let of_cluster = self.entities.get(&Entity::Cluster);
        let keys = of_cluster.into_iter().flat_map(|it| &it.keys);
        let networks = keys.filter_map(|key| self.objects.get(key));
        for (key, node) in self.blocks.assign(networks.map(|object| &**object)) {
            self.put(key, Some(node), dirty);
        }
    }

    /// Resolves all objects.
    fn resolve_all(&mut self) {
        let mut objects = Objects::default();
        for object in self.objects.values() {
            objects.push_shared(object.clone());
        }
        let labelled = self.namespaces.values().flat_map(BTreeMap::values);
        let tenancy = self.tenancy_of(labelled);
        self.tenants = Arc::new(tenancy.tenant_namespaces(&objects));
        let misplaced = tenancy.prune(&mut objects);
        let mut resolution = self.last_good.resolve(objects);
        resolution.refuse(misplaced);

        let names = part::names(&self.tenancy.liqo, self.objects.values());
        let outcomes = part::outcomes(&resolution, &names);
        self.is_global = resolution.fabric.is_err() || outcomes.is_none();
        self.outcomes = outcomes.unwrap_or_default();
        self.resolution = resolution;
    }

    fn tenancy_of<'a>(&'a self, labelled: impl Iterator<Item = &'a ObjectMeta>) -> Tenancy {
        Tenancy {
            labelled: labelled.cloned().collect(),
            ..self.tenancy.clone()
        }
    }

    /// Returns the served fabric, to be changed.
    fn fabric_mut(&mut self) -> Option<&mut Fabric> {
        self.resolution.fabric.as_mut().ok()
    }
}

#[cfg(test)]
mod tests;
