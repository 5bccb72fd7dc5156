//! Objects of different owners that claim the same CIDR or key.

use super::{Tenancy, namespace, place};
use crate::cidr;
use crate::error::{Error, Place, Problem};
use crate::objects::{Object, Objects};
use control_api::tenant_namespace::{self, Seniority};
use control_api::{Configuration, Network, PublicKey, labels};
use ipnet::Ipv4Net;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Field with the CIDR of a Network.
const STATUS_CIDR: &str = "status.cidr";

impl Tenancy {
    /// Removes the PublicKeys with the key of an older peer.
    ///
    /// The public keys of all peers are readable, and a gateway cannot distinguish two peers with one key.
    pub(super) fn prune_copied_keys(&self, objects: &mut Objects) -> Vec<Error> {
        let namespaces = self.labelled.iter().filter_map(|labelled| {
            let name = labelled.name.as_deref()?;
            Some(((name, tenant_namespace::peer_of(labelled)?), labelled))
        });
        let namespaces: BTreeMap<_, _> = namespaces.collect();
        let mut owners: BTreeMap<Vec<u8>, (KeyRank, Place)> = BTreeMap::new();
        for object in objects.iter() {
            let Some((bytes, rank)) = key_rank(object, &namespaces) else {
                continue;
            };
            let place = place(object, "");
            let owner = owners
                .entry(bytes)
                .or_insert_with(|| (rank.clone(), place.clone()));
            if rank < owner.0 {
                *owner = (rank, place);
            }
        }

        let mut errors = Vec::new();
        objects.retain(|object| {
            let claimed = key_rank(object, &namespaces).zip(object.peer());
            let Some(((bytes, _), peer)) = claimed else {
                return true;
            };
            let other = owners.get(&bytes).filter(|(rank, _)| rank.peer != peer);
            errors.extend(other.map(|(_, other)| Error {
                place: place(object, "spec.publicKey"),
                problem: Problem::CopiedKey {
                    peer: peer.to_owned(),
                    other: Box::new(other.clone()),
                },
            }));
            other.is_none()
        });

        errors
    }

    /// Removes the Networks of users that overlap a CIDR of Liqo's Networks, of a peer, or of an older Network of
    /// a user.
    ///
    /// A user with rights on Networks of one namespace sets their labels and, depending on the rights, their
    /// status. An overlap must not stop the cluster or a peer. The controller manager allocates no CIDR
    /// twice, so such a status was written by another client, or the manager will correct it.
    pub(super) fn prune_networks(&self, objects: &mut Objects) -> Vec<Error> {
        let mut trusted = Cidrs::default();
        let mut of_users = BTreeSet::new();
        for object in objects.iter() {
            if let Object::Configuration(configuration) = object {
                trusted.extend(remote_cidrs(configuration), &place(object, "status.remote"));
            }
            // A Network that copies a CIDR of a Configuration is not read.
            if let Object::Network(network) = object
                && object
                    .label_value(labels::CONFIGURATION_CIDR_TYPE)
                    .is_none()
            {
                if namespace(object) == self.liqo {
                    trusted.extend(network_cidrs(object, network), &place(object, STATUS_CIDR));
                } else {
                    of_users.insert((
                        age(object),
                        network_cidrs(object, network),
                        is_shared(object),
                    ));
                }
            }
        }

        let (mut all, mut exclusive) = (trusted.clone(), trusted);
        let mut overlaps = BTreeMap::new();
        for ((created, label), cidrs, is_shared) in of_users {
            let others = if is_shared { &exclusive } else { &all };
            let overlap = cidrs
                .iter()
                .find_map(|cidr| Some((*cidr, others.find(*cidr)?)));
            if let Some((cidr, (other, place))) = overlap {
                let problem = Problem::Overlap {
                    cidr,
                    other,
                    of: Box::new(place.clone()),
                };
                overlaps.insert((created, label), problem);
                continue;
            }
            let place = Place {
                position: None,
                object: label,
                field: STATUS_CIDR.to_owned(),
            };
            if !is_shared {
                exclusive.extend(cidrs.clone(), &place);
            }
            all.extend(cidrs, &place);
        }

        let mut errors = Vec::new();
        objects.retain(|object| {
            let problem = overlaps.remove(&age(object));
            let is_right = problem.is_none();
            errors.extend(problem.map(|problem| Error {
                place: place(object, STATUS_CIDR),
                problem,
            }));
            is_right
        });

        errors
    }
}

/// Metadata of the tenant namespaces, by name and peer.
type LabelledNamespaces<'a> = BTreeMap<(&'a str, &'a str), &'a ObjectMeta>;

/// Returns the key of a PublicKey, and its rank among the owners of that key.
fn key_rank(object: &Object, namespaces: &LabelledNamespaces<'_>) -> Option<(Vec<u8>, KeyRank)> {
    let key: &PublicKey = object.try_into().ok()?;
    let bytes = key.spec.public_key.as_ref()?;
    let peer = object.peer()?;
    let labelled = namespaces.get(&(namespace(object), peer)).copied();
    let rank = KeyRank {
        seniority: tenant_namespace::seniority(labelled),
        age: age(object),
        peer: peer.to_owned(),
    };

    Some((bytes.0.clone(), rank))
}

/// Orders the PublicKeys with one key; the key belongs to the first one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct KeyRank {
    seniority: Seniority,
    age: Age,
    peer: String,
}

/// Time of creation, then kind and name.
type Age = (Option<Time>, String);

fn age(object: &Object) -> Age {
    let metadata: &ObjectMeta = object.metadata();
    (metadata.creation_timestamp.clone(), object.label())
}

/// Returns the remapped CIDRs of a peer.
fn remote_cidrs(configuration: &Configuration) -> Vec<Ipv4Net> {
    let status = configuration.status.as_ref();
    let remote = status.and_then(|status| status.remote.as_ref());
    let cidrs = remote.map(|remote| &remote.cidr).into_iter();
    let texts = cidrs.flat_map(|cidr| cidr.pod.iter().chain(&cidr.external));

    texts.filter_map(|text| cidr::cidr(text).ok()).collect()
}

/// Returns the CIDRs that a Network claims: that of its status and, if it must not be remapped, that of its spec.
fn network_cidrs(object: &Object, network: &Network) -> Vec<Ipv4Net> {
    let status = network.status.as_ref();
    let status = status.and_then(|status| status.cidr.as_ref());
    let is_fixed = object.label_value(labels::NETWORK_NOT_REMAPPED) == Some("true");
    let spec = Some(&network.spec.cidr).filter(|_| is_fixed && status.is_some());
    let texts = status.into_iter().chain(spec);

    texts.filter_map(|text| cidr::cidr(text).ok()).collect()
}

fn is_shared(object: &Object) -> bool {
    object.label_value(labels::NETWORK_SHARED) == Some("true")
}

/// Owners of CIDRs, by first address and prefix length.
#[derive(Clone, Debug, Default)]
struct Cidrs(BTreeMap<(Ipv4Addr, u8), Place>);

impl Cidrs {
    fn extend(&mut self, cidrs: Vec<Ipv4Net>, place: &Place) {
        for cidr in cidrs {
            self.0.entry(key(cidr)).or_insert_with(|| place.clone());
        }
    }

    /// Returns a CIDR that overlaps `cidr`, in O(log n).
    fn find(&self, cidr: Ipv4Net) -> Option<(Ipv4Net, &Place)> {
        let outer = (0..=cidr.prefix_len()).find_map(|len| {
            let outer = Ipv4Net::new(cidr.addr(), len).ok()?.trunc();
            Some((outer, self.0.get(&key(outer))?))
        });

        outer.or_else(|| {
            let (&(address, len), place) = self.0.range(key(cidr)..).next()?;
            let inner = Ipv4Net::new(address, len).ok()?;
            cidr.contains(&inner).then_some((inner, place))
        })
    }
}

fn key(cidr: Ipv4Net) -> (Ipv4Addr, u8) {
    (cidr.network(), cidr.prefix_len())
}
