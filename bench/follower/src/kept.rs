//! What the cache keeps of Pods and EndpointSlices: the fields that are reflected, and a digest of
//! the others, by which a reflected object is compared with its origin.

use control_api::labels::SERVICE_NAME;
use control_runtime::{Kept, Resource};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The annotation of an EndpointSlice whose values are reported.
pub(crate) const MARKER: &str = "bench.liqo.io/marker";

/// The fields of a Pod that are reflected.
#[derive(Debug, PartialEq)]
pub(crate) struct KeptPod {
    /// Name of the node; empty if the pod is not scheduled.
    pub(crate) node: Box<str>,
    /// First address; empty if it has none.
    pub(crate) address: Box<str>,
    pub(crate) phase: Box<str>,
    /// Digest of labels, annotations and status.
    digest: u64,
}

impl Kept for KeptPod {
    fn resource() -> Resource {
        Resource::of::<Pod>()
    }
}

impl From<Pod> for KeptPod {
    fn from(pod: Pod) -> Self {
        let status = pod.status.unwrap_or_default();
        let digest = digest(&pod.metadata, &status);
        let PodStatus { pod_ip, phase, .. } = status;
        let node = pod.spec.and_then(|spec| spec.node_name);

        Self {
            node: node.unwrap_or_default().into(),
            address: pod_ip.unwrap_or_default().into(),
            phase: phase.unwrap_or_default().into(),
            digest,
        }
    }
}

/// The fields of an EndpointSlice that are reflected.
#[derive(Debug, PartialEq)]
pub(crate) struct KeptSlice {
    /// Name of its Service.
    pub(crate) service: Box<str>,
    pub(crate) endpoints: Box<[KeptEndpoint]>,
    pub(crate) ports: Box<[(Box<str>, i32)]>,
    pub(crate) marker: Option<Box<str>>,
    /// Digest of labels, annotations, endpoints and ports.
    digest: u64,
}

/// An endpoint of an EndpointSlice.
#[derive(Debug, PartialEq)]
pub(crate) struct KeptEndpoint {
    pub(crate) address: Box<str>,
    pub(crate) node: Box<str>,
    pub(crate) is_ready: bool,
}

impl Kept for KeptSlice {
    fn resource() -> Resource {
        Resource::of::<EndpointSlice>()
    }
}

impl From<EndpointSlice> for KeptSlice {
    fn from(slice: EndpointSlice) -> Self {
        let digest = digest(&slice.metadata, &(&slice.endpoints, &slice.ports));
        let metadata = &slice.metadata;
        let service = (metadata.labels.as_ref()).and_then(|labels| labels.get(SERVICE_NAME));
        let marker = (metadata.annotations.as_ref()).and_then(|it| it.get(MARKER));
        let ports = slice.ports.unwrap_or_default().into_iter();
        let endpoints = slice
            .endpoints
            .into_iter()
            .flatten()
            .map(|endpoint| KeptEndpoint {
                address: endpoint
                    .addresses
                    .into_iter()
                    .next()
                    .unwrap_or_default()
                    .into(),
                node: endpoint.node_name.unwrap_or_default().into(),
                is_ready: endpoint.conditions.and_then(|it| it.ready).unwrap_or(true),
            });

        Self {
            service: service.map(String::as_str).unwrap_or_default().into(),
            marker: marker.map(|marker| marker.as_str().into()),
            endpoints: endpoints.collect(),
            ports: ports
                .filter_map(|it| Some((it.name.unwrap_or_default().into(), it.port?)))
                .collect(),
            digest,
        }
    }
}

/// Returns a digest of labels, annotations and further fields.
fn digest(metadata: &ObjectMeta, fields: &impl Serialize) -> u64 {
    let mut hasher = DefaultHasher::new();
    metadata.labels.hash(&mut hasher);
    metadata.annotations.hash(&mut hasher);
    // Fields of Kubernetes types are always JSON.
    let fields = serde_json::to_vec(fields).unwrap_or_default();
    fields.hash(&mut hasher);

    hasher.finish()
}
