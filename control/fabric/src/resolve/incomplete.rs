//! Removes objects that are not complete yet. They are not errors, because another program will write the missing
//! part.

use super::super::objects::{Object, Objects};
use super::super::spec::node_ip_name;
use super::Waiting;
use control_api::networking::configuration::NETWORK_CIDRS_CONFIGURED;
use control_api::{Configuration, GatewayClient, IP, labels};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Missing status of a peer without remapped CIDRs, for [`Waiting`].
pub(super) const WAITS_FOR_CIDRS: &str =
    "its CIDRs in the Configuration's status, from Liqo's controller manager";

/// Removes incomplete objects, and returns those to report to users.
pub(super) fn prune_incomplete(objects: &mut Objects) -> Vec<Waiting> {
    let mut waiting = nodes(objects);
    replicas(objects);
    addresses(objects);
    waiting.extend(younger(objects));
    waiting.extend(peers(objects));
    waiting.sort();

    waiting
}

/// Removes virtual nodes, and nodes without address or mapped address.
fn nodes(objects: &mut Objects) -> Vec<Waiting> {
    let mapped: BTreeMap<_, _> = objects
        .of::<IP>()
        .filter(|ip| has_status(ip))
        .filter_map(|ip| Some((ip.metadata.name.clone()?, ip.spec.ip.clone())))
        .collect();
    let mut waiting = Vec::new();
    objects.retain(|object| {
        let Object::Node(node) = object else {
            return true;
        };
        if object.label_value(labels::NODE_TYPE) == Some(labels::NODE_TYPE_VIRTUAL) {
            return false; // It represents a peer, and runs no route agent.
        }
        let Some(missing) = missing_of_node(node, &mapped) else {
            return true;
        };
        waiting.push(Waiting {
            subject: format!("node {}", node.metadata.name.as_deref().unwrap_or_default()),
            missing,
            peer: None,
        });
        false
    });

    waiting
}

fn missing_of_node(node: &Node, mapped: &BTreeMap<String, String>) -> Option<&'static str> {
    let addresses = node.status.iter().flat_map(|status| &status.addresses);
    let internal: BTreeSet<_> = addresses
        .flatten()
        .filter(|address| address.type_ == "InternalIP")
        .map(|address| address.address.as_str())
        .collect();
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let address = mapped.get(&node_ip_name(name));

    if internal.is_empty() {
        Some("its InternalIP in status.addresses, from its kubelet")
    } else if address.is_none_or(|address| !internal.contains(address.as_str())) {
        Some("its IP object with a status, from Liqo's controller manager")
    } else {
        None
    }
}

/// Removes endpoints that lack a field or are on unknown nodes, and the second of two endpoints of a pod.
///
/// Kubernetes may list an endpoint in two slices while it moves the endpoint.
fn replicas(objects: &mut Objects) {
    let nodes: BTreeSet<_> = objects
        .of::<Node>()
        .filter_map(|node| node.metadata.name.clone())
        .collect();
    let mut seen = BTreeSet::new();
    for document in &mut objects.documents {
        if !matches!(*document.object, Object::EndpointSlice(_)) {
            continue;
        }
        if let Object::EndpointSlice(slice) = Arc::make_mut(&mut document.object) {
            keep_known(slice, &nodes, &mut seen);
        }
    }
    objects.retain(|object| {
        !matches!(object, Object::EndpointSlice(slice) if slice.endpoints.as_ref().is_none_or(Vec::is_empty))
    });
}

fn keep_known(slice: &mut EndpointSlice, nodes: &BTreeSet<String>, seen: &mut BTreeSet<String>) {
    if slice.address_type != "IPv4" {
        slice.endpoints = None;
        return;
    }
    let Some(endpoints) = &mut slice.endpoints else {
        return;
    };
    endpoints.retain(|endpoint| {
        let is_known = (endpoint.node_name.as_ref()).is_some_and(|name| nodes.contains(name));
        let target = endpoint.target_ref.as_ref();
        let name = target.and_then(|target| target.name.clone());
        let is_new = name.is_some_and(|name| seen.insert(name));

        is_known && is_new && !endpoint.addresses.is_empty()
    });
}

/// Removes IPs and users' Networks without a status.
fn addresses(objects: &mut Objects) {
    objects.retain(|object| match object {
        Object::IP(ip) => has_status(ip),
        Object::Network(network) => {
            let is_of_cluster = object.label_value(labels::NETWORK_TYPE).is_some();
            let status = network.status.as_ref();
            is_of_cluster || status.is_some_and(|status| status.cidr.is_some())
        }
        Object::ConfigMap(_)
        | Object::Node(_)
        | Object::EndpointSlice(_)
        | Object::Configuration(_)
        | Object::GatewayServer(_)
        | Object::GatewayClient(_)
        | Object::PublicKey(_)
        | Object::Connection(_) => true,
    });
}

fn has_status(ip: &IP) -> bool {
    ip.status.as_ref().is_some_and(|status| status.ip.is_some())
}

/// Removes all but the oldest object of each role of a peer.
fn younger(objects: &mut Objects) -> Vec<Waiting> {
    let mut oldest: BTreeMap<Role, Age> = BTreeMap::new();
    for object in objects.iter() {
        let Some(role) = role(object) else {
            continue;
        };
        let age = age(object);
        let first = oldest.entry(role).or_insert_with(|| age.clone());
        if age < *first {
            *first = age;
        }
    }

    let mut waiting = Vec::new();
    objects.retain(|object| {
        let first = role(object).and_then(|role| oldest.get(&role));
        let is_oldest = first.is_none_or(|first| *first == age(object));
        if !is_oldest {
            waiting.push(Waiting {
                subject: object.label(),
                missing: "the removal of an older object of the same kind and peer",
                peer: None,
            });
        }
        is_oldest
    });

    waiting
}

/// A role that only one object of a peer can have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Configuration(String),
    Gateway(String),
    PublicKey(String),
}

/// Time of creation, then kind and name.
type Age = (Option<Time>, String);

fn age(object: &Object) -> Age {
    (object.metadata().creation_timestamp.clone(), object.label())
}

fn role(object: &Object) -> Option<Role> {
    let peer = object.peer().filter(|peer| !peer.is_empty())?.to_owned();
    let role = if matches!(object, Object::Configuration(_)) {
        Role::Configuration
    } else if matches!(object, Object::PublicKey(_)) {
        Role::PublicKey
    } else {
        Role::Gateway
    };

    Some(role(peer))
}

/// The objects of a peering that exist.
#[derive(Default)]
struct Parts {
    configured: bool,
    configuration: bool,
    gateway: bool,
    endpoint: bool,
    key: bool,
}

impl Parts {
    fn missing(&self) -> Option<&'static str> {
        if !self.configuration {
            Some("its Configuration: `liqoctl network connect` writes it")
        } else if !self.configured {
            Some(WAITS_FOR_CIDRS)
        } else if !self.gateway {
            Some("its GatewayServer or GatewayClient: `liqoctl network connect` writes it")
        } else if !self.endpoint {
            Some("spec.endpoint of its GatewayClient: `liqoctl network connect` writes it")
        } else if !self.key {
            Some("its PublicKey: `liqoctl network connect` writes it")
        } else {
            None
        }
    }
}

/// Removes all objects of peers that lack an object.
fn peers(objects: &mut Objects) -> Vec<Waiting> {
    let mut parts: BTreeMap<String, Parts> = BTreeMap::new();
    for object in objects.iter() {
        // An object without this label is an error, which the check reports.
        let Some(peer) = object.peer().filter(|peer| !peer.is_empty()) else {
            continue;
        };
        let parts = parts.entry(peer.to_owned()).or_default();
        match object {
            Object::Configuration(configuration) => {
                parts.configuration = true;
                parts.configured |= is_configured(configuration);
            }
            Object::GatewayServer(_) => {
                parts.gateway = true;
                parts.endpoint = true;
            }
            Object::GatewayClient(client) => {
                parts.gateway = true;
                parts.endpoint |= has_endpoint(client);
            }
            Object::PublicKey(_) => parts.key = true,
            Object::ConfigMap(_)
            | Object::Node(_)
            | Object::EndpointSlice(_)
            | Object::Network(_)
            | Object::IP(_)
            | Object::Connection(_) => {}
        }
    }

    let waiting: BTreeMap<_, _> = parts
        .into_iter()
        .filter_map(|(peer, parts)| Some((peer, parts.missing()?)))
        .collect();
    objects.retain(|object| object.peer().is_none_or(|peer| !waiting.contains_key(peer)));
    waiting
        .into_iter()
        .map(|(peer, missing)| Waiting::of_peer(peer, missing))
        .collect()
}

pub(super) fn is_configured(configuration: &Configuration) -> bool {
    let conditions = configuration.status.iter().flat_map(|it| &it.conditions);
    conditions
        .filter(|condition| condition.type_ == NETWORK_CIDRS_CONFIGURED)
        .any(|condition| {
            condition.status == "True"
                && condition.observed_generation == configuration.metadata.generation
        })
}

fn has_endpoint(client: &GatewayClient) -> bool {
    let endpoint = client.spec.endpoint.as_ref();
    endpoint.is_some_and(|endpoint| !endpoint.addresses.is_empty())
}
