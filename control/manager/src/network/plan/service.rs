//! The Services of the gateway: one for all GatewayServers with equal requests.

use super::metadata::is_ours;
use super::{Plan, Planner, label};
use crate::network::item::WorkItem;
use crate::network::kind::{Key, Kind};
use crate::network::local::{IndexKey, Local, is_terminating};
use crate::network::service_request::ServiceRequest;
use crate::network::write::{Action, Write, covers};
use control_api::{GatewayServer, labels};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

/// Name of the first Service. The names of others have the hash of the request as suffix.
pub(crate) const NAME: &str = "liqo-gateway";

/// Creates or changes the Service that GatewayServers request, or deletes one that none requests any more.
pub(super) fn plan(planner: &mut Planner<'_>, hash: &str) -> Plan {
    let mut plan = Plan::default();
    let Some(request) = request(&planner.local, hash) else {
        if let Some(unserved) = unserved(&planner.local) {
            // The other request may adopt this Service, with its addresses and ports.
            plan.again.push(WorkItem::Service(unserved));
            plan.retry = of(&planner.local, hash).is_some();
            return plan;
        }
        for (key, service) in of_hash(&planner.local, hash) {
            if !is_terminating(&service.metadata) {
                let delete = Action::Delete(service.metadata.uid.clone());
                plan.writes.push(Write::new(Kind::Service, key, delete));
            }
        }
        return plan;
    };

    let key = key_for(planner, hash);
    let desired = request.object(&key, planner.settings);
    match planner.local.service(&key) {
        None => {
            let mut desired = desired;
            if let Some(port) = former_node_port(&planner.local, hash, &request) {
                desired["spec"]["ports"][0]["nodePort"] = json!(port);
            }
            plan.writes
                .push(Write::new(Kind::Service, &key, Action::Create(desired)));
        }
        Some(present) => {
            let actual = serde_json::to_value(present).unwrap_or_default();
            // With an additional term, the selector would select no gateway.
            let is_right = covers(&actual, &desired)
                && actual["spec"]["selector"] == desired["spec"]["selector"];
            if !is_right && !is_terminating(&present.metadata) {
                let change = change(&actual, desired);
                plan.writes.push(Write::new(Kind::Service, &key, change));
            }
        }
    }
    // A second Service of one request is a copy that a user has created.
    let copies = of_hash(&planner.local, hash).filter(|(other, _)| **other != key);
    let copies: Vec<_> = copies
        .map(|(key, copy)| {
            Write::new(
                Kind::Service,
                key,
                Action::Delete(copy.metadata.uid.clone()),
            )
        })
        .collect();
    plan.writes.extend(copies);

    plan
}

/// Returns the change of a Service from `actual` to `desired`.
///
/// If the port number changes, an Apply would add the new port and keep the old one, which belongs to the
/// Service's creation. Both have the same name, so the API server would refuse the Apply. A merge patch replaces
/// the list. It keeps the node port, which peers use.
fn change(actual: &Value, mut desired: Value) -> Action {
    let keeps_node_port = desired["spec"]["type"] == "NodePort";
    let old = &actual["spec"]["ports"];
    let new = &mut desired["spec"]["ports"][0];
    let is_alone = old.as_array().is_some_and(|ports| ports.len() == 1);
    let is_same = |field| old[0][field] == new[field];
    if is_alone && is_same("port") && is_same("protocol") {
        return Action::Apply(desired);
    }
    if keeps_node_port && new["nodePort"].is_null() && !old[0]["nodePort"].is_null() {
        new["nodePort"] = old[0]["nodePort"].clone();
    }

    Action::Merge(desired)
}

/// Returns the existing Service of a request.
pub(super) fn of<'a>(local: &Local<'a>, hash: &str) -> Option<(&'a Key, &'a Service)> {
    of_hash(local, hash).find(|(_, service)| !is_terminating(&service.metadata))
}

/// Returns whether a GatewayServer requests a Service.
pub(super) fn is_requested(local: &Local<'_>, hash: &str) -> bool {
    request(local, hash).is_some()
}

/// Returns the request with a hash; `None` if no GatewayServer has it any more.
fn request(local: &Local<'_>, hash: &str) -> Option<ServiceRequest> {
    let index_key = IndexKey::service(hash);
    let mut entries = local.indexed(&index_key);
    entries.find_map(|(kind, key)| {
        let server = local
            .servers
            .get(key)
            .filter(|_| kind == Kind::GatewayServer)?;
        has_effect(local, key, server).then(|| ServiceRequest::of(server))?
    })
}

/// Returns whether a GatewayServer gets a Service. With one outside of its peer's tenant namespace, a user could
/// open ports with the manager's rights.
fn has_effect(local: &Local<'_>, key: &Key, server: &GatewayServer) -> bool {
    let is_placed = local.check_place(Kind::GatewayServer, key).is_ok();
    is_placed && !is_terminating(&server.metadata)
}

/// Returns the node port in the statuses of GatewayServers: peers keep using it if a user has deleted the Service.
///
/// A node port that the API server has refused is not requested again.
fn former_node_port(local: &Local<'_>, hash: &str, request: &ServiceRequest) -> Option<i32> {
    if request.type_ != "NodePort"
        || request.node_port.is_some()
        || local.derived.refused_services.contains_key(hash)
    {
        return None;
    }
    let index_key = IndexKey::service(hash);
    let mut entries = local.indexed(&index_key);
    entries.find_map(|(_, key)| {
        let server = local.servers.get(key);
        let server = server.filter(|server| has_effect(local, key, server))?;
        server.status.as_ref()?.endpoint.as_ref()?.port
    })
}

/// Returns a request that has no Service yet.
fn unserved(local: &Local<'_>) -> Option<String> {
    let servers = local.servers.iter();
    let mut requests = servers
        .filter(|(key, server)| has_effect(local, key, server))
        .filter_map(|(_, server)| Some(ServiceRequest::of(server)?.hash()));
    requests.find(|hash| of(local, hash).is_none())
}

fn of_hash<'a>(local: &Local<'a>, hash: &str) -> impl Iterator<Item = (&'a Key, &'a Service)> {
    let index_key = IndexKey::service(hash);
    let entries: Vec<_> = local
        .indexed(&index_key)
        .filter(|(kind, key)| *kind == Kind::Service && key.namespace == local.namespace)
        .map(|(_, key)| key)
        .collect();
    entries
        .into_iter()
        .filter_map(|key| Some((key, local.service(key)?)))
}

/// Chooses the Service for a request: its own, an existing one without a request, so that addresses and ports are
/// kept, or a new one.
fn key_for(planner: &Planner<'_>, hash: &str) -> Key {
    let local = &planner.local;
    if let Some((key, _)) = of(local, hash) {
        return key.clone();
    }
    let services = local.services.within(local.namespace);
    let mut ours = services.filter_map(|(key, service)| {
        let hash = label(&service.metadata, labels::GATEWAY_SERVICE)?;
        (!is_terminating(&service.metadata)).then_some((key, hash))
    });
    if let Some((free, _)) = ours.find(|(_, hash)| request(local, hash).is_none()) {
        return free.clone();
    }
    let first = Key::new(local.namespace, NAME);
    let other = Key::new(local.namespace, format!("{NAME}-{hash}"));
    // A user may have removed the label with the hash.
    let installation = planner.settings.installation.as_ref();
    let installation = installation.map(|owner| owner.uid.as_str());
    let is_unlabelled = |key: &&Key| {
        local.service(key).is_some_and(|service| {
            label(&service.metadata, labels::GATEWAY_SERVICE).is_none()
                && is_ours(&service.metadata, installation)
                && !is_terminating(&service.metadata)
        })
    };
    if let Some(unlabelled) = [&other, &first].into_iter().find(is_unlabelled) {
        return unlabelled.clone();
    }
    if local.service(&first).is_none() {
        return first;
    }

    other
}
