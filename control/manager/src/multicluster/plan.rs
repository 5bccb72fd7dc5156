//! Plans the export and the import of a Service.

use super::conditions::{Unexported, Verdict, of_export, set};
use super::desired;
use super::export::{Group, Invalid, OwnExport, grouped, labels_for};
use super::import::{Endpoints, Import, interrupt, withdraw};
use super::item::WorkItem;
use super::merge::{Export, Merged};
use super::objects::{Local, is_own};
use super::peers::Peer;
use crate::authentication::{label, warn};
use crate::shadow_endpoint_slice::{Addresses, Content, Direct, Dropped, NotMapped, Readiness};
use control_api::multicluster::ServiceExportStatus;
use control_api::multicluster::service_export::CONFLICT;
use control_api::networking::exported_service::ENDPOINTS_MAX;
use control_api::{ExportedService, ExportedServiceSpec, ServiceExport, ServiceImport, labels};
use control_runtime::{Cluster, Key, Plan, Ref};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest note of an Event about content of a peer, in bytes. The limit of the API is 1024.
const NOTE_LEN_MAX: usize = 512;

/// Plans a Service. Returns also what was left out of the endpoints of peers.
pub(super) fn plan(local: &Local<'_>, key: &Key, now: Timestamp) -> (Plan<WorkItem>, Dropped) {
    let mut plan = Plan::default();
    let mut dropped = Dropped::default();
    let Some(id) = local.cluster_id().filter(|_| local.is_listed(key)) else {
        return (plan, dropped);
    };
    let export = local.exports.get(key);
    let is_present = |it: &&ServiceExport| it.metadata.deletion_timestamp.is_none();
    let export = export.filter(|it| local.has_namespace(&key.namespace) && is_present(it));
    let own = export.map(|export| OwnExport::of(local, key, export, id));
    let valid = own.as_ref().and_then(|it| it.as_ref().ok());
    let owner = local.owner();
    let exported = match (&owner, valid) {
        (Some(owner), Some(own)) => plan_exported(&mut plan, local, key, own, (id, owner)),
        (None, _) | (_, None) => {
            withdraw_exported(&mut plan, local, key, (id, &[]));
            Exported::default()
        }
    };
    let import = local.imports.get(key);
    let is_taken = import.is_some_and(|it| !is_own(&it.metadata));
    let state = match (is_taken, owner.is_some(), exported.pending.is_empty()) {
        (true, ..) => Err(Unexported::NameTaken),
        (_, false, _) => Err(Unexported::SwitchedOff),
        (.., false) => Err(Unexported::Pending(exported.pending.join(", "))),
        (false, true, true) => Ok(()),
    };
    let of_peers = local.exports_of_peers(key);
    let exports = of_peers.iter().map(|(_, _, export)| export);
    let exports = exports.chain(valid.map(|own| &own.export));
    let merged = Merged::of(&exports.cloned().collect::<Vec<_>>());
    if !is_taken {
        let (endpoints, rest) = endpoints(local, key, &of_peers, valid, now, &mut dropped);
        plan.requeue
            .extend(rest.map(|it| (it, WorkItem::Service(key.clone()))));
        plan_import(
            &mut plan,
            local,
            key,
            (merged.as_ref(), &endpoints),
            owner,
            now,
        );
    }
    if let Some(note) = dropped.message() {
        let mut note = format!("exports of peers: {note}");
        note.truncate(note.floor_char_boundary(NOTE_LEN_MAX));
        let object = Ref::of::<ServiceImport>(&Cluster::Local, key);
        warn(&mut plan, object, ("PartsLeftOut", note));
    }
    if let (Some(export), Some(own)) = (export, &own) {
        let verdicts = of_export(own.as_ref().map(|_| ()), state, merged.as_ref(), id);
        let object = Ref::of::<ServiceExport>(&Cluster::Local, key);
        // One Event for an object: of two, each would be news after the other.
        if let Some(problem) = problem(own.as_ref().err(), &verdicts, exported.missing) {
            warn(&mut plan, object.clone(), problem);
        }
        plan_status(&mut plan, (object, export), verdicts, now);
    }

    (plan, dropped)
}

/// Plans the objects of an imported Service.
fn plan_import(
    plan: &mut Plan<WorkItem>,
    local: &Local<'_>,
    key: &Key,
    (merged, endpoints): (Option<&Merged>, &BTreeMap<String, Endpoints>),
    owner: Option<Value>,
    now: Timestamp,
) {
    let is_complete = is_complete(local, key);
    match (merged, owner) {
        (Some(merged), Some(owner)) if local.has_namespace(&key.namespace) => {
            let import = Import {
                local,
                key,
                merged,
                endpoints,
                owner,
                is_complete,
            };
            import.plan(plan, now);
        }
        (Some(_), _) | (None, None) => withdraw(plan, local, key),
        (None, Some(_)) if is_complete => withdraw(plan, local, key),
        (None, Some(_)) => interrupt(plan, local, key, endpoints),
    }
}

/// Returns whether the exports of all clusters are known from which a Service was imported.
fn is_complete(local: &Local<'_>, key: &Key) -> bool {
    let import = local.imports.get(key);
    let clusters = import.and_then(|it| it.status.as_ref());
    let mut clusters = clusters.into_iter().flat_map(|it| &it.clusters);

    clusters.all(|it| {
        let mut peers = local.peers();
        peers
            .find(|peer| peer.id == it.cluster)
            .is_none_or(|peer| local.is_known(&peer))
    })
}

/// The ExportedServices of a Service.
#[derive(Debug, Default)]
struct Exported {
    /// Peers that do not have them yet.
    pending: Vec<String>,
    /// Number of endpoints that they lack.
    missing: usize,
}

/// Plans the ExportedServices for all peers.
fn plan_exported(
    plan: &mut Plan<WorkItem>,
    local: &Local<'_>,
    key: &Key,
    own: &OwnExport,
    (id, owner): (&str, &Value),
) -> Exported {
    let peers: Vec<Peer<'_>> = local.peers().collect();
    let (spec, missing) = own.for_peers(&local.pod_cidrs());
    let name = ExportedService::name_of(&key.namespace, &key.name, id);
    let mut pending = Vec::new();
    let mut kept = Vec::new();
    for peer in &peers {
        let object = Key::new(peer.namespace, name.as_str());
        let present = local.exported.get(&object);
        // A peer may have taken the name, and so does not get the export.
        let is_taken = present.is_some_and(is_replica);
        if present.is_none() || is_taken {
            pending.push(peer.id.to_owned());
        }
        if is_taken {
            continue;
        }
        let fields = json!({
            "metadata": {"labels": labels_for(peer, id), "ownerReferences": [owner]},
            "spec": full(&spec),
        });
        let reference = Ref::of::<ExportedService>(&Cluster::Local, &object);
        desired::ensure(plan, local.cache, reference, present, &fields);
        kept.push(object);
    }
    withdraw_exported(plan, local, key, (id, &kept));

    Exported {
        pending,
        missing: if peers.is_empty() { 0 } else { missing },
    }
}

/// Returns a specification with all its fields, those that are absent as null, so that a change removes them.
fn full(spec: &ExportedServiceSpec) -> Value {
    let mut fields = json!({
        "ports": null,
        "ipFamilies": null,
        "sessionAffinity": null,
        "sessionAffinityTimeoutSeconds": null,
        "internalTrafficPolicy": null,
        "trafficDistribution": null,
        "exportedLabels": null,
        "exportedAnnotations": null,
        "exportedAt": null,
        "endpointSlices": null,
    });
    let present = json!(spec);
    for (name, value) in present.as_object().into_iter().flatten() {
        fields[name] = value.clone();
    }

    fields
}

/// Plans that no ExportedServices of this cluster remain but these.
fn withdraw_exported(
    plan: &mut Plan<WorkItem>,
    local: &Local<'_>,
    key: &Key,
    (id, kept): (&str, &[Key]),
) {
    let name = ExportedService::name_of(&key.namespace, &key.name, id);
    let own = local.exported.iter().filter(|(object, it)| {
        object.name == name && is_own(&it.metadata) && !is_replica(it) && !kept.contains(object)
    });
    for (object, it) in own.filter(|(_, it)| it.metadata.deletion_timestamp.is_none()) {
        let uid = it.metadata.uid.clone().unwrap_or_default();
        plan.delete(Ref::of::<ExportedService>(&Cluster::Local, object), uid);
    }
}

fn is_replica(exported: &ExportedService) -> bool {
    let value = label(&exported.metadata, labels::REPLICATED);
    value == Some("true")
}

/// Returns the endpoints of a Service in each cluster, and for how long they are valid.
fn endpoints(
    local: &Local<'_>,
    key: &Key,
    of_peers: &[(Peer<'_>, &ExportedService, Export)],
    own: Option<&OwnExport>,
    now: Timestamp,
    dropped: &mut Dropped,
) -> (BTreeMap<String, Endpoints>, Option<Duration>) {
    let mut endpoints = BTreeMap::new();
    let mut valid_for: Option<Duration> = None;
    if let Some(own) = own {
        let known = Endpoints::Known(own.groups.clone(), own.export.properties.ports.clone());
        endpoints.insert(own.export.cluster.clone(), known);
    }
    let grace = local.settings.endpoints.api_server_grace_period;
    for peer in local.peers() {
        let (is_ready, rest) = match peer.health {
            Some(health) => health.is_ready(grace, now),
            None => (false, None),
        };
        let of_peer = of_peers.iter().find(|(it, ..)| it.id == peer.id);
        let of_peer = match of_peer {
            Some((_, exported, export)) => {
                let groups = groups_of(local, &peer, exported, is_ready, dropped);
                match groups {
                    Ok(groups) => Endpoints::Known(groups, export.properties.ports.clone()),
                    Err(NotMapped::Pending | NotMapped::Missing) => Endpoints::Unknown(is_ready),
                }
            }
            None if local.admits(&key.namespace) && !local.is_known(&peer) => {
                Endpoints::Unknown(is_ready)
            }
            None => continue,
        };
        valid_for = [valid_for, rest].into_iter().flatten().min();
        endpoints.insert(peer.id.to_owned(), of_peer);
    }

    (endpoints, valid_for)
}

/// Returns the valid endpoints of a peer, as this cluster reaches them.
///
/// # Errors
///
/// Returns [`NotMapped`] while its CIDRs are being allocated.
fn groups_of(
    local: &Local<'_>,
    peer: &Peer<'_>,
    exported: &ExportedService,
    is_ready: bool,
    dropped: &mut Dropped,
) -> Result<Vec<Group>, NotMapped> {
    let Some(health) = peer.health else {
        return Ok(Vec::new());
    };
    let readiness = Readiness {
        is_reached: is_ready,
        // None is reached directly.
        is_current: false,
    };
    let direct = Direct::default();
    let addresses = Addresses::new(&local.addresses, (peer.id, health), &direct)?;
    let mut room = ENDPOINTS_MAX;
    let mut groups = Vec::new();
    for slice in &exported.spec.endpoint_slices {
        let mut slice = slice.clone();
        let surplus = slice.endpoints.len().saturating_sub(room);
        dropped.surplus_addresses(surplus, ENDPOINTS_MAX);
        slice.endpoints.truncate(room);
        room -= slice.endpoints.len();
        groups.push(Content::parts(
            &slice,
            (peer.id, readiness),
            &addresses,
            dropped,
        ));
    }

    Ok(grouped(groups.into_iter()))
}

/// Returns the Event about a ServiceExport; `None` if all of it is exported.
fn problem(
    invalid: Option<&Invalid>,
    verdicts: &[Verdict],
    missing: usize,
) -> Option<(&'static str, String)> {
    if let Some(invalid) = invalid {
        return Some(("ServiceNotExported", invalid.to_string()));
    }
    let mut verdicts = verdicts.iter();
    if let Some(conflict) = verdicts.find(|it| it.type_ == CONFLICT && it.is_true) {
        let note = format!("{}: {}", conflict.reason, conflict.message);
        return Some(("Conflict", note));
    }

    (missing > 0).then(|| {
        let note = format!(
            "{missing} endpoints are not exported: they are outside of the pod CIDRs of this cluster, or exceed the limit of \
             {ENDPOINTS_MAX}"
        );
        ("EndpointsNotExported", note)
    })
}

/// Plans the status of a ServiceExport.
fn plan_status(
    plan: &mut Plan<WorkItem>,
    (object, export): (Ref, &ServiceExport),
    verdicts: [Verdict; 3],
    now: Timestamp,
) {
    let old = export.status.clone().unwrap_or_default();
    let generation = export.metadata.generation;
    let status = ServiceExportStatus {
        conditions: set(&old.conditions, verdicts, generation, now),
    };
    desired::ensure_status(plan, object, export, &status);
}
