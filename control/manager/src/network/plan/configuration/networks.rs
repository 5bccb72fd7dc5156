//! The Networks of a peer.

use super::Side;
use crate::network::kind::{Key, Kind};
use crate::network::local::{IndexKey, is_terminating};
use crate::network::plan::metadata::{is_ours, repaired};
use crate::network::plan::{Plan, Planner, is_owned_by, label, network, owner};
use crate::network::write::{Action, Write};
use control_api::{Configuration, Network, labels};
use ipnet::Ipv4Net;
use serde_json::{Value, json};

/// Creates the Networks of one side, deletes those without a CIDR in the spec, and reads the remapped CIDRs.
pub(super) fn networks(
    planner: &Planner<'_>,
    key: &Key,
    configuration: &Configuration,
    side: &mut Side,
    refusal: &mut Option<String>,
) -> Plan {
    let mut plan = Plan::default();
    let names: Vec<_> = side
        .cidrs
        .iter()
        .map(|cidr| network_name(key, side.cidr_type, *cidr))
        .collect();
    let uid = configuration.metadata.uid.as_deref();
    let mut is_pending = false;
    for (other, network) in network::of_configuration(planner, key) {
        let is_of_side =
            label(&network.metadata, labels::CONFIGURATION_CIDR_TYPE) == Some(side.cidr_type);
        if is_of_side && !names.contains(&other.name) {
            is_pending = true;
            if !network::is_terminating(network) {
                plan.writes
                    .push(delete(Kind::Network, other, network.metadata.uid.clone()));
            }
        }
    }

    let mut remapped = Vec::new();
    for (name, cidr) in names.into_iter().zip(&side.cidrs) {
        let network_key = Key::new(key.namespace.clone(), name);
        let Some(network) = planner.local.networks.get(&network_key) else {
            plan.writes
                .push(create(&network_key, configuration, side.cidr_type, *cidr));
            is_pending = true;
            continue;
        };
        let is_right = network.spec.cidr == cidr.to_string() && is_ours(&network.metadata, uid);
        if network::is_terminating(network) || !is_right {
            is_pending = true;
            if !network::is_terminating(network) {
                plan.writes.push(delete(
                    Kind::Network,
                    &network_key,
                    network.metadata.uid.clone(),
                ));
            }
            continue;
        }
        let desired = metadata(&network_key, configuration, side.cidr_type);
        let repair = repaired(&network.metadata, &desired);
        plan.writes.extend(
            repair.map(|patch| Write::new(Kind::Network, &network_key, Action::Merge(patch))),
        );
        if let Some(error) = network::refusal(planner, &network_key, network) {
            refusal.get_or_insert_with(|| format!("Network {network_key}: {error}"));
        }
        remapped.extend(published_cidr(planner, &network_key, network));
    }
    let is_complete = !is_pending && remapped.len() == side.cidrs.len();
    side.remapped = is_complete.then_some(remapped);

    plan
}

/// Returns the CIDR in the status of a Network, if it is the allocated one.
fn published_cidr(planner: &Planner<'_>, key: &Key, network: &Network) -> Option<String> {
    let cidr = network.status.as_ref()?.cidr.clone()?;
    let allocated = planner.allocation.held(key)?;

    (cidr == allocated.to_string()).then_some(cidr)
}

/// Deletes the objects of an earlier Configuration with the same name and another UID.
pub(super) fn leftovers(planner: &Planner<'_>, key: &Key, uid: Option<&str>) -> Vec<Write> {
    let index_key = IndexKey::owner(Kind::Configuration, key);
    let entries = planner.local.indexed(&index_key);
    entries
        .filter_map(|(kind, child)| {
            let meta = if kind == Kind::Network {
                &planner.local.networks.get(child)?.metadata
            } else if kind == Kind::Ip {
                &planner.local.ips.get(child)?.metadata
            } else {
                return None;
            };
            let is_left = !is_terminating(meta) && (uid.is_none() || !is_owned_by(meta, uid));
            is_left.then(|| delete(kind, child, meta.uid.clone()))
        })
        .collect()
}

fn network_name(key: &Key, cidr_type: &str, cidr: Ipv4Net) -> String {
    let cidr = cidr.to_string().replace(['.', '/'], "-");
    format!("{}-{cidr_type}-{cidr}", key.name)
}

fn metadata(key: &Key, configuration: &Configuration, cidr_type: &str) -> Value {
    let mut owner = owner(configuration);
    owner.controller = Some(true);

    json!({
        "name": key.name,
        "namespace": key.namespace,
        "labels": {
            labels::REMOTE_CLUSTER_ID: label(&configuration.metadata, labels::REMOTE_CLUSTER_ID),
            labels::CONFIGURATION_CIDR_TYPE: cidr_type,
            labels::MANAGED: "true",
        },
        "ownerReferences": [owner],
    })
}

fn create(key: &Key, configuration: &Configuration, cidr_type: &str, cidr: Ipv4Net) -> Write {
    let network = json!({
        "apiVersion": "ipam.liqo.io/v1alpha1",
        "kind": "Network",
        "metadata": metadata(key, configuration, cidr_type),
        "spec": {"cidr": cidr.to_string()},
    });

    Write::new(Kind::Network, key, Action::Create(network))
}

pub(super) fn delete(kind: Kind, key: &Key, uid: Option<String>) -> Write {
    Write::new(kind, key, Action::Delete(uid))
}
