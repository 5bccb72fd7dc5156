//! Of the objects of an API server, those that can be served now.
//!
//! A file is one person's and is taken or refused as a whole. In an API server many write, one object
//! after the other: what is not complete yet is waited for, and what is wrong is left out, with
//! everything of the same peer, so that it harms nobody else.

use super::error::{Error, Errors};
use super::objects::{Object, Objects};
use super::view::Fabric;
use complete::leave_out_incomplete;
use control_api::labels;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

mod complete;
mod steady;

pub use steady::Steady;

/// What can be served, and what cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// What can be served; nothing if the cluster's own objects are missing or wrong.
    pub fabric: Result<Fabric, Errors>,
    /// What was left out because it is wrong.
    pub refused: Vec<Error>,
    /// What was left out because something is still missing.
    pub waiting: Vec<Waiting>,
    /// The peers among all that, by cluster id, and why each is not served.
    pub unserved: BTreeMap<String, String>,
}

/// Something that is not complete yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// What waits: `peer milan`, `node rome-1`.
    pub what: String,
    /// What is missing.
    pub missing: &'static str,
    /// The cluster id of the peer that is not served before.
    pub peer: Option<String>,
}

/// Most times that objects are left out before all are given up. Each time leaves out all that is known to be
/// wrong, and shows what that was hiding.
const ROUNDS_MAX: usize = 16;

/// Leaves out what is not complete or wrong, and returns the rest as a fabric.
pub fn admit(mut objects: Objects) -> Admission {
    let waiting = leave_out_incomplete(&mut objects);
    let peers = waiting
        .iter()
        .filter_map(|it| Some((it.peer.clone()?, it.to_string())));
    let mut unserved: BTreeMap<_, _> = peers.collect();
    let mut refused = Vec::new();

    for _ in 0..ROUNDS_MAX {
        match Fabric::try_from(&objects) {
            Ok(fabric) => {
                return Admission {
                    fabric: Ok(fabric),
                    refused,
                    waiting,
                    unserved,
                };
            }
            Err(errors) if leave_out(&mut objects, &errors, &mut unserved) => {
                refused.extend(errors.0);
            }
            Err(errors) => {
                return Admission {
                    fabric: Err(errors),
                    refused,
                    waiting,
                    unserved,
                };
            }
        }
    }

    Admission {
        fabric: Fabric::try_from(&objects),
        refused,
        waiting,
        unserved,
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits for {}", self.what, self.missing)
    }
}

/// Removes what the errors are about, and notes the peers in `unserved`; returns whether that was
/// anything.
fn leave_out(
    objects: &mut Objects,
    errors: &Errors,
    unserved: &mut BTreeMap<String, String>,
) -> bool {
    let mut wrong = BTreeMap::new();
    for error in &errors.0 {
        wrong.entry(error.place.object.as_str()).or_insert(error);
    }
    let culprits = objects.iter().filter_map(|object| {
        let error = wrong.get(object.label().as_str())?;
        Some((object, error))
    });
    let mut peers = BTreeSet::new();
    let mut labels = BTreeSet::new();
    for (object, error) in culprits {
        match peer(object) {
            Some(peer) => {
                let cause = unserved.entry(peer.to_owned());
                cause.or_insert_with(|| error.to_string());
                peers.insert(peer.to_owned());
            }
            None if is_dispensable(object) => {
                labels.insert(object.label());
            }
            None => {}
        }
    }
    if peers.is_empty() && labels.is_empty() {
        return false;
    }

    objects.retain(|object| {
        let is_of_peer = peer(object).is_some_and(|peer| peers.contains(peer));
        !is_of_peer && !labels.contains(&object.label())
    });
    true
}

/// Returns the peer that an object of a peering is about; an empty one if it does not tell.
pub(super) fn peer(object: &Object) -> Option<&str> {
    match object {
        Object::Configuration(_)
        | Object::GatewayServer(_)
        | Object::GatewayClient(_)
        | Object::PublicKey(_) => Some(
            object
                .label_value(labels::REMOTE_CLUSTER_ID)
                .unwrap_or_default(),
        ),
        Object::ConfigMap(_)
        | Object::Node(_)
        | Object::EndpointSlice(_)
        | Object::Network(_)
        | Object::IP(_)
        | Object::Connection(_) => None,
    }
}

/// Returns whether the cluster can be served without it.
fn is_dispensable(object: &Object) -> bool {
    match object {
        Object::Node(_) | Object::EndpointSlice(_) | Object::IP(_) | Object::Connection(_) => true,
        // Without one of the cluster's own, addresses might be given out twice.
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
