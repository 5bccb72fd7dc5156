//! The objects of an imported Service.

use super::export::{Group, grouped};
use super::merge::Merged;
use super::properties::{IPV4, common_ports};
use super::registrations::BY_IMPORT;
use super::{desired, objects::Local};
use crate::authentication::{controller_reference, label};
use control_api::multicluster::service_import::{PENDING, READY};
use control_api::multicluster::{
    ClusterStatus, LABEL_SERVICE_NAME, LABEL_SOURCE_CLUSTER, ServiceImportStatus, ServicePort,
    ServiceType, SessionAffinityConfig,
};
use control_api::{ServiceImport, annotations, labels};
use control_runtime::{Cluster, Key, Plan, Ref};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Endpoints of an imported Service in one cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Endpoints {
    /// With the ports that the cluster exports.
    Known(Vec<Group>, Vec<ServicePort>),
    /// They stay as they are, because they cannot be read or translated now; whether they are reached.
    Unknown(bool),
}

/// An imported Service.
pub(super) struct Import<'a, 'b> {
    pub(super) local: &'b Local<'a>,
    pub(super) key: &'b Key,
    pub(super) merged: &'b Merged,
    /// By the cluster that has them.
    pub(super) endpoints: &'b BTreeMap<String, Endpoints>,
    /// Owner of the ServiceImport.
    pub(super) owner: Value,
    /// Whether the exports of all its clusters are known.
    pub(super) is_complete: bool,
}

impl Import<'_, '_> {
    /// Plans all objects.
    pub(super) fn plan<I>(&self, plan: &mut Plan<I>, now: Timestamp) {
        let present = self.local.imports.get(self.key);
        let service = self.service().and_then(|key| self.local.services.get(&key));
        // Without the exports of a cluster, the Service would lose their properties.
        if self.is_complete || present.is_none() {
            let fields = self.service_import(service);
            let object = Ref::of::<ServiceImport>(&Cluster::Local, self.key);
            desired::ensure(plan, self.local.cache, object, present, &fields);
        }
        let Some(present) = present else {
            // It owns the other objects.
            return;
        };
        let owner = controller_reference(present);
        if self.is_complete {
            self.plan_service(plan, service, &owner);
        }
        self.plan_slices(plan, &owner);
        if self.is_complete {
            let status = self.status(present, service, now);
            let object = Ref::of::<ServiceImport>(&Cluster::Local, self.key);
            desired::ensure_status(plan, object, present, &status);
        }
    }

    /// Returns the name of the Service that has the address; `None` if there is none.
    fn service(&self) -> Option<Key> {
        let is_headless = self.merged.properties.type_ == ServiceType::Headless;

        (!is_headless && !self.merged.properties.ports.is_empty()).then(|| derived(self.key))
    }

    fn service_import(&self, service: Option<&Service>) -> Value {
        let properties = &self.merged.properties;
        let mut labels = json!(properties.labels);
        labels[labels::MANAGED] = json!("true");
        labels[labels::MANAGED_BY] = json!(labels::MANAGED_BY_SERVICE_IMPORT);

        json!({
            "metadata": {
                "labels": labels,
                "annotations": properties.annotations,
                "ownerReferences": [self.owner],
            },
            "spec": {
                "type": properties.type_,
                "ports": properties.ports,
                "ips": address(service),
                "ipFamilies": [IPV4],
                "sessionAffinity": self.affinity(),
                "sessionAffinityConfig": properties.affinity_seconds.map(SessionAffinityConfig::timeout),
                "internalTrafficPolicy": self.traffic_policy(),
                "trafficDistribution": properties.distribution,
            },
        })
    }

    fn affinity(&self) -> &'static str {
        let is_affine = self.merged.properties.affinity_seconds.is_some();
        if is_affine { "ClientIP" } else { "None" }
    }

    fn traffic_policy(&self) -> &'static str {
        if self.merged.properties.is_local {
            "Local"
        } else {
            "Cluster"
        }
    }

    /// Plans the Service, whose address is that of the imported one. Its endpoints are those of the slices with its name.
    fn plan_service<I>(&self, plan: &mut Plan<I>, present: Option<&Service>, owner: &Value) {
        let Some(key) = self.service() else {
            return delete_service(plan, self.local, self.key);
        };
        let properties = &self.merged.properties;
        let ports = properties.ports.iter().map(|port| {
            json!({
                "name": port.name,
                "protocol": port.protocol,
                "appProtocol": port.app_protocol,
                "port": port.port,
                "targetPort": port.port,
            })
        });
        let fields = json!({
            "metadata": self.metadata(owner),
            "spec": {
                "type": "ClusterIP",
                "ports": ports.collect::<Vec<_>>(),
                "ipFamilyPolicy": "SingleStack",
                "ipFamilies": [IPV4],
                "sessionAffinity": self.affinity(),
                "sessionAffinityConfig": properties.affinity_seconds.map(SessionAffinityConfig::timeout),
                "internalTrafficPolicy": self.traffic_policy(),
                "trafficDistribution": properties.distribution,
            },
        });
        let object = Ref::of::<Service>(&Cluster::Local, &key);
        desired::ensure(plan, self.local.cache, object, present, &fields);
    }

    /// Returns the metadata of the Service, and of the slices but for further labels.
    fn metadata(&self, owner: &Value) -> Value {
        json!({
            "labels": {
                labels::MANAGED: "true",
                labels::MANAGED_BY: labels::MANAGED_BY_SERVICE_IMPORT,
                LABEL_SERVICE_NAME: self.key.name,
            },
            // Each cluster has its own.
            "annotations": {annotations::SKIP_REFLECTION: "true"},
            "ownerReferences": [owner],
        })
    }

    /// Plans the EndpointSlices of all clusters.
    fn plan_slices<I>(&self, plan: &mut Plan<I>, owner: &Value) {
        let mut kept = BTreeSet::new();
        for (cluster, endpoints) in self.endpoints {
            match endpoints {
                Endpoints::Known(groups, ports) => {
                    let common = common_ports(&self.merged.properties.ports, ports);
                    let groups = groups.iter().map(|group| served(group, &common));
                    for (number, group) in grouped(groups).iter().enumerate() {
                        let key = slice_key(self.key, cluster, number);
                        let fields = self.slice(owner, cluster, group);
                        let present = self.local.slices.get(&key);
                        let object = Ref::of::<EndpointSlice>(&Cluster::Local, &key);
                        desired::ensure(plan, self.local.cache, object, present, &fields);
                        kept.insert(key);
                    }
                }
                Endpoints::Unknown(_) => {
                    let slices = slices_of(self.local, self.key, cluster);
                    kept.extend(slices.map(|(key, _)| key.clone()));
                }
            }
        }
        interrupt(plan, self.local, self.key, self.endpoints);
        delete_slices(plan, self.local, self.key, &kept);
    }

    fn slice(&self, owner: &Value, cluster: &str, (endpoints, ports): &Group) -> Value {
        let mut metadata = self.metadata(owner);
        let labels = &mut metadata["labels"];
        labels[LABEL_SOURCE_CLUSTER] = json!(cluster);
        labels[labels::SLICE_MANAGED_BY] = json!(labels::SLICE_MANAGED_BY_SERVICE_IMPORT);
        if let Some(service) = self.service() {
            labels[labels::SERVICE_NAME] = json!(service.name);
        }

        json!({
            "metadata": metadata,
            "addressType": IPV4,
            "endpoints": endpoints,
            "ports": ports,
        })
    }

    fn status(
        &self,
        present: &ServiceImport,
        service: Option<&Service>,
        now: Timestamp,
    ) -> ServiceImportStatus {
        let clusters = self.merged.clusters.iter().map(|cluster| ClusterStatus {
            cluster: cluster.clone(),
        });
        let is_ready =
            self.merged.properties.type_ == ServiceType::Headless || address(service).is_some();
        let (reason, message) = match (is_ready, self.service()) {
            (true, _) => (READY, "the Service can be used"),
            (false, Some(_)) => (PENDING, "the Service has no address yet"),
            (false, None) => (PENDING, "no cluster exports a valid port of the Service"),
        };
        let old = present.status.clone().unwrap_or_default();
        let condition = super::conditions::Verdict {
            type_: READY,
            is_true: is_ready,
            reason: reason.to_owned(),
            message: message.to_owned(),
        };

        ServiceImportStatus {
            clusters: clusters.collect(),
            conditions: super::conditions::set(
                &old.conditions,
                [condition],
                present.metadata.generation,
                now,
            ),
        }
    }
}

/// Plans that no endpoint is ready whose cluster is not reached, and whose export cannot be read now.
pub(super) fn interrupt<I>(
    plan: &mut Plan<I>,
    local: &Local<'_>,
    key: &Key,
    endpoints: &BTreeMap<String, Endpoints>,
) {
    let unreached = endpoints
        .iter()
        .filter(|(_, it)| **it == Endpoints::Unknown(false));
    for (key, slice) in unreached.flat_map(|(cluster, _)| slices_of(local, key, cluster)) {
        let mut endpoints = slice.endpoints.clone().unwrap_or_default();
        for endpoint in &mut endpoints {
            let conditions = endpoint.conditions.get_or_insert_default();
            conditions.ready = Some(false);
            conditions.serving = conditions.serving.map(|_| false);
        }
        let fields = json!({"endpoints": endpoints});
        let object = Ref::of::<EndpointSlice>(&Cluster::Local, key);
        desired::ensure(plan, local.cache, object, Some(slice), &fields);
    }
}

/// Returns the EndpointSlices of an imported Service with the endpoints of a cluster.
fn slices_of<'a>(
    local: &Local<'a>,
    key: &Key,
    cluster: &str,
) -> impl Iterator<Item = (&'a Key, &'a EndpointSlice)> {
    let slices = local.slices.indexed(BY_IMPORT, &key.to_string());
    slices.filter(move |(_, it)| label(&it.metadata, LABEL_SOURCE_CLUSTER) == Some(cluster))
}

/// Plans that nothing remains of an imported Service.
pub(super) fn withdraw<I>(plan: &mut Plan<I>, local: &Local<'_>, key: &Key) {
    delete_slices(plan, local, key, &BTreeSet::new());
    delete_service(plan, local, key);
    let import = local.imports.get(key);
    let import = import.filter(|it| super::objects::is_own(&it.metadata));
    if let Some(import) = import.filter(|it| it.metadata.deletion_timestamp.is_none()) {
        let uid = import.metadata.uid.clone().unwrap_or_default();
        plan.delete(Ref::of::<ServiceImport>(&Cluster::Local, key), uid);
    }
}

fn delete_service<I>(plan: &mut Plan<I>, local: &Local<'_>, import: &Key) {
    let key = derived(import);
    let service = local.services.get(&key);
    let service = service.filter(|it| super::objects::is_own(&it.metadata));
    if let Some(service) = service.filter(|it| it.metadata.deletion_timestamp.is_none()) {
        let uid = service.metadata.uid.clone().unwrap_or_default();
        plan.delete(Ref::of::<Service>(&Cluster::Local, &key), uid);
    }
}

fn delete_slices<I>(plan: &mut Plan<I>, local: &Local<'_>, import: &Key, kept: &BTreeSet<Key>) {
    let slices = local.slices.indexed(BY_IMPORT, &import.to_string());
    let stale = slices.filter(|(key, _)| !kept.contains(*key));
    for (key, slice) in stale.filter(|(_, it)| it.metadata.deletion_timestamp.is_none()) {
        let uid = slice.metadata.uid.clone().unwrap_or_default();
        plan.delete(Ref::of::<EndpointSlice>(&Cluster::Local, key), uid);
    }
}

/// Returns endpoints with the ports that the imported Service has, too. Without ports, only their addresses are published.
fn served((endpoints, ports): &Group, common: &BTreeSet<String>) -> Group {
    let ports = ports.iter().filter(|port| {
        let name = port.name.as_deref().unwrap_or_default();
        common.contains(name)
    });

    (endpoints.clone(), ports.cloned().collect())
}

/// Returns the address of the Service.
fn address(service: Option<&Service>) -> Option<[&str; 1]> {
    let address = service?.spec.as_ref()?.cluster_ip.as_deref()?;

    (!address.is_empty()).then_some([address])
}

/// Returns the name of the Service of an imported one.
fn derived(key: &Key) -> Key {
    Key::new(
        &*key.namespace,
        format!("derived-{}", hash(&key.to_string(), 10)),
    )
}

/// Returns the name of an EndpointSlice of a cluster.
fn slice_key(key: &Key, cluster: &str, number: usize) -> Key {
    let derived = derived(key);
    let name = format!("{}-{}-{number}", derived.name, hash(cluster, 10));

    Key::new(&*key.namespace, name)
}

/// Returns the first digits of the SHA-256 of a text, hexadecimal.
fn hash(text: &str, len: usize) -> String {
    let mut digits = String::new();
    for byte in Sha256::digest(text.as_bytes()) {
        // A String does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits.truncate(len);

    digits
}
