//! The IP of a node: peers' pods see its address as the source of packets that the node itself sends.

use super::metadata::{is_ours, network_labels, repaired};
use super::{Plan, Planner, label, underlay};
use crate::network::item::WorkItem;
use crate::network::kind::{Key, Kind, NODE_IP_PREFIX};
use crate::network::local::{is_real, is_terminating};
use crate::network::write::{Action, Write};
use control_api::labels;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// Longest name of an object.
const NAME_LEN_MAX: usize = 253;

/// Returns whether an IP is that of a node.
pub(super) fn has_ip(planner: &Planner<'_>, ip: &Key) -> bool {
    let name = ip.name.strip_prefix(NODE_IP_PREFIX);
    let name = name.filter(|_| ip.namespace == planner.settings.namespace);
    let node = name.and_then(|name| planner.local.nodes.get(&Key::cluster(name)));

    node.is_some_and(is_real)
}

/// Creates the IP of a node, recreates it when the node's address changes, and deletes it with the node.
pub(super) fn plan(planner: &mut Planner<'_>, name: &str) -> Plan {
    let mut plan = Plan::default();
    let node_key = Key::cluster(name);
    let node = planner.local.nodes.get(&node_key);
    let addresses = node.map(underlay::node_addresses).unwrap_or_default();
    let is_real = node.is_some_and(is_real);
    let address = addresses.first().copied().filter(|_| is_real);

    set_underlay(planner, &node_key, addresses, &mut plan);
    let key = Key::new(
        planner.settings.namespace.clone(),
        format!("{NODE_IP_PREFIX}{name}"),
    );
    if key.name.len() > NAME_LEN_MAX {
        let note = "its name is too long for an IP object: pods of peers cannot be reached from it";
        plan.warn(Kind::Node, &node_key, "NameTooLong", note);
        return plan;
    }
    let ip = planner.local.ips.get(&key);
    let installation = planner.settings.installation.as_ref();
    let installation = installation.map(|owner| owner.uid.as_str());
    let is_ours = ip.is_some_and(|ip| {
        label(&ip.metadata, labels::IP_TYPE) == Some(labels::IP_TYPE_NODE)
            || is_ours(&ip.metadata, installation)
    });
    let is_right = ip
        .is_some_and(|ip| Some(ip.spec.ip.as_str()) == address.map(|it| it.to_string()).as_deref());
    if ip.is_none() && !is_real {
        // The IP may have been deleted before its node.
        let waiting = planner.allocation.release_address(&key);
        plan.again = waiting.into_iter().map(WorkItem::Ip).collect();
    }
    match (ip, address) {
        (None, Some(address)) => plan.writes.push(create(planner, &key, address)),
        (Some(_), Some(_)) if !is_right && !is_ours => {
            let note =
                format!("it has the name of the IP of node {name}, but another address: delete it");
            plan.warn(Kind::Ip, &key, "NameTaken", note);
        }
        // The address is immutable, so the IP is created again after its deletion.
        (Some(ip), Some(_)) if !is_right && !is_terminating(&ip.metadata) => {
            plan.writes.push(delete(&key, ip.metadata.uid.clone()));
        }
        (Some(ip), Some(_)) if is_ours && !is_terminating(&ip.metadata) => {
            let patch = repaired(&ip.metadata, &metadata(planner, &key));
            let patch = patch.map(|patch| Write::new(Kind::Ip, &key, Action::Merge(patch)));
            plan.writes.extend(patch);
        }
        (Some(ip), None)
            if is_ours && (!is_real || node.is_none()) && !is_terminating(&ip.metadata) =>
        {
            plan.writes.push(delete(&key, ip.metadata.uid.clone()));
        }
        (None, None) if is_real => {
            let note = "it has no IPv4 InternalIP: pods of peers cannot be reached from it";
            plan.warn(Kind::Node, &node_key, "NoAddress", note);
        }
        _ => {}
    }

    plan
}

/// Sets the addresses of a node, which no CIDR may contain, and reports the Networks that do.
fn set_underlay(planner: &mut Planner<'_>, node: &Key, addresses: Vec<Ipv4Addr>, plan: &mut Plan) {
    let source = (Kind::Node, node.clone());
    let addresses = addresses.into_iter().collect();
    for covered in planner.allocation.set_underlay(source, addresses) {
        for key in underlay::covering(planner, covered) {
            let note = format!(
                "it contains {covered}, an address of node {}: delete this Network, \
                 so that it gets another CIDR",
                node.name
            );
            plan.warn(Kind::Network, &key, "CoversNode", note);
        }
    }
}

fn create(planner: &Planner<'_>, key: &Key, address: Ipv4Addr) -> Write {
    let mut ip = json!({
        "apiVersion": "ipam.liqo.io/v1alpha1",
        "kind": "IP",
        "metadata": metadata(planner, key),
        "spec": {"ip": address.to_string()},
    });

    if let (Some(network), Some(labels)) = (
        &planner.local.cluster().external,
        ip["metadata"]["labels"].as_object_mut(),
    ) {
        labels.extend(network_labels(network));
    }

    Write::new(Kind::Ip, key, Action::Create(ip))
}

fn metadata(planner: &Planner<'_>, key: &Key) -> Value {
    json!({
        "name": key.name,
        "namespace": key.namespace,
        "labels": {
            labels::MANAGED: "true",
            labels::IP_TYPE: labels::IP_TYPE_NODE,
        },
        "ownerReferences": Vec::from_iter(&planner.settings.installation),
    })
}

fn delete(key: &Key, uid: Option<String>) -> Write {
    Write::new(Kind::Ip, key, Action::Delete(uid))
}
