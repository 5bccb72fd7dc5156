//! The CIDR of a Network.

use super::{Plan, Planner, age, is_owned_by, label, underlay};
use crate::network::item::WorkItem;
use crate::network::kind::{Key, Kind};
use crate::network::local::{self, IndexKey, Local};
use crate::network::write::Write;
use control_api::{Network, NetworkStatus, labels};
use control_fabric::addresses::{Priority, Request};
use control_fabric::{AllocationRules, CidrError, overlaps};
use ipam::{Claim, NetworkError};
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// Allocates the CIDR of a Network, or releases it if the Network was deleted.
pub(super) fn plan(planner: &mut Planner<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(network) = planner.local.networks.get(key) else {
        let waiting = planner.allocation.release_network(key);
        plan.again = waiting.into_iter().map(WorkItem::Network).collect();
        plan.again
            .extend(ips_of(planner, key).into_iter().map(WorkItem::Ip));
        planner.forget(Kind::Network, key);
        return plan;
    };
    let (claim, old) = match requested(&planner.local, key, network) {
        Ok(requested) => requested,
        Err(refusal) => {
            plan.warn(
                Kind::Network,
                key,
                "InvalidCIDR",
                format!("spec.cidr: {refusal}"),
            );
            plan.writes.extend(withdrawal(planner, key, network));
            return plan;
        }
    };

    let network = network.clone();
    plan.again = displace_users(planner, key, claim, old);
    match allocate(planner, key, &network, claim, old) {
        Ok(cidr) => {
            if let Some(old) = old.filter(|old| *old != cidr) {
                let note = format!("another Network has {old}: {cidr} is allocated instead");
                plan.announce(Kind::Network, key, true, "Reallocated", note);
            }
            let status = NetworkStatus {
                cidr: Some(cidr.to_string()),
            };
            let old = network.status.as_ref();
            plan.writes
                .extend(Write::status(Kind::Network, key, old, &status));
            plan.event_normal(
                Kind::Network,
                key,
                "Allocated",
                format!("{cidr} is allocated"),
            );
            // IPs that wait for this Network, and all of its IPs if its pool has changed.
            let ready = fill_pool(planner, key, &network, cidr);
            plan.again.extend(ready.into_iter().map(WorkItem::Ip));
        }
        Err(error) => {
            plan.warn(
                Kind::Network,
                key,
                "Refused",
                explain(&network, old, &error),
            );
            plan.writes.extend(withdrawal(planner, key, &network));
            plan.again
                .extend(ips_of(planner, key).into_iter().map(WorkItem::Ip));
            let owners = network.metadata.owner_references.iter().flatten();
            let configurations = owners.filter(|owner| owner.kind == "Configuration");
            plan.again.extend(configurations.map(|owner| {
                WorkItem::Configuration(Key::new(key.namespace.clone(), owner.name.clone()))
            }));
        }
    }

    plan
}

/// Allocates the CIDR of a Network.
///
/// # Errors
///
/// Returns the reason why it gets none. A user's Network must not overlap Liqo's Networks, even if both are
/// shared, because IPs would get addresses of pods.
fn allocate(
    planner: &mut Planner<'_>,
    key: &Key,
    network: &Network,
    claim: Claim,
    old: Option<Ipv4Net>,
) -> Result<Ipv4Net, NetworkError> {
    if let Claim::Shared(cidr) = claim
        && !planner.local.is_trusted(key, network)
        && overlaps_liqo(planner, cidr)
    {
        let error = NetworkError::Taken { cidr };
        planner.allocation.refuse_network(key, error);
        return Err(error);
    }

    planner.allocation.network(key, claim, old)
}

fn overlaps_liqo(planner: &Planner<'_>, cidr: Ipv4Net) -> bool {
    let networks = planner.local.networks.within(planner.local.namespace);
    let mut held = networks.filter_map(|(key, _)| planner.allocation.held(key));

    held.any(|held| overlaps(held, cidr))
}

/// Releases the CIDRs of users' Networks that overlap the required CIDR of a Network of Liqo's namespace, and
/// returns the work items that this causes.
fn displace_users(
    planner: &mut Planner<'_>,
    key: &Key,
    claim: Claim,
    old: Option<Ipv4Net>,
) -> Vec<WorkItem> {
    let required = match claim {
        Claim::Shared(cidr) | Claim::Exclusive(cidr) => Some(cidr),
        Claim::Remappable(_) => old,
    };
    let Some(required) = required.filter(|_| key.namespace == planner.local.namespace) else {
        return Vec::new();
    };
    let networks = planner.local.networks.iter();
    let displaced: Vec<_> = networks
        .filter(|(other, network)| {
            let held = planner.allocation.held(other);
            held.is_some_and(|held| overlaps(held, required))
                && !planner.local.is_trusted(other, network)
        })
        .map(|(other, _)| other.clone())
        .collect();

    let mut again = Vec::new();
    for other in displaced {
        let error = NetworkError::Taken { cidr: required };
        again.extend(planner.allocation.refuse_network(&other, error));
        again.push(other);
    }
    again.retain(|other| other != key);
    again.into_iter().map(WorkItem::Network).collect()
}

/// Removes the CIDR from the status of a user's Network without an allocated one: the status may be forged, and
/// the gateways read it.
fn withdrawal(planner: &Planner<'_>, key: &Key, network: &Network) -> Option<Write> {
    let old = network.status.as_ref();
    let none = NetworkStatus::default();
    let write = Write::status(Kind::Network, key, old, &none);

    write.filter(|_| !planner.local.is_trusted(key, network))
}

/// Adopts the CIDRs of all statuses, and allocates the others, in an order that does not depend on the
/// order of events.
pub(super) fn adopt_all(planner: &mut Planner<'_>) {
    let mut requests: Vec<_> = planner
        .local
        .networks
        .iter()
        .filter_map(|(key, network)| {
            let (claim, old) = requested(&planner.local, key, network).ok()?;
            let is_trusted = planner.local.is_trusted(key, network);
            let priority = match label(&network.metadata, labels::NETWORK_TYPE) {
                _ if !is_trusted => Priority::User,
                Some(labels::NETWORK_TYPE_EXTERNAL) => Priority::External,
                Some(labels::NETWORK_TYPE_INTERNAL) => Priority::Internal,
                _ => Priority::Trusted,
            };
            let key = key.clone();
            let request = Request {
                key,
                claim,
                old,
                priority,
            };
            Some((age(&network.metadata), request))
        })
        .collect();
    requests.sort_by(|(a, _), (b, _)| a.cmp(b));
    let requests = requests.into_iter().map(|(_, request)| request).collect();
    let nodes = underlay::of_nodes(planner);
    let peers = underlay::of_peers(planner);

    planner.allocation.decide(requests, nodes.chain(peers));
}

/// Returns the claim of a Network, and the CIDR in its status if that is valid.
fn requested(
    local: &Local<'_>,
    key: &Key,
    network: &Network,
) -> Result<(Claim, Option<Ipv4Net>), CidrError> {
    let cidr = control_fabric::cidr(&network.spec.cidr)?;
    let claim = AllocationRules::of(network).claim(cidr);
    let status = network.status.as_ref();
    let old = status.and_then(|status| status.cidr.as_deref());
    let old = old.or_else(|| remapped(local, key, network));
    let old = old.and_then(|text| control_fabric::cidr(text).ok());

    Ok((
        claim,
        old.filter(|old| old.prefix_len() == cidr.prefix_len()),
    ))
}

/// Returns the remapped CIDR in the status of the Configuration that owns a Network. A Network that was deleted and
/// created again gets the same one, so that the traffic of the peer continues.
fn remapped<'a>(local: &Local<'a>, key: &Key, network: &Network) -> Option<&'a str> {
    let owners = network.metadata.owner_references.as_ref()?;
    let owner = owners.iter().find(|owner| owner.kind == "Configuration")?;
    let configuration = Key::new(key.namespace.clone(), owner.name.clone());
    let configuration = local.configurations.get(&configuration)?;
    if !local.is_trusted(key, network)
        || !is_owned_by(&network.metadata, configuration.metadata.uid.as_deref())
    {
        return None;
    }
    let spec = &configuration.spec.remote.as_ref()?.cidr;
    let status = &configuration.status.as_ref()?.remote.as_ref()?.cidr;
    let (spec, status) = match label(&network.metadata, labels::CONFIGURATION_CIDR_TYPE)? {
        "pod" => (&spec.pod, &status.pod),
        _ => (&spec.external, &status.external),
    };
    let position = spec.iter().position(|cidr| *cidr == network.spec.cidr)?;

    status.get(position).map(String::as_str)
}

/// Creates the address pool of a Network, and returns the IPs that may get an address now.
fn fill_pool(planner: &mut Planner<'_>, key: &Key, network: &Network, cidr: Ipv4Net) -> Vec<Key> {
    let pre_allocated = AllocationRules::of(network).pre_allocated;
    let local = &planner.local;
    let held = || {
        let mut held: Vec<_> = local
            .ips
            .iter()
            .filter(|(_, ip)| local.network_of(ip).as_ref() == Some(key))
            .filter_map(|(ip_key, ip)| {
                Some((
                    !local.is_of_node(ip_key),
                    age(&ip.metadata),
                    ip_key.clone(),
                    local::address(ip)?,
                ))
            })
            .collect();
        // If two IPs have the same address, that of a node keeps it, otherwise the older one.
        held.sort();
        let pairs = held.into_iter().map(|(.., key, address)| (key, address));
        pairs.collect::<Vec<(Key, Ipv4Addr)>>()
    };

    if planner.allocation.pool(key, cidr, pre_allocated, held) {
        planner.allocation.take_waiting(key);
        ips_of(planner, key)
    } else {
        planner.allocation.take_waiting(key)
    }
}

fn ips_of(planner: &Planner<'_>, key: &Key) -> Vec<Key> {
    let local = &planner.local;
    local
        .ips
        .iter()
        .filter(|(_, ip)| local.network_of(ip).as_ref() == Some(key))
        .map(|(key, _)| key.clone())
        .collect()
}

fn explain(network: &Network, old: Option<Ipv4Net>, error: &NetworkError) -> String {
    let is_of_peer = label(&network.metadata, labels::CONFIGURATION_CIDR_TYPE).is_some();
    let remedy = match error {
        NetworkError::Taken { .. } if old.is_some() && is_of_peer => {
            "delete this Network, so that it is created again and gets another CIDR"
        }
        NetworkError::Taken { .. } => {
            "choose another CIDR, or delete the Network that overlaps this one"
        }
        NetworkError::OutsidePools { .. } => {
            "add a pool that contains it (ipam.pools), or give it the label \
             ipam.liqo.io/network-shared=true"
        }
        NetworkError::Exhausted { .. } => "add a pool (ipam.pools), or delete unused Networks",
        NetworkError::Held { .. } | NetworkError::PoolsOverlap(..) => "delete and create it again",
    };

    format!("{error}: {remedy}")
}

/// Returns why a Network has no CIDR, and the remedy.
pub(super) fn refusal(planner: &Planner<'_>, key: &Key, network: &Network) -> Option<String> {
    let error = planner.allocation.refusal(key)?;
    let old = requested(&planner.local, key, network)
        .ok()
        .and_then(|(_, old)| old);

    Some(explain(network, old, error))
}

/// Returns the Networks that belong to a Configuration.
pub(super) fn of_configuration<'a>(
    planner: &'a Planner<'_>,
    configuration: &Key,
) -> impl Iterator<Item = (&'a Key, &'a Network)> {
    let index_key = IndexKey::owner(Kind::Configuration, configuration);
    let entries: Vec<_> = planner
        .local
        .indexed(&index_key)
        .filter(|(kind, _)| *kind == Kind::Network)
        .map(|(_, key)| key)
        .collect();
    entries
        .into_iter()
        .filter_map(|key| Some((key, planner.local.networks.get(key)?)))
}

/// Returns whether a Network is being deleted.
pub(super) fn is_terminating(network: &Network) -> bool {
    local::is_terminating(&network.metadata)
}
