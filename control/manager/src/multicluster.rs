//! Services that clusters export to their peers, by the Multi-Cluster Services API (KEP-1645).
//!
//! ```text
//! exporting cluster                                  importing cluster
//! ServiceExport, Service, EndpointSlices
//!   -> ExportedService in each tenant namespace  ->  ExportedService of the peer
//!                                                      -> ServiceImport, Service with an address, EndpointSlices
//! ```
//!
//! A namespace of one name is the same namespace in all clusters. An ExportedService reaches a provider by `replication`, and a
//! consumer by a watch of its tenant namespace at the provider; with reciprocal peerings, by replication only. The exporting
//! cluster imports its own Services, too.
//!
//! The ExportedServices of peers are untrusted: they count in namespaces that the administrator has chosen, `properties` takes their
//! valid parts, and their addresses are translated and checked as those of ShadowEndpointSlices. `merge` decides what several clusters
//! that export one Service have in common, `export` describes a Service of this cluster, and `import` what is made of all exports.
//! `plan` compares both with the objects in the cache by `desired`, and `controller` connects it to the runtime.
//!
//! All objects are owned by the chart's ClusterRole [`OWNER`], so that Kubernetes removes them when the feature is switched off.

pub(crate) use controller::MultiClusterController;
#[cfg(test)]
pub(crate) use registrations::registrations;
pub(crate) use settings::Settings;

mod conditions;
mod controller;
mod desired;
mod export;
mod import;
mod item;
mod merge;
mod objects;
mod observe;
mod peers;
mod plan;
mod properties;
mod registrations;
mod settings;
mod watches;

#[cfg(test)]
mod tests;

/// ClusterRole of the chart that exists as long as the feature is enabled, and that consists of the rights of this controller.
const OWNER: &str = "liqo-controller-manager-multi-cluster";
