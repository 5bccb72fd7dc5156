//! Resolves the objects of an API server to the part of a fabric that can be served now.
//!
//! A file has one author, so it is accepted or rejected as a whole. An API server has many authors, who write
//! one object after the other. An incomplete object therefore waits, and an invalid object is refused together
//! with all objects of its peer, so that it does not affect other peers.

use super::error::{Error, Errors};
use super::objects::{Object, Objects};
use super::view::Fabric;
use control_api::labels;
use incomplete::{WAITS_FOR_CIDRS, prune_incomplete};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

mod incomplete;
mod last_good;

pub use last_good::LastGood;
pub(super) use last_good::name;

/// The part of the objects that can be served, and the reasons why the rest is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// The served part.
    ///
    /// An error if an object of the cluster itself is missing or invalid. Nothing can be served then.
    pub fabric: Result<Fabric, Errors>,
    /// The errors of all objects that are refused, sorted by object.
    pub refused: Vec<Error>,
    /// The incomplete objects, sorted.
    pub waiting: Vec<Waiting>,
    /// The reason why a peer is not served, by cluster ID.
    pub unserved: BTreeMap<String, String>,
}

/// An object or a peer that is not complete yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// For example `peer milan` or `node rome-1`.
    pub subject: String,
    /// The missing object or field, and its writer.
    pub missing: &'static str,
    /// Cluster ID of the peer that is not served until then.
    pub peer: Option<String>,
}

/// Maximum number of rounds. Each round removes all objects with known errors, and reveals errors that these
/// errors have hidden.
const ROUNDS_MAX: usize = 16;

/// Removes incomplete and invalid objects, and returns the remaining ones as a fabric.
pub fn resolve(mut objects: Objects) -> Resolution {
    let waiting = prune_incomplete(&mut objects);
    let peers = waiting
        .iter()
        .filter_map(|it| Some((it.peer.clone()?, it.to_string())));
    let mut resolution = Resolution {
        unserved: peers.collect(),
        refused: Vec::new(),
        fabric: Fabric::try_from(&objects),
        waiting,
    };
    for _ in 0..ROUNDS_MAX {
        let Err(errors) = &resolution.fabric else {
            break;
        };
        let errors = errors.clone();
        if !resolution.remove_refused(&mut objects, &errors) {
            break;
        }
        resolution.fabric = Fabric::try_from(&objects);
    }
    resolution.sort();

    resolution
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits for {}", self.subject, self.missing)
    }
}

impl Resolution {
    /// Removes the objects with errors, and all objects of their peers. Returns whether there was any such
    /// object.
    fn remove_refused(&mut self, objects: &mut Objects, errors: &Errors) -> bool {
        let mut invalid = BTreeMap::new();
        for error in &errors.0 {
            invalid.entry(error.place.object.as_str()).or_insert(error);
        }
        let mut peers = BTreeMap::new();
        let mut labels = BTreeSet::new();
        for object in objects.iter() {
            let label = object.label();
            let Some(error) = invalid.get(label.as_str()) else {
                continue;
            };
            if let Some(peer) = object.peer() {
                peers.entry(peer.to_owned()).or_insert(*error);
            } else if is_dispensable(object) {
                labels.insert(label);
            }
        }
        if peers.is_empty() && labels.is_empty() {
            return false;
        }

        let outdated = last_good_of(objects, &peers);
        let of_outdated = outdated.labels;
        let errors = errors.0.iter();
        let errors = errors.filter(|error| !of_outdated.contains(&error.place.object));
        self.refused.extend(errors.cloned());
        for (peer, error) in &peers {
            let cause = if outdated.peers.contains(peer) {
                // Its last good state conflicts with a newer one, so it waits for its own new state.
                let waiting = Waiting::of_peer(peer.clone(), WAITS_FOR_CIDRS);
                let cause = waiting.to_string();
                self.waiting.push(waiting);
                cause
            } else {
                error.to_string()
            };
            self.unserved.entry(peer.clone()).or_insert(cause);
        }
        objects.retain(|object| {
            let is_of_peer = object.peer().is_some_and(|peer| peers.contains_key(peer));
            !is_of_peer && !labels.contains(&object.label())
        });
        true
    }

    pub(super) fn sort(&mut self) {
        self.waiting.sort();
        self.refused.sort_by_cached_key(|error| {
            let place = &error.place;
            (place.object.clone(), place.field.clone(), error.to_string())
        });
    }
}

impl Waiting {
    fn of_peer(peer: String, missing: &'static str) -> Self {
        Self {
            subject: format!("peer {peer}"),
            missing,
            peer: Some(peer),
        }
    }
}

/// The peers that are served by the last good state of their Configuration.
#[derive(Default)]
struct Outdated {
    peers: BTreeSet<String>,
    /// Kind and name of all their objects.
    labels: BTreeSet<String>,
}

fn last_good_of<T>(objects: &Objects, among: &BTreeMap<String, T>) -> Outdated {
    let documents = objects.documents.iter();
    let documents = documents.filter(|document| document.is_last_good);
    let peers = documents.filter_map(|document| document.object.peer());
    let peers = peers.filter(|peer| among.contains_key(*peer));
    let peers: BTreeSet<_> = peers.map(str::to_owned).collect();
    if peers.is_empty() {
        return Outdated::default();
    }
    let of_peers = |object: &&Object| object.peer().is_some_and(|peer| peers.contains(peer));
    let labels = objects.iter().filter(of_peers).map(Object::label);

    Outdated {
        labels: labels.collect(),
        peers,
    }
}

/// Returns whether the cluster can be served without the object.
fn is_dispensable(object: &Object) -> bool {
    match object {
        Object::Node(_) | Object::EndpointSlice(_) | Object::IP(_) | Object::Connection(_) => true,
        // Without a Network of the cluster itself, an address could be allocated twice.
        Object::Network(_) => object.label_value(labels::NETWORK_TYPE).is_none(),
        Object::ConfigMap(_)
        | Object::Configuration(_)
        | Object::GatewayServer(_)
        | Object::GatewayClient(_)
        | Object::PublicKey(_) => false,
    }
}

#[cfg(test)]
mod tests;
