//! Allocates the CIDRs and addresses that the objects of a file lack, and writes them into their statuses.
//!
//! The result does not depend on the order of the objects. Planning is idempotent, and a new object never takes
//! the CIDR or address of an old one. A status that does not fit its spec, or that overlaps another,
//! is replaced.

use super::addresses::{Allocation, Conflicts, Priority, Request};
use super::cidr;
use super::error::{Error, Errors, Problem, ordered};
use super::objects::{Object, Objects};
use super::spec::{IpSpec, NetworkSpec, NetworkType, PeerSpec, Spec, node_ip_name};
use super::view::Fabric;
use control_api::networking::configuration::{
    ClusterCidrs, ClusterConfig, NETWORK_CIDRS_CONFIGURED, NETWORK_CIDRS_CONFIGURED_MESSAGE,
};
use control_api::{
    Configuration, ConfigurationStatus, IP, IPSpec, IPStatus, NetworkStatus, labels,
};
use ipam::{Claim, DEFAULT_POOLS};
use ipnet::Ipv4Net;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Sets the statuses of the objects, adds the IP object of each node, and removes those of deleted nodes.
///
/// # Errors
///
/// Returns all errors of the specs, or the failed allocations. On error the objects are unchanged.
pub fn plan(objects: &mut Objects) -> Result<(), Errors> {
    let mut planned = objects.clone();
    align_node_ips(&mut planned, &Spec::read(objects)?);
    let spec = Spec::read(&planned)?;

    let allocation = Allocation::new(&DEFAULT_POOLS, Conflicts::Replace)
        .map_err(|error| Errors(vec![Error::of_all(Problem::Network(error))]))?;
    let mut planner = Planner {
        objects: &mut planned,
        allocation,
        errors: Vec::new(),
    };
    planner.networks(&spec);
    planner.addresses(&spec);
    ordered(planner.errors).map_or(Ok(()), Err)?;
    // Gateways and route agents apply the same validation to the result.
    Fabric::try_from(&planned)?;

    *objects = planned;
    Ok(())
}

/// Adds or updates the IP object of each node, and removes those of deleted nodes.
fn align_node_ips(objects: &mut Objects, spec: &Spec) {
    let orphans: BTreeSet<_> = spec
        .ips
        .iter()
        .filter(|ip| ip.orphan)
        .map(|ip| ip.index)
        .collect();
    let addresses: BTreeMap<_, _> = spec
        .ips
        .iter()
        .filter_map(|ip| Some((ip.index, ip.node.as_deref()?)))
        .filter_map(|(index, name)| {
            let node = spec.nodes.iter().find(|node| node.name == name)?;
            Some((index, node.internal_ip))
        })
        .collect();
    for (index, object) in objects.iter_mut().enumerate() {
        if let (Object::IP(ip), Some(address)) = (object, addresses.get(&index)) {
            ip.spec.ip = address.to_string();
        }
    }

    let external = spec.external();
    let present: BTreeSet<_> = spec
        .ips
        .iter()
        .filter_map(|ip| ip.node.as_deref())
        .collect();
    for node in &spec.nodes {
        if !present.contains(node.name.as_str()) {
            objects.push(node_ip(&node.name, node.internal_ip, external));
        }
    }

    let mut index = 0;
    objects.retain(|_| {
        index += 1;
        !orphans.contains(&(index - 1))
    });
}

fn node_ip(node: &str, address: Ipv4Addr, external: &NetworkSpec) -> IP {
    let namespace = external
        .namespace
        .as_ref()
        .map(|namespace| (labels::NETWORK_NAMESPACE, namespace.as_str()));
    let labels = [
        (labels::MANAGED, "true"),
        (labels::IP_TYPE, labels::IP_TYPE_NODE),
        (labels::NETWORK_NAME, external.name.as_str()),
    ];
    let labels = labels.into_iter().chain(namespace);

    IP {
        metadata: ObjectMeta {
            name: Some(node_ip_name(node)),
            namespace: external.namespace.clone(),
            labels: Some(
                labels
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
            ),
            ..ObjectMeta::default()
        },
        spec: IPSpec {
            ip: address.to_string(),
            ..IPSpec::default()
        },
        status: None,
    }
}

/// Name of a Network or IP in the allocation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    /// A Network of this cluster, by index.
    Network(usize),
    /// A CIDR of a peer.
    Peer {
        cluster_id: String,
        external: bool,
        number: usize,
    },
    /// An IP, by index.
    Ip(usize),
}

struct Planner<'a> {
    objects: &'a mut Objects,
    allocation: Allocation<Name, ()>,
    errors: Vec<Error>,
}

impl Planner<'_> {
    /// Allocates the CIDRs of the cluster and of its peers.
    fn networks(&mut self, spec: &Spec) {
        let (fixed, open): (Vec<_>, Vec<_>) = spec
            .networks
            .iter()
            .partition(|network| network.rules.is_fixed);
        let own = fixed.into_iter().chain(in_order(open));
        let mut requests: Vec<_> = own.map(|network| self.own_request(network)).collect();
        for peer in &spec.peers {
            let remote = self.remote_networks(peer).into_iter();
            requests.extend(remote.map(|(key, cidr, old)| Request {
                key,
                claim: Claim::Remappable(cidr),
                old: old.filter(|old| old.prefix_len() == cidr.prefix_len()),
                priority: Priority::Trusted,
            }));
        }
        let underlay = spec.underlay().map(|(address, ..)| address).collect();
        self.allocation.decide(requests, [((), underlay)]);

        for network in &spec.networks {
            self.own_network(network);
        }
        let local = self.local_cidrs(spec);
        for peer in &spec.peers {
            self.configuration(peer, &local);
        }
    }

    fn own_request(&self, network: &NetworkSpec) -> Request<Name> {
        Request {
            key: Name::Network(network.index),
            claim: network.rules.claim(network.cidr),
            old: self.old_network(network),
            priority: match network.network_type {
                NetworkType::External => Priority::External,
                NetworkType::Internal => Priority::Internal,
                NetworkType::Pod
                | NetworkType::Service
                | NetworkType::Reserved
                | NetworkType::Other => Priority::Trusted,
            },
        }
    }

    fn allocated(&self, name: &Name) -> Result<Ipv4Net, Problem> {
        let refusal = || match self.allocation.refusal(name) {
            Some(error) => Problem::Network(*error),
            None => Problem::NotPlanned,
        };
        self.allocation.held(name).ok_or_else(refusal)
    }

    fn own_network(&mut self, network: &NetworkSpec) {
        match self.allocated(&Name::Network(network.index)) {
            Ok(cidr) => {
                if let Some(Object::Network(object)) = self.objects.get_mut(network.index) {
                    let cidr = Some(cidr.to_string());
                    object.status = Some(NetworkStatus { cidr });
                }
            }
            Err(problem) => self.refuse(network.index, "spec.cidr", problem),
        }
    }

    fn old_network(&self, network: &NetworkSpec) -> Option<Ipv4Net> {
        let Some(Object::Network(object)) = self.objects.get(network.index) else {
            return None;
        };
        let text = object.status.as_ref()?.cidr.as_ref()?;
        let old = cidr::cidr(text).ok()?;

        (old.prefix_len() == network.cidr.prefix_len()).then_some(old)
    }

    /// Returns the CIDRs of a peer, each with its name and the CIDR of the status.
    fn remote_networks(&self, peer: &PeerSpec) -> Vec<(Name, Ipv4Net, Option<Ipv4Net>)> {
        let old = match self.objects.get(peer.index) {
            Some(Object::Configuration(configuration)) => remote_status(configuration),
            _ => None,
        };
        let old = old.cloned().unwrap_or_default();
        let lists = [
            (false, &peer.pods, &old.pod),
            (true, &peer.external, &old.external),
        ];

        let mut networks = Vec::new();
        for (external, cidrs, old) in lists {
            for (number, cidr) in cidrs.iter().enumerate() {
                let cluster_id = peer.cluster_id.clone();
                let name = Name::Peer {
                    cluster_id,
                    external,
                    number,
                };
                let old = old.get(number).and_then(|text| cidr::cidr(text).ok());
                networks.push((name, *cidr, old));
            }
        }

        networks
    }

    fn configuration(&mut self, peer: &PeerSpec, local: &ClusterCidrs) {
        let mut remapped = ClusterCidrs::default();
        for (name, ..) in self.remote_networks(peer) {
            let Name::Peer {
                external, number, ..
            } = &name
            else {
                continue;
            };
            let (list, kind) = if *external {
                (&mut remapped.external, "external")
            } else {
                (&mut remapped.pod, "pod")
            };
            match self.allocated(&name) {
                Ok(cidr) => list.push(cidr.to_string()),
                Err(problem) => {
                    let field = format!("spec.remote.cidr.{kind}[{number}]");
                    self.refuse(peer.index, &field, problem);
                }
            }
        }

        if let Some(Object::Configuration(configuration)) = self.objects.get_mut(peer.index) {
            configure(configuration, remapped, local);
        }
    }

    /// Returns the CIDRs that this cluster publishes to its peers.
    fn local_cidrs(&self, spec: &Spec) -> ClusterCidrs {
        let of_type = |network_type| {
            spec.networks
                .iter()
                .filter(move |network| network.network_type == network_type)
                .filter_map(|network| self.allocation.held(&Name::Network(network.index)))
                .map(|cidr| cidr.to_string())
                .collect()
        };

        ClusterCidrs {
            pod: of_type(NetworkType::Pod),
            external: of_type(NetworkType::External),
        }
    }

    /// Allocates the addresses of IPs.
    fn addresses(&mut self, spec: &Spec) {
        for network in &spec.networks {
            let name = Name::Network(network.index);
            let Some(cidr) = self.allocation.held(&name) else {
                continue;
            };
            let ips = spec.ips.iter().filter(|ip| ip.network == network.index);
            let held: Vec<_> = ips
                .filter_map(|ip| Some((Name::Ip(ip.index), self.old_address(ip)?)))
                .collect();
            self.allocation
                .pool(&name, cidr, network.rules.pre_allocated, || held);
        }
        for ip in &spec.ips {
            let network = Name::Network(ip.network);
            let given = self.allocation.address(&Name::Ip(ip.index), &network, None);
            match given {
                Ok(address) => {
                    let cidr = self.allocation.held(&network);
                    let status = IPStatus {
                        cidr: cidr.map(|cidr| cidr.to_string()),
                        ip: Some(address.to_string()),
                    };
                    if let Some(Object::IP(object)) = self.objects.get_mut(ip.index) {
                        object.status = Some(status);
                    }
                }
                Err(Some(error)) => self.refuse(ip.index, "spec.ip", Problem::Address(error)),
                // Its Network has no CIDR, which `networks` has reported.
                Err(None) => {}
            }
        }
    }

    fn old_address(&self, ip: &IpSpec) -> Option<Ipv4Addr> {
        let Some(Object::IP(object)) = self.objects.get(ip.index) else {
            return None;
        };
        let text = object.status.as_ref()?.ip.as_ref()?;

        cidr::address(text).ok()
    }

    fn refuse(&mut self, index: usize, field: &str, problem: Problem) {
        let place = self.objects.place(index, field);
        self.errors.push(Error { place, problem });
    }
}

/// Returns Networks in the order of their allocation: the external one, the internal one, the others by name.
fn in_order(mut networks: Vec<&NetworkSpec>) -> Vec<&NetworkSpec> {
    networks.sort_by_key(|network| {
        let rank = match network.network_type {
            NetworkType::External => 0,
            NetworkType::Internal => 1,
            NetworkType::Pod
            | NetworkType::Service
            | NetworkType::Reserved
            | NetworkType::Other => 2,
        };
        (rank, &network.name, &network.namespace)
    });

    networks
}

/// Returns the remapped CIDRs of the peer in the status.
pub(super) fn remote_status(configuration: &Configuration) -> Option<&ClusterCidrs> {
    let remote = configuration.status.as_ref()?.remote.as_ref()?;

    Some(&remote.cidr)
}

/// Writes the allocated CIDRs into a Configuration.
fn configure(configuration: &mut Configuration, remapped: ClusterCidrs, local: &ClusterCidrs) {
    let spec_local = configuration.spec.local.get_or_insert_default();
    if spec_local.cidr.pod.is_empty() {
        spec_local.cidr.pod.clone_from(&local.pod);
    }
    if spec_local.cidr.external.is_empty() {
        spec_local.cidr.external.clone_from(&local.external);
    }

    let condition = configured(configuration);
    let status = configuration
        .status
        .get_or_insert_with(ConfigurationStatus::default);
    status.remote = Some(ClusterConfig { cidr: remapped });
    let old = status
        .conditions
        .iter_mut()
        .find(|old| old.type_ == condition.type_);
    match old {
        Some(old) if old.status == condition.status => {
            // The transition time changes only with the condition's status.
            *old = Condition {
                last_transition_time: old.last_transition_time.clone(),
                ..condition
            };
        }
        Some(old) => *old = condition,
        None => status.conditions.push(condition),
    }
}

/// Returns the condition that the CIDRs of a Configuration are allocated.
///
/// Planning reads no clock: the transition time is the creation time of the object, or the Unix epoch if it has
/// none.
fn configured(configuration: &Configuration) -> Condition {
    let created = configuration.metadata.creation_timestamp.clone();
    Condition {
        last_transition_time: created.unwrap_or(Time(Timestamp::UNIX_EPOCH)),
        message: NETWORK_CIDRS_CONFIGURED_MESSAGE.to_owned(),
        observed_generation: configuration.metadata.generation,
        reason: NETWORK_CIDRS_CONFIGURED.to_owned(),
        status: "True".to_owned(),
        type_: NETWORK_CIDRS_CONFIGURED.to_owned(),
    }
}

#[cfg(test)]
mod tests;
