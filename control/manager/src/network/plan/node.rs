//! The IP of a node: peers' pods see its address as the source of packets that the node itself sends.

use super::own_ip::OwnIp;
use super::{Plan, Planner, underlay};
use crate::network::item::WorkItem;
use crate::network::kind::{Key, Kind, NODE_IP_PREFIX};
use crate::network::local::is_real;
use control_api::labels;
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
    let has_ip = planner.local.ips.get(&key).is_some();
    if !has_ip && !is_real {
        // The IP may have been deleted before its node.
        let waiting = planner.allocation.release_address(&key);
        plan.again = waiting.into_iter().map(WorkItem::Ip).collect();
    }
    let own_ip = OwnIp {
        key,
        type_: labels::IP_TYPE_NODE,
        is_preinstalled: false,
        address,
        source: (Kind::Node, node_key.clone()),
        is_gone: !is_real,
    };
    own_ip.plan(planner, &mut plan);
    if !has_ip && is_real && address.is_none() {
        let note = "it has no IPv4 InternalIP: pods of peers cannot be reached from it";
        plan.warn(Kind::Node, &node_key, "NoAddress", note);
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
