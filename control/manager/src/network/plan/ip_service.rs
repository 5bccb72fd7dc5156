//! The Service and EndpointSlice that an IP requests.

use super::metadata::is_ours;
use super::{Plan, Planner, owner};
use crate::network::kind::{Key, Kind, SLICE_MANAGER};
use crate::network::local::{IndexKey, is_terminating};
use crate::network::write::{Action, Write, covers};
use control_api::ipam::ip::ServiceTemplate;
use control_api::{IP, labels};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

pub(super) use template::{Refusal, check};

mod template;

/// A Service of another owner has the name of an IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "another Service has its name, whose traffic it would get: rename the IP, or delete that Service"
)]
pub(super) struct NameTaken;

/// Creates or changes the Service and EndpointSlice that an IP requests, and deletes those that it does not request
/// any more.
///
/// Its template has passed [`check`].
///
/// # Errors
///
/// Returns [`NameTaken`] if a Service of another owner has the name: an EndpointSlice would add the
/// address to the endpoints of that Service.
pub(super) fn plan(planner: &Planner<'_>, key: &Key, ip: &IP) -> Result<Plan, NameTaken> {
    let mut plan = Plan::default();
    let Some(template) = &ip.spec.service_template else {
        plan.writes = leftovers(planner, key);
        return Ok(plan);
    };
    let desired_service = service(key, ip, template);
    let present = planner.local.service(key);
    let Some(service) = present else {
        let create = Action::Create(desired_service);
        plan.writes.push(Write::new(Kind::Service, key, create));
        return Ok(plan);
    };
    let uid = ip.metadata.uid.as_deref();
    if !is_ours(&service.metadata, uid) {
        return Err(NameTaken);
    }
    if let Some(field) = template::exposing_field(service) {
        // An Apply would leave the fields that an earlier release has set.
        if !is_terminating(&service.metadata) {
            let delete = Action::Delete(service.metadata.uid.clone());
            plan.writes.push(Write::new(Kind::Service, key, delete));
            let note = format!(
                "its Service has {field}, which serviceTemplate must not set: it is deleted and created \
                 again with a new cluster IP, and open connections end"
            );
            plan.announce(Kind::Ip, key, true, "ServiceRecreated", note);
        }
        return Ok(plan);
    }
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {
                labels::MANAGED: "true",
                labels::SERVICE_NAME: key.name,
                labels::SLICE_MANAGED_BY: SLICE_MANAGER,
            },
            "ownerReferences": [owner(ip)],
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [ip.spec.ip], "conditions": {"ready": true}}],
        "ports": slice_ports(template),
    });
    let slices = planner.local.slice(key);
    let writes = [
        create_or_apply(Kind::Service, key, present, ip, desired_service),
        without_selector(key, service),
        create_or_apply(Kind::EndpointSlice, key, slices, ip, slice),
    ];

    plan.writes.extend(writes.into_iter().flatten());

    Ok(plan)
}

/// Deletes the Service and EndpointSlice of an IP.
pub(super) fn leftovers(planner: &Planner<'_>, key: &Key) -> Vec<Write> {
    let index_key = IndexKey::owner(Kind::Ip, key);
    let entries = planner.local.indexed(&index_key);
    entries
        .filter_map(|(kind, child)| {
            let meta = if kind == Kind::Service {
                &planner.local.service(child)?.metadata
            } else if kind == Kind::EndpointSlice {
                &planner.local.slice(child)?.metadata
            } else {
                return None;
            };
            let delete = Action::Delete(meta.uid.clone());
            (!is_terminating(meta)).then(|| Write::new(kind, child, delete))
        })
        .collect()
}

fn service(key: &Key, ip: &IP, template: &ServiceTemplate) -> Value {
    let mut labels = template.metadata.clone().unwrap_or_default().labels;
    labels.insert(labels::MANAGED.to_owned(), "true".to_owned());
    let ports = template.spec.as_ref().and_then(|spec| spec.ports.as_ref());

    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": labels,
            "ownerReferences": [owner(ip)],
        },
        "spec": {"type": "ClusterIP", "ports": ports},
    })
}

/// Removes a selector from the Service of an IP. A selector would replace the address by those of pods.
fn without_selector(key: &Key, present: &Service) -> Option<Write> {
    let selector = present.spec.as_ref()?.selector.as_ref()?;
    let patch = json!({"spec": {"selector": null}});

    (!selector.is_empty()).then(|| Write::new(Kind::Service, key, Action::Merge(patch)))
}

/// Returns the ports of the slice, which are the ports of the Service: target ports have no effect.
fn slice_ports(template: &ServiceTemplate) -> Value {
    let ports = template.spec.as_ref().and_then(|spec| spec.ports.as_ref());
    let ports = ports.into_iter().flatten().map(|port| {
        let name = port.name.clone().unwrap_or_default();
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        json!({"name": name, "port": port.port, "protocol": protocol})
    });

    ports.collect()
}

/// Creates a missing object, and corrects an existing one that the IP owns.
fn create_or_apply<K>(
    kind: Kind,
    key: &Key,
    present: Option<&K>,
    ip: &IP,
    desired: Value,
) -> Option<Write>
where
    K: kube::Resource + serde::Serialize,
{
    let Some(present) = present else {
        return Some(Write::new(kind, key, Action::Create(desired)));
    };
    let is_own = is_ours(present.meta(), ip.metadata.uid.as_deref());
    let actual = serde_json::to_value(present).unwrap_or_default();
    let is_wrong = is_own && !is_terminating(present.meta()) && !covers(&actual, &desired);

    is_wrong.then(|| Write::new(kind, key, Action::Apply(desired)))
}
