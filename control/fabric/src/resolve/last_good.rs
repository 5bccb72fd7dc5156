//! Serves a peer by its last good Configuration while a new one is being completed.
//!
//! A change of a peer's CIDRs makes its Configuration incomplete until the controller manager has remapped the
//! new CIDRs. That takes a moment, or until the manager is available again. Without the last good state, the
//! peer's tunnel would be closed meanwhile, and upstream's gateways would reconnect only seconds later.
//!
//! A stale CIDR may have been reassigned, so it never causes another object to be refused: an object with a last
//! good state loses each conflict, and its peer then waits.

use super::super::objects::{Object, Objects};
use super::incomplete::is_configured;
use super::{Resolution, resolve};
use control_api::Configuration;
use control_api::networking::configuration::{NETWORK_CIDRS_CONFIGURED, WAITING_FOR_NETWORKS};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The last complete Configuration of each peer.
#[derive(Clone, Debug, Default)]
pub struct LastGood {
    complete: BTreeMap<Name, Arc<Object>>,
}

/// Namespace and name.
pub(crate) type Name = (Option<String>, Option<String>);

impl LastGood {
    /// Resolves all objects, like [`resolve()`], with the last good Configurations.
    pub fn resolve(&mut self, objects: Objects) -> Resolution {
        let names = self.complete.keys().cloned().collect();

        self.resolve_part(objects, &names)
    }

    /// Resolves a part of the objects. Drops the Configurations of `names` that are not among them.
    pub(crate) fn resolve_part(
        &mut self,
        mut objects: Objects,
        names: &BTreeSet<Name>,
    ) -> Resolution {
        self.store(&objects, names);
        self.replace_incomplete(&mut objects);

        resolve(objects)
    }

    /// Returns the last complete state of a Configuration.
    pub(crate) fn get(&self, name: &Name) -> Option<&Arc<Object>> {
        self.complete.get(name)
    }

    /// Stores complete Configurations, keeps those whose new state is in progress, and drops others.
    fn store(&mut self, objects: &Objects, names: &BTreeSet<Name>) {
        let mut stale = names.clone();
        for document in &objects.documents {
            let Object::Configuration(configuration) = &*document.object else {
                continue;
            };
            let name = name(configuration);
            let known = self.complete.get(&name);
            if is_configured(configuration) {
                self.complete.insert(name.clone(), document.object.clone());
                stale.remove(&name);
            } else if known.is_some_and(|known| is_in_progress(&document.object, known)) {
                stale.remove(&name);
            } else {
                stale.insert(name);
            }
        }
        for name in stale {
            self.complete.remove(&name);
        }
    }

    /// Replaces each incomplete Configuration by its last good state.
    fn replace_incomplete(&self, objects: &mut Objects) {
        for document in &mut objects.documents {
            let Object::Configuration(configuration) = &*document.object else {
                continue;
            };
            if is_configured(configuration) {
                continue;
            }
            if let Some(known) = self.complete.get(&name(configuration)) {
                document.object = known.clone();
                document.is_last_good = true;
            }
        }
    }
}

pub(crate) fn name(configuration: &Configuration) -> Name {
    let metadata = &configuration.metadata;
    (metadata.namespace.clone(), metadata.name.clone())
}

/// Returns whether the controller manager has not handled the object yet, or allocates CIDRs for it.
///
/// `known` is the last complete state of the same name, which may be that of another object.
fn is_in_progress(object: &Object, known: &Object) -> bool {
    let Object::Configuration(configuration) = object else {
        return false;
    };
    let metadata = &configuration.metadata;
    let status = configuration.status.as_ref();
    let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
    let verdict = conditions.find(|condition| condition.type_ == NETWORK_CIDRS_CONFIGURED);

    metadata.uid == known.metadata().uid
        && object.peer() == known.peer()
        && metadata.deletion_timestamp.is_none()
        && verdict.is_none_or(|verdict| {
            verdict.observed_generation != metadata.generation
                || verdict.reason == WAITING_FOR_NETWORKS
        })
}
