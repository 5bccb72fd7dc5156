//! The export of a Service of this cluster.

use super::merge::Export;
use super::objects::{Local, is_own};
use super::peers::Peer;
use super::properties::{IPV4, Properties};
use control_api::multicluster::service_export::reason;
use control_api::multicluster::{ServicePort, ServiceType};
use control_api::networking::exported_service::{ENDPOINTS_MAX, LIST_MAX};
use control_api::offloading::shadow_endpoint_slice::EndpointSliceTemplate;
use control_api::{ExportedServiceSpec, ServiceExport, labels};
use control_runtime::Key;
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Why a ServiceExport exports nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Invalid {
    #[error("there is no Service {0}: create it, or delete the ServiceExport")]
    NoService(Key),
    #[error(
        "a Service of type ExternalName cannot be exported: use another type, or delete the ServiceExport"
    )]
    ExternalName,
    #[error("the Service has no IPv4 address, and only IPv4 is exported")]
    Family,
}

impl Invalid {
    /// Returns the reason of the condition `Valid`.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::NoService(_) => reason::NO_SERVICE,
            Self::ExternalName => reason::INVALID_SERVICE_TYPE,
            Self::Family => "IPFamilyNotSupported",
        }
    }
}

/// Endpoints with the same ports, as in an EndpointSlice.
pub(super) type Group = (Vec<Endpoint>, Vec<EndpointPort>);

/// The export of a Service of this cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OwnExport {
    /// Without endpoints.
    pub(super) spec: ExportedServiceSpec,
    pub(super) export: Export,
    /// All endpoints, as this cluster reaches them.
    pub(super) groups: Vec<Group>,
}

impl OwnExport {
    /// Returns the export that a ServiceExport requests.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid`] if its Service cannot be exported.
    pub(super) fn of(
        local: &Local<'_>,
        key: &Key,
        export: &ServiceExport,
        id: &str,
    ) -> Result<Self, Invalid> {
        let service = local
            .services
            .get(key)
            .filter(|it| it.metadata.deletion_timestamp.is_none())
            .ok_or_else(|| Invalid::NoService(key.clone()))?;
        let spec = spec(key, service, export)?;
        let slices = local.slices.within(&key.namespace).map(|(_, it)| it);
        let of_service = slices.filter(|it| is_of(it, &key.name));
        let properties = Properties::of(&spec).ok_or(Invalid::Family)?;

        Ok(Self {
            export: Export {
                cluster: id.to_owned(),
                exported_at: spec.exported_at.as_ref().map(|it| it.0),
                properties,
            },
            spec,
            groups: grouped(of_service.map(|it| {
                let endpoints = it.endpoints.clone().unwrap_or_default();
                (endpoints, it.ports.clone().unwrap_or_default())
            })),
        })
    }

    /// Returns the specification for peers, and how many endpoints it lacks: they have no address that peers reach, or exceed the
    /// limit.
    pub(super) fn for_peers(&self, pods: &[Ipv4Net]) -> (ExportedServiceSpec, usize) {
        let mut room = ENDPOINTS_MAX;
        let mut missing = 0;
        let mut spec = self.spec.clone();
        for (endpoints, ports) in &self.groups {
            let mut reached = Vec::new();
            for endpoint in endpoints {
                match of_pods(endpoint, pods).filter(|_| room > 0) {
                    Some(endpoint) => {
                        room -= 1;
                        reached.push(endpoint);
                    }
                    None => missing += 1,
                }
            }
            if !reached.is_empty() && spec.endpoint_slices.len() < LIST_MAX {
                spec.endpoint_slices.push(EndpointSliceTemplate {
                    address_type: Some(IPV4.to_owned()),
                    endpoints: reached,
                    ports: ports.clone(),
                });
            }
        }

        (spec, missing)
    }
}

/// Returns the labels of an ExportedService of this cluster for a peer.
///
/// Exports cross by replication to a provider, and only to a consumer that is not also a provider by a watch.
pub(super) fn labels_for(peer: &Peer<'_>, id: &str) -> Value {
    let mut labels = json!({
        labels::MANAGED: "true",
        labels::MANAGED_BY: labels::MANAGED_BY_SERVICE_IMPORT,
        labels::REMOTE_CLUSTER_ID: peer.id,
    });
    if peer.is_provider() {
        labels[labels::REPLICATION] = json!("true");
        labels[labels::REMOTE_ID] = json!(peer.id);
    } else {
        labels[labels::REPLICATION] = json!("false");
        labels[labels::ORIGIN_ID] = json!(id);
    }

    labels
}

/// Returns the properties of a Service.
///
/// # Errors
///
/// Returns [`Invalid`] if it cannot be exported.
fn spec(
    key: &Key,
    service: &Service,
    export: &ServiceExport,
) -> Result<ExportedServiceSpec, Invalid> {
    let default = Default::default();
    let spec = service.spec.as_ref().unwrap_or(&default);
    if spec.type_.as_deref() == Some("ExternalName") {
        return Err(Invalid::ExternalName);
    }
    let is_headless = spec.cluster_ip.as_deref() == Some("None");
    let config = spec.session_affinity_config.as_ref();
    let config = config.and_then(|it| it.client_ip.as_ref());
    let ports = spec.ports.iter().flatten().map(|port| ServicePort {
        name: port.name.clone(),
        protocol: port.protocol.clone(),
        app_protocol: port.app_protocol.clone(),
        port: port.port,
    });

    Ok(ExportedServiceSpec {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        type_: if is_headless {
            ServiceType::Headless
        } else {
            ServiceType::ClusterSetIP
        },
        ports: ports.take(LIST_MAX).collect(),
        ip_families: spec.ip_families.clone().unwrap_or_default(),
        session_affinity: spec.session_affinity.clone(),
        session_affinity_timeout_seconds: config.and_then(|it| it.timeout_seconds),
        internal_traffic_policy: spec.internal_traffic_policy.clone(),
        traffic_distribution: spec.traffic_distribution.clone(),
        exported_labels: export.spec.exported_labels.clone(),
        exported_annotations: export.spec.exported_annotations.clone(),
        exported_at: export.metadata.creation_timestamp.clone(),
        endpoint_slices: Vec::new(),
    })
}

/// Returns whether an EndpointSlice has endpoints of a Service of this cluster.
fn is_of(slice: &EndpointSlice, service: &str) -> bool {
    let metadata = &slice.metadata;
    let name = crate::authentication::label(metadata, labels::SERVICE_NAME);

    name == Some(service)
        && slice.address_type == IPV4
        && !is_own(metadata)
        && metadata.deletion_timestamp.is_none()
}

/// Joins the endpoints of slices with the same ports.
pub(super) fn grouped(slices: impl Iterator<Item = Group>) -> Vec<Group> {
    let mut groups = BTreeMap::<String, Group>::new();
    for (endpoints, ports) in slices {
        let key = serde_json::to_string(&ports).unwrap_or_default();
        let (of_group, _) = groups.entry(key).or_insert((Vec::new(), ports));
        of_group.extend(endpoints);
    }

    groups
        .into_values()
        .filter(|(endpoints, _)| !endpoints.is_empty())
        .collect()
}

/// Returns an endpoint as peers need it; `None` if its addresses are not in a pod CIDR of this cluster.
fn of_pods(endpoint: &Endpoint, pods: &[Ipv4Net]) -> Option<Endpoint> {
    let is_of_pod = |address: &Ipv4Addr| pods.iter().any(|cidr| cidr.contains(address));
    let addresses = endpoint.addresses.iter();
    let reached = addresses.filter(|it| it.parse().is_ok_and(|address| is_of_pod(&address)));
    let addresses: Vec<_> = reached.cloned().collect();

    (!addresses.is_empty()).then(|| Endpoint {
        addresses,
        conditions: endpoint.conditions.clone(),
        hostname: endpoint.hostname.clone(),
        zone: endpoint.zone.clone(),
        ..Endpoint::default()
    })
}
