//! The address and the labels of an IP.

use super::metadata::network_labels;
use super::{Plan, Planner, ip_service, label, node, service_ip};
use crate::network::item::WorkItem;
use crate::network::kind::{Key, Kind};
use crate::network::local::{address, is_terminating};
use crate::network::write::{Action, Write};
use control_api::{IP, IPStatus};
use ipam::AddressError;
use serde_json::json;
use std::net::Ipv4Addr;

/// Allocates the address of an IP, or releases it if the IP was deleted.
pub(super) fn plan(planner: &mut Planner<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(ip) = planner.local.ips.get(key).cloned() else {
        // The IP of a node or a Service is created again, with the same address.
        if !node::has_ip(planner, key) && !service_ip::has_ip(planner, key) {
            let waiting = planner.allocation.release_address(key);
            plan.again = waiting.into_iter().map(WorkItem::Ip).collect();
        }
        plan.writes = ip_service::leftovers(planner, key);
        planner.forget(Kind::Ip, key);
        return plan;
    };
    if is_terminating(&ip.metadata) {
        return terminating(planner, key, &ip);
    }
    let refused = ip_service::check(planner, key, &ip).err();
    if refused.is_some() {
        plan.writes = ip_service::leftovers(planner, key);
    }
    if let Err(refusal) = control_fabric::address(&ip.spec.ip) {
        plan.warn(
            Kind::Ip,
            key,
            "InvalidAddress",
            format!("spec.ip: {refusal}"),
        );
        let waiting = planner.allocation.release_address(key);
        plan.again = waiting.into_iter().map(WorkItem::Ip).collect();
        plan.writes.extend(withdrawal(key, &ip));
        return plan;
    }
    let Some(network) = planner.local.network_of(&ip) else {
        // The status is kept, so that all IPs have the same addresses once the Network exists again.
        let note = "there is no Network of type external-cidr in Liqo's namespace: \
                    create it, or name another Network in spec.networkRef";
        plan.warn(Kind::Ip, key, "NoNetwork", note);
        return plan;
    };

    let old = address(&ip);
    match planner.allocation.address(key, &network, old) {
        Ok(address) => {
            if let Some(old) = old.filter(|old| *old != address) {
                let note =
                    format!("{old} is not free in {network}: {address} is allocated instead");
                plan.announce(Kind::Ip, key, true, "Readdressed", note);
            }
            plan.writes
                .extend(allocated(planner, key, &ip, &network, address));
            plan.writes.extend(labelled(key, &ip, &network));
            plan.extend(service(planner, key, &ip, refused, address));
        }
        Err(error) => {
            plan.extend(without_address(planner, key, &ip, &network, error));
        }
    }

    plan
}

/// Corrects the status of an IP that is being deleted, which a finalizer may delay for long.
fn terminating(planner: &mut Planner<'_>, key: &Key, ip: &IP) -> Plan {
    let Some(network) = planner.local.network_of(ip) else {
        return Plan::default();
    };
    let write = match planner.allocation.address(key, &network, address(ip)) {
        Ok(address) => allocated(planner, key, ip, &network, address),
        Err(error) => {
            let plan = without_address(planner, key, ip, &network, error);
            plan.writes.into_iter().next()
        }
    };

    Plan {
        writes: write.into_iter().collect(),
        ..Plan::default()
    }
}

/// Writes the address of an IP into its status.
fn allocated(
    planner: &Planner<'_>,
    key: &Key,
    ip: &IP,
    network: &Key,
    address: Ipv4Addr,
) -> Option<Write> {
    let cidr = planner.allocation.held(network);
    let status = IPStatus {
        cidr: cidr.map(|cidr| cidr.to_string()),
        ip: Some(address.to_string()),
    };

    Write::status(Kind::Ip, key, ip.status.as_ref(), &status)
}

/// Reports why an IP has no address, and removes one from its status.
fn without_address(
    planner: &Planner<'_>,
    key: &Key,
    ip: &IP,
    network: &Key,
    error: Option<AddressError>,
) -> Plan {
    let mut plan = Plan::default();
    let local = &planner.local;
    match (error, local.networks.get(network)) {
        (Some(error), _) => {
            let note =
                format!("{error}: delete unused IPs, or name another Network in spec.networkRef");
            plan.warn(Kind::Ip, key, "Refused", note);
        }
        (None, None) => {
            let note =
                format!("there is no Network {network}: create it, or change spec.networkRef");
            plan.warn(Kind::Ip, key, "NoNetwork", note);
        }
        (None, Some(object)) => {
            let is_refused = planner.allocation.refusal(network).is_some();
            if !is_refused || local.is_trusted(network, object) {
                return plan; // The IP is planned again once the Network has a CIDR.
            }
        }
    }
    plan.writes.extend(withdrawal(key, ip));

    plan
}

/// Removes the address from the status of an IP without an allocated one: the status may be forged, and the
/// gateways read it.
fn withdrawal(key: &Key, ip: &IP) -> Option<Write> {
    Write::status(Kind::Ip, key, ip.status.as_ref(), &IPStatus::default())
}

/// Plans the Service of an IP, with an Event if it is refused.
fn service(
    planner: &Planner<'_>,
    key: &Key,
    ip: &IP,
    refused: Option<ip_service::Refusal>,
    address: Ipv4Addr,
) -> Plan {
    let mut plan = Plan::default();
    if let Some(refusal) = refused {
        let note = format!("{refusal}; no Service is created, and an earlier one is removed");
        plan.warn(Kind::Ip, key, "ServiceTemplateRefused", note);
        return plan;
    }
    match ip_service::plan(planner, key, ip) {
        Ok(service) => {
            plan.extend(service);
            plan.event_normal(
                Kind::Ip,
                key,
                "Allocated",
                format!("{address} is allocated"),
            );
        }
        Err(taken) => {
            // An earlier EndpointSlice still adds the address to that Service.
            plan.writes = ip_service::leftovers(planner, key);
            plan.warn(Kind::Ip, key, "ServiceNameTaken", taken);
        }
    }

    plan
}

fn labelled(key: &Key, ip: &IP, network: &Key) -> Option<Write> {
    let mut missing = network_labels(network);
    missing.retain(|name, value| label(&ip.metadata, name) != value.as_str());
    let patch = json!({"metadata": {"labels": missing}});

    (!missing.is_empty()).then(|| Write::new(Kind::Ip, key, Action::Merge(patch)))
}
