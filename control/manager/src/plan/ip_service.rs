//! The Service and EndpointSlice that an IP asks for.

use super::metadata::is_ours;
use super::{Planner, owner};
use crate::kind::{Key, Kind};
use crate::world::{Subject, is_going};
use crate::write::{Action, Write, covers};
use control_api::ip::ServiceTemplate;
use control_api::{IP, labels};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

/// Value of [`labels::SLICE_MANAGED_BY`] on the slices that the manager makes.
pub(crate) const SLICE_MANAGER: &str = "controller-manager.liqo.io";

/// Makes what an IP asks for, and removes what it does not ask for any more.
pub(super) fn writes(planner: &Planner, key: &Key, ip: &IP) -> Vec<Write> {
    let Some(template) = &ip.spec.service_template else {
        return leftovers(planner, key);
    };
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
    let service = service(key, ip, template);
    let present = planner.world.services.get(key);

    [
        wanted(Kind::Service, key, present, ip, service),
        without_selector(key, present, ip),
        wanted(
            Kind::EndpointSlice,
            key,
            planner.world.slices.get(key),
            ip,
            slice,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Removes what was made for an IP.
pub(super) fn leftovers(planner: &Planner, key: &Key) -> Vec<Write> {
    let subject = Subject::Owner(Kind::Ip, key.clone());
    let linked = planner.world.linked(&subject);
    linked
        .filter_map(|(kind, child)| {
            let meta = if kind == Kind::Service {
                &planner.world.services.get(child)?.metadata
            } else if kind == Kind::EndpointSlice {
                &planner.world.slices.get(child)?.metadata
            } else {
                return None;
            };
            let delete = Action::Delete(meta.uid.clone());
            (!is_going(meta)).then(|| Write::new(kind, child, delete))
        })
        .collect()
}

fn service(key: &Key, ip: &IP, template: &ServiceTemplate) -> Value {
    let metadata = template.metadata.clone().unwrap_or_default();
    let mut labels = metadata.labels;
    // What Services are found by is not for templates to set.
    labels.remove(labels::COMPONENT);
    labels.remove(labels::GATEWAY_SERVICE);
    labels.insert(labels::MANAGED.to_owned(), "true".to_owned());
    let mut spec =
        serde_json::to_value(template.spec.clone().unwrap_or_default()).unwrap_or_default();
    if let Some(fields) = spec.as_object_mut() {
        // A selector would replace the address by those of pods.
        fields.remove("selector");
    }

    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": labels,
            "annotations": metadata.annotations,
            "ownerReferences": [owner(ip)],
        },
        "spec": spec,
    })
}

/// Takes away a selector that somebody has given to an IP's own Service.
fn without_selector(key: &Key, present: Option<&Service>, ip: &IP) -> Option<Write> {
    let present =
        present.filter(|service| is_ours(&service.metadata, ip.metadata.uid.as_deref()))?;
    let selector = present.spec.as_ref()?.selector.as_ref()?;
    let patch = json!({"spec": {"selector": null}});

    (!selector.is_empty()).then(|| Write::new(Kind::Service, key, Action::Merge(patch)))
}

/// The ports of a slice are those of the Service, whose target ports are not used.
fn slice_ports(template: &ServiceTemplate) -> Value {
    let ports = template.spec.as_ref().and_then(|spec| spec.ports.as_ref());
    let ports = ports.into_iter().flatten().map(|port| {
        let name = port.name.clone().unwrap_or_default();
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        json!({"name": name, "port": port.port, "protocol": protocol})
    });

    ports.collect()
}

/// Makes an object that is not there, and corrects one of the IP's own.
fn wanted<K>(kind: Kind, key: &Key, present: Option<&K>, ip: &IP, wanted: Value) -> Option<Write>
where
    K: kube::Resource + serde::Serialize,
{
    let Some(present) = present else {
        return Some(Write::new(kind, key, Action::Create(wanted)));
    };
    let is_own = is_ours(present.meta(), ip.metadata.uid.as_deref());
    let actual = serde_json::to_value(present).unwrap_or_default();
    let is_wrong = is_own && !is_going(present.meta()) && !covers(&actual, &wanted);

    is_wrong.then(|| Write::new(kind, key, Action::Apply(wanted)))
}
