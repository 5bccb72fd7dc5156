//! The valid properties of an exported Service.
//!
//! They are those that the API server accepts without change, so that what it stores is equal to what was sent.

use crate::offloading::{check_label, is_name, label_key};
use control_api::ExportedServiceSpec;
use control_api::labels::is_reserved;
use control_api::multicluster::{ServicePort, ServiceType};
use control_api::networking::exported_service::LIST_MAX;
use control_fabric::is_cluster_id as is_dns_label;
use std::collections::{BTreeMap, BTreeSet};

/// The address family that crosses between clusters.
pub(super) const IPV4: &str = "IPv4";

/// Protocols of ports.
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

/// Preferences for endpoints that the API server accepts.
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];

/// Longest time of a session affinity, in seconds, which is that of the API server.
const AFFINITY_SECONDS_MAX: i32 = 86_400;

/// Time of a session affinity that states none, in seconds, which is that of the API server.
const AFFINITY_SECONDS: i32 = 10_800;

/// Largest sizes of all exported labels and of all exported annotations, in bytes.
const METADATA_LEN_MAX: usize = 32 * 1024;

/// Properties of an exported Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Properties {
    pub(super) type_: ServiceType,
    /// Ports with protocols and different names, in their order.
    pub(super) ports: Vec<ServicePort>,
    /// Seconds for which a client has the same endpoint; `None` without session affinity.
    pub(super) affinity_seconds: Option<i32>,
    /// Whether only endpoints on the node of a client are used.
    pub(super) is_local: bool,
    pub(super) distribution: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

impl Properties {
    /// Takes the valid properties of an export; `None` if its addresses are of another family.
    pub(super) fn of(spec: &ExportedServiceSpec) -> Option<Self> {
        if !spec.ip_families.iter().any(|it| it == IPV4) {
            return None;
        }
        let is_affine = spec.session_affinity.as_deref() == Some("ClientIP");
        let seconds = spec.session_affinity_timeout_seconds;
        let seconds = seconds.filter(|it| (1..=AFFINITY_SECONDS_MAX).contains(it));
        let distribution = spec.traffic_distribution.clone();

        Some(Self {
            type_: spec.type_,
            ports: ports(&spec.ports),
            affinity_seconds: is_affine.then(|| seconds.unwrap_or(AFFINITY_SECONDS)),
            is_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            distribution: distribution.filter(|it| DISTRIBUTIONS.contains(&it.as_str())),
            labels: metadata(&spec.exported_labels, |key, value| {
                check_label(key, value).is_ok()
            }),
            annotations: metadata(&spec.exported_annotations, |key, _| label_key(key).is_ok()),
        })
    }

    /// Returns whether two Services can have this port and another one.
    pub(super) fn is_compatible(port: &ServicePort, other: &ServicePort) -> bool {
        // Several ports need names.
        port.name.is_some()
            && other.name.is_some()
            && port.name != other.name
            && (port.port, &port.protocol) != (other.port, &other.protocol)
    }
}

/// Returns the valid ports that one Service can have.
fn ports(all: &[ServicePort]) -> Vec<ServicePort> {
    let mut ports: Vec<ServicePort> = Vec::new();
    for port in all.iter().take(LIST_MAX) {
        let name = port.name.clone().filter(|name| !name.is_empty());
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        let is_valid = name.as_deref().is_none_or(is_dns_label)
            && PROTOCOLS.contains(&protocol.as_str())
            && u16::try_from(port.port).is_ok_and(|it| it > 0);
        let port = ServicePort {
            name,
            protocol: Some(protocol),
            app_protocol: port.app_protocol.clone().filter(|it| is_protocol(it)),
            port: port.port,
        };
        if is_valid && ports.iter().all(|it| Properties::is_compatible(it, &port)) {
            ports.push(port);
        }
    }

    ports
}

fn is_protocol(text: &str) -> bool {
    label_key(text).is_ok() && text.rsplit('/').next().is_some_and(is_name)
}

/// Returns the entries that a peer may set: valid ones that steer no controllers, up to the limit.
fn metadata(
    all: &BTreeMap<String, String>,
    is_valid: impl Fn(&str, &str) -> bool,
) -> BTreeMap<String, String> {
    let mut room = METADATA_LEN_MAX;
    let mut taken = BTreeMap::new();
    for (key, value) in all {
        let len = key.len() + value.len();
        if is_valid(key, value) && !is_reserved(key) && len <= room {
            room -= len;
            taken.insert(key.clone(), value.clone());
        }
    }

    taken
}

/// Returns the names of the ports that an export has in common with a Service.
pub(super) fn common_ports(ports: &[ServicePort], of_export: &[ServicePort]) -> BTreeSet<String> {
    let key = |port: &ServicePort| (port.name.clone(), port.protocol.clone(), port.port);
    let present: BTreeSet<_> = ports.iter().map(key).collect();
    let common = of_export.iter().filter(|it| present.contains(&key(it)));

    common
        .map(|it| it.name.clone().unwrap_or_default())
        .collect()
}
