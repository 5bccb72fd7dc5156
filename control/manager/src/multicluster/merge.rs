//! Merges the exports of one Service by several clusters, by the rules of KEP-1645.
//!
//! The Service has the ports of all exports. Of ports that exclude each other, and of all other properties, those of the oldest export
//! count.

use super::properties::Properties;
use control_api::multicluster::ServicePort;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeSet;

/// The export of a Service by one cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Export {
    /// Cluster ID.
    pub(super) cluster: String,
    /// When the Service was exported. One without time is the youngest.
    pub(super) exported_at: Option<Timestamp>,
    pub(super) properties: Properties,
}

/// A property that clusters export with different values. The order is that of the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Conflict {
    Port,
    Type,
    SessionAffinity,
    SessionAffinityConfig,
    Labels,
    Annotations,
    InternalTrafficPolicy,
    TrafficDistribution,
}

impl Conflict {
    /// Returns the reason of the condition.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Port => "PortConflict",
            Self::Type => "TypeConflict",
            Self::SessionAffinity => "SessionAffinityConflict",
            Self::SessionAffinityConfig => "SessionAffinityConfigConflict",
            Self::Labels => "LabelsConflict",
            Self::Annotations => "AnnotationsConflict",
            Self::InternalTrafficPolicy => "InternalTrafficPolicyConflict",
            Self::TrafficDistribution => "TrafficDistributionConflict",
        }
    }
}

/// The Service that the exports describe together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Merged {
    pub(super) properties: Properties,
    /// The cluster whose properties count.
    pub(super) oldest: String,
    /// Cluster IDs, in alphabetical order.
    pub(super) clusters: Vec<String>,
    pub(super) conflicts: BTreeSet<Conflict>,
}

impl Merged {
    /// Merges exports of different clusters, in any order; `None` without exports.
    pub(super) fn of(exports: &[Export]) -> Option<Self> {
        let mut exports: Vec<&Export> = exports.iter().collect();
        exports.sort_by_key(|it| (it.exported_at.is_none(), it.exported_at, &it.cluster));
        let (oldest, younger) = exports.split_first()?;
        let mut properties = oldest.properties.clone();
        let mut conflicts = BTreeSet::new();
        for export in younger {
            conflicts.extend(differences(&oldest.properties, &export.properties));
            for port in &export.properties.ports {
                let mut ports = properties.ports.iter();
                if ports.all(|it| Properties::is_compatible(it, port)) {
                    properties.ports.push(port.clone());
                }
            }
        }
        let mut clusters: Vec<_> = exports.iter().map(|it| it.cluster.clone()).collect();
        clusters.sort();

        Some(Self {
            properties,
            oldest: oldest.cluster.clone(),
            clusters,
            conflicts,
        })
    }
}

fn differences(a: &Properties, b: &Properties) -> BTreeSet<Conflict> {
    let set = |ports: &[ServicePort]| BTreeSet::from_iter(ports.iter().cloned());
    let is_affine = |it: &Properties| it.affinity_seconds.is_some();
    let have_affinity = is_affine(a) && is_affine(b);
    let differences = [
        (Conflict::Port, set(&a.ports) != set(&b.ports)),
        (Conflict::Type, a.type_ != b.type_),
        (Conflict::SessionAffinity, is_affine(a) != is_affine(b)),
        (
            Conflict::SessionAffinityConfig,
            have_affinity && a.affinity_seconds != b.affinity_seconds,
        ),
        (Conflict::Labels, a.labels != b.labels),
        (Conflict::Annotations, a.annotations != b.annotations),
        (Conflict::InternalTrafficPolicy, a.is_local != b.is_local),
        (
            Conflict::TrafficDistribution,
            a.distribution != b.distribution,
        ),
    ];

    let differing = differences.into_iter().filter(|(_, differs)| *differs);
    differing.map(|(conflict, _)| conflict).collect()
}
