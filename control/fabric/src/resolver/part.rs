//! Resolves the entities that depend on a change.

use super::entity::Entity;
use super::{Dirty, Outcome, Resolver};
use crate::objects::{Object, Objects};
use crate::resolve::Resolution;
use crate::view::Fabric;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Resolver {
    /// Resolves the entities that depend on a change. Returns false if that does not suffice.
    pub(super) fn resolve_part(&mut self, dirty: Dirty) -> bool {
        let affected = self.affected(dirty.entities);
        let mut connected = self.connected(affected.clone());
        connected.insert(Entity::Cluster);
        let members = connected.iter().filter_map(|it| self.entities.get(it));
        let keys: BTreeSet<_> = members.flat_map(|members| &members.keys).collect();
        let mut configurations = dirty.deleted;
        let mut objects = Objects::default();
        let mut names = BTreeMap::new();
        for key in keys {
            configurations.extend(key.configuration());
            if let Some(object) = self.objects.get(key) {
                objects.push_shared(object.clone());
                add_names(&mut names, object, &self.tenancy.liqo);
            }
        }

        let peers = connected.iter().filter_map(Entity::peer);
        let peers = peers.filter_map(|peer| self.namespaces.get(peer));
        let tenancy = self.tenancy_of(peers.flat_map(BTreeMap::values));
        let mut tenants = tenancy.tenant_namespaces(&objects);
        let misplaced = tenancy.prune(&mut objects);
        let mut part = self.last_good.resolve_part(objects, &configurations);
        part.refuse(misplaced);
        let (Ok(fabric), Some(mut outcomes)) = (&part.fabric, outcomes(&part, &names)) else {
            return false;
        };

        self.merge_fabric(&affected, fabric);
        let mut is_changed = false;
        for entity in affected {
            if let Entity::Peer(peer) = &entity {
                self.set_tenant_namespace(peer, tenants.remove(peer));
            }
            let new = outcomes.remove(&entity);
            is_changed |= self.outcomes.get(&entity) != new.as_ref();
            match new {
                Some(outcome) => self.outcomes.insert(entity, outcome),
                None => self.outcomes.remove(&entity),
            };
        }
        if is_changed {
            self.collect_outcomes();
        }
        true
    }

    fn set_tenant_namespace(&mut self, peer: &str, namespace: Option<String>) {
        if self.tenants.get(peer) == namespace.as_ref() {
            return; // Most changes do not change the tenant namespace, and need no copy of the map.
        }
        let tenants = Arc::make_mut(&mut self.tenants);
        match namespace {
            Some(namespace) => tenants.insert(peer.to_owned(), namespace),
            None => tenants.remove(peer),
        };
    }

    /// Adds the entities that depend on the given ones.
    fn affected(&self, entities: BTreeSet<Entity>) -> BTreeSet<Entity> {
        self.closure(entities, |facts| self.index.readers(facts))
    }

    /// Adds the entities that the given ones depend on.
    fn connected(&self, entities: BTreeSet<Entity>) -> BTreeSet<Entity> {
        self.closure(entities, |facts| self.index.providers(facts))
    }

    fn closure(
        &self,
        mut entities: BTreeSet<Entity>,
        neighbours: impl Fn(&super::Facts) -> BTreeSet<Entity>,
    ) -> BTreeSet<Entity> {
        let mut unvisited: Vec<_> = entities.iter().cloned().collect();
        while let Some(entity) = unvisited.pop() {
            let Some(members) = self.entities.get(&entity) else {
                continue;
            };
            for neighbour in neighbours(&members.facts) {
                if entities.insert(neighbour.clone()) {
                    unvisited.push(neighbour);
                }
            }
        }

        entities
    }

    fn merge_fabric(&mut self, affected: &BTreeSet<Entity>, part: &Fabric) {
        let Some(fabric) = self.fabric_mut() else {
            return;
        };
        for entity in affected {
            match entity {
                Entity::Replicas => fabric.replicas.clone_from(&part.replicas),
                Entity::Node(name) => {
                    let key = (name.as_str(), "");
                    fabric.nodes.set(key, part.nodes.find(key));
                }
                Entity::Ip(namespace, name) => {
                    let key = (name.as_str(), namespace.as_str());
                    fabric.ips.set(key, part.ips.find(key));
                }
                Entity::Peer(peer) => {
                    let key = (peer.as_str(), "");
                    fabric.peers.set(key, part.peers.find(key));
                }
                Entity::Cluster | Entity::Network(..) => {}
            }
        }
    }

    /// Collects the outcomes of all entities in the resolution.
    fn collect_outcomes(&mut self) {
        let outcomes = self.outcomes.values();
        let refused = outcomes.clone().flat_map(|outcome| &outcome.refused);
        self.resolution.refused = refused.cloned().collect();
        let waiting = outcomes.flat_map(|outcome| &outcome.waiting);
        self.resolution.waiting = waiting.cloned().collect();
        let unserved = self.outcomes.iter().filter_map(|(entity, outcome)| {
            let Entity::Peer(peer) = entity else {
                return None;
            };
            Some((peer.clone(), outcome.unserved.clone()?))
        });
        self.resolution.unserved = unserved.collect();
        self.resolution.sort();
    }
}

/// Returns the entities by the names that errors and waiting objects have in messages.
pub(super) fn names<'a>(
    liqo: &str,
    objects: impl Iterator<Item = &'a Arc<Object>>,
) -> BTreeMap<String, Entity> {
    let mut names = BTreeMap::new();
    for object in objects {
        add_names(&mut names, object, liqo);
    }

    names
}

fn add_names(names: &mut BTreeMap<String, Entity>, object: &Object, liqo: &str) {
    let Some(entity) = Entity::of(object, liqo) else {
        return;
    };
    if let Entity::Node(name) = &entity {
        names.insert(format!("node {name}"), entity.clone());
    } else if let Entity::Peer(peer) = &entity {
        names.insert(format!("peer {peer}"), entity.clone());
    }
    names.insert(object.label(), entity);
}

/// Returns the outcome of each entity that is not or not completely served.
///
/// Returns `None` if an object of the cluster itself is refused: the outcomes then depend on all objects.
pub(super) fn outcomes(
    resolution: &Resolution,
    names: &BTreeMap<String, Entity>,
) -> Option<BTreeMap<Entity, Outcome>> {
    let mut outcomes: BTreeMap<Entity, Outcome> = BTreeMap::new();
    let entity = |name: &str| {
        let entity = names.get(name)?;
        (*entity != Entity::Cluster).then(|| entity.clone())
    };
    for error in &resolution.refused {
        let outcome = outcomes.entry(entity(&error.place.object)?).or_default();
        outcome.refused.push(error.clone());
    }
    for waiting in &resolution.waiting {
        let outcome = outcomes.entry(entity(&waiting.subject)?).or_default();
        outcome.waiting.push(waiting.clone());
    }
    for (peer, cause) in &resolution.unserved {
        let outcome = outcomes.entry(Entity::Peer(peer.clone())).or_default();
        outcome.unserved = Some(cause.clone());
    }

    Some(outcomes)
}
