//! Removes objects of an API server that are in a wrong namespace.
//!
//! The objects of a fabric are in many namespaces, with different permissions. A file has a single author, so
//! its objects do not pass this step.

use super::error::{Error, Place, Problem};
use super::objects::{Object, Objects};
use super::resolve::Resolution;
use super::spec::node_ip_name;
use control_api::labels;
use control_api::tenant_namespace::{self, Misplaced};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod claims;

/// The namespaces that objects are read from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tenancy {
    /// Namespace of Liqo, with the Networks of this cluster and the IPs of its nodes.
    pub liqo: String,
    /// Namespaces that the settings allow as tenant namespaces of any peer.
    pub named: Vec<String>,
    /// Metadata of the namespaces with the tenant labels.
    pub labelled: Vec<ObjectMeta>,
}

impl Tenancy {
    /// Removes the objects in a wrong namespace, and those that claim the CIDR or the key of a
    /// more trusted or older object. Returns an error for each.
    ///
    /// A reference of an IP to a Network without namespace gets the namespace of the IP.
    pub fn prune(&self, objects: &mut Objects) -> Vec<Error> {
        let tenants = self.tenant_namespaces(objects);
        let node_ips: BTreeSet<_> = objects
            .of::<Node>()
            .filter_map(|node| node.metadata.name.as_deref().map(node_ip_name))
            .collect();
        let mut errors = Vec::new();
        objects.retain(|object| {
            let wrong = match object.peer().filter(|peer| !peer.is_empty()) {
                Some(peer) => check_tenant(object, peer, tenants.get(peer)),
                None => self.check_own(object, &node_ips),
            };
            let is_right = wrong.is_ok();
            errors.extend(wrong.err().map(|(field, problem)| Error {
                place: place(object, field),
                problem,
            }));
            is_right
        });
        errors.extend(self.prune_copied_keys(objects));
        errors.extend(self.prune_networks(objects));
        set_reference_namespaces(objects);

        errors
    }

    /// Returns the tenant namespace of each peer that has one, by cluster ID.
    pub fn tenant_namespaces(&self, objects: &Objects) -> BTreeMap<String, String> {
        let mut labelled: BTreeMap<_, Vec<&ObjectMeta>> = BTreeMap::new();
        for namespace in &self.labelled {
            if let Some(peer) = tenant_namespace::peer_of(namespace) {
                labelled.entry(peer).or_default().push(namespace);
            }
        }
        let mut held: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for object in objects.iter() {
            if let Some(peer) = object.peer() {
                held.entry(peer).or_default().insert(namespace(object));
            }
        }

        let peers: BTreeSet<_> = labelled.keys().chain(held.keys()).copied().collect();
        peers
            .into_iter()
            .filter_map(|peer| {
                let labelled = labelled.get(peer).into_iter().flatten().copied();
                let held = held.get(peer);
                let holds = |name: &str| held.is_some_and(|held| held.contains(name));
                let tenant = tenant_namespace::choose(labelled, &self.named, holds)?;
                Some((peer.to_owned(), tenant.to_owned()))
            })
            .collect()
    }

    /// Checks the namespace of a Network of this cluster, or of the IP of one of its nodes.
    fn check_own(&self, object: &Object, node_ips: &BTreeSet<String>) -> Result<(), Wrong> {
        let is_own = if let Object::IP(ip) = object {
            let name = ip.metadata.name.as_ref();
            name.is_some_and(|name| node_ips.contains(name))
        } else {
            matches!(object, Object::Network(_))
                && object.label_value(labels::NETWORK_TYPE).is_some()
        };
        if !is_own || namespace(object) == self.liqo {
            return Ok(());
        }
        let liqo = self.liqo.clone();

        Err(("metadata.namespace", Problem::NotOfLiqo { liqo }))
    }
}

impl Resolution {
    /// Adds the objects that [`Tenancy::prune`] has removed.
    pub fn refuse(&mut self, misplaced: Vec<Error>) {
        for error in &misplaced {
            let peer = if let Problem::Misplaced(problem) = &error.problem {
                problem.peer()
            } else if let Problem::CopiedKey { peer, .. } = &error.problem {
                // The resolution reports that the peer waits for a key. The copied key is the cause.
                self.unserved.remove(peer);
                peer.as_str()
            } else {
                continue;
            };
            let fabric = self.fabric.as_ref();
            if fabric.is_ok_and(|fabric| fabric.peer(peer).is_none()) {
                let cause = self.unserved.entry(peer.to_owned());
                cause.or_insert_with(|| error.to_string());
            }
        }
        self.refused.extend(misplaced);
        self.sort();
    }
}

/// The invalid field, and its problem.
type Wrong = (&'static str, Problem);

fn check_tenant(object: &Object, peer: &str, tenant: Option<&String>) -> Result<(), Wrong> {
    let tenant = tenant.map(String::as_str);
    let checked = Misplaced::check(namespace(object), peer, tenant);

    checked.map_err(|problem| ("metadata.namespace", Problem::Misplaced(problem)))
}

/// Sets the namespace of references to Networks that name none.
///
/// Otherwise an IP could get its address from a Network of the same name in another namespace. Objects of a file
/// do not pass this step: there a name refers to a Network of any namespace.
fn set_reference_namespaces(objects: &mut Objects) {
    for document in &mut objects.documents {
        set_reference_namespace(&mut document.object);
    }
}

/// Sets the namespace of the reference of an IP to a Network, if the reference has none.
pub(super) fn set_reference_namespace(object: &mut Arc<Object>) {
    let Object::IP(ip) = &**object else {
        return;
    };
    let reference = ip.spec.network_ref.as_ref();
    let named = reference.map(|reference| reference.namespace.as_deref().unwrap_or_default());
    if named != Some("") {
        return;
    }
    if let Object::IP(ip) = Arc::make_mut(object)
        && let Some(reference) = &mut ip.spec.network_ref
    {
        reference.namespace.clone_from(&ip.metadata.namespace);
    }
}

fn place(object: &Object, field: &str) -> Place {
    Place {
        position: None,
        object: object.label(),
        field: field.to_owned(),
    }
}

fn namespace(object: &Object) -> &str {
    object.metadata().namespace.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
