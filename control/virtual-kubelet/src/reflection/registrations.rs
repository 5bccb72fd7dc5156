//! The resources of reflection. All controllers of the process that follow one of them use its function.

use super::kind::Kind;
use super::other;
use super::peering::Peering;
use super::settings::Settings;
use super::summary::{Summarized, keep, keep_unstructured};
use control_api::annotations::{ALLOW_REFLECTION, REMOTE_POD_CIDRS, SKIP_REFLECTION};
use control_api::{IP, NamespaceMap, ShadowEndpointSlice};
use control_runtime::{Cluster, Registration, Resource, Scope, Selector, Source, WatchId};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeSet;

/// ClusterRole of a virtual kubelet in the namespaces of the provider.
pub(super) const REMOTE_ROLE: &str = "liqo-virtual-kubelet-remote";

/// ClusterRole of a virtual kubelet in the namespaces of the provider for the kinds that flags name.
pub(super) const REMOTE_EXTRA_ROLE: &str = "liqo-virtual-kubelet-remote-extra";

/// ClusterRole of a virtual kubelet in the offloaded namespaces of this cluster.
pub(super) const LOCAL_ROLE: &str = "liqo-virtual-kubelet-local-namespace";

/// Field manager of reflected objects, as upstream's.
pub(super) const FIELD_MANAGER: &str = "reflection.liqo.io";

/// Index of EndpointSlices by the name of their Service.
pub(super) const BY_SERVICE: &str = "service";
/// Index of EndpointSlices by the Nodes of their endpoints.
pub(super) const BY_NODE: &str = "node";
/// Index of EndpointSlices by their addresses.
pub(super) const BY_ADDRESS: &str = "address";
/// Index of IP objects by the address that they translate.
pub(super) const BY_SPEC: &str = "spec.ip";

/// Returns the resources of the reflection of kinds.
pub(super) fn registrations(settings: &Settings) -> Vec<Registration> {
    let mut registrations = vec![
        namespace_maps(settings),
        Registration::of(Scope::All, keep_namespace),
    ];
    for kind in Kind::ALL.into_iter().filter(|it| settings.is_enabled(*it)) {
        match kind {
            Kind::Service => registrations.push(reflected::<Service>()),
            Kind::Ingress => registrations.push(reflected::<Ingress>()),
            Kind::ConfigMap => registrations.push(reflected::<ConfigMap>()),
            Kind::Secret => registrations.push(reflected::<Secret>()),
            Kind::EndpointSlice => registrations.extend(of_slices()),
            Kind::Other(_) => {}
        }
    }
    registrations.extend(settings.others().map(unstructured));

    registrations
}

/// Returns the resources of the reflection of kinds, for a controller that only follows them.
pub(super) fn followed(settings: &Settings) -> Vec<Registration> {
    fn of<K: Summarized + Source + PartialEq>() -> Registration {
        Registration::of(Scope::Planned, keep::<K>)
    }
    let kinds = Kind::ALL.into_iter().filter(|it| settings.is_enabled(*it));
    kinds
        .flat_map(|kind| match kind {
            Kind::Service => vec![of::<Service>()],
            Kind::Ingress => vec![of::<Ingress>()],
            Kind::ConfigMap => vec![of::<ConfigMap>()],
            Kind::Secret => vec![of::<Secret>()],
            Kind::EndpointSlice => vec![
                Registration::of(Scope::Planned, keep_slice),
                of::<ShadowEndpointSlice>(),
            ],
            Kind::Other(_) => Vec::new(),
        })
        .chain(settings.others().map(dynamic))
        .collect()
}

/// Returns the NamespaceMap of the provider.
pub(super) fn namespace_maps(settings: &Settings) -> Registration {
    let scope = Scope::Namespace(settings.tenant_namespace.clone());
    Registration::whole::<NamespaceMap>(scope).name(&*settings.peering.destination)
}

/// Returns a kind of which both clusters have objects. Reads the full objects.
pub(super) fn reflected<K>() -> Registration
where
    K: Summarized + Source + PartialEq,
{
    written(Registration::of(Scope::Planned, keep::<K>)).written_in(Scope::Bound(REMOTE_ROLE))
}

/// Returns a kind that a flag names. One of the clusters may lack it, or the right to it.
fn unstructured(kind: Kind) -> Registration {
    written(dynamic(kind))
        .force(
            other::STATUS,
            "The status of the provider's object is that of this cluster's object.",
        )
        .written_in(Scope::Bound(REMOTE_EXTRA_ROLE))
}

fn dynamic(kind: Kind) -> Registration {
    Registration::dynamic(Scope::Planned, kind.local(), keep_unstructured).optional()
}

fn written(registration: Registration) -> Registration {
    registration
        .full_objects()
        .adopt_rest(FIELD_MANAGER)
        .force(
            "",
            "The fields of a reflected object are those of this cluster's object.",
        )
        .verbs(&["create", "patch", "delete"])
}

fn of_slices() -> Vec<Registration> {
    vec![
        // Annotations of Services apply to their slices.
        Registration::of(Scope::Planned, keep::<Service>),
        Registration::of(Scope::Planned, keep_slice)
            .index(BY_SERVICE, |slice: &EndpointSlice| {
                service_of(slice).map(str::to_owned).into_iter().collect()
            })
            .index(BY_NODE, |slice: &EndpointSlice| {
                let nodes = slice.endpoints.iter().flatten();
                let nodes: BTreeSet<_> = nodes.filter_map(|it| it.node_name.clone()).collect();
                Vec::from_iter(nodes)
            })
            .index(BY_ADDRESS, |slice: &EndpointSlice| {
                let endpoints = slice.endpoints.iter().flatten();
                endpoints.flat_map(|it| it.addresses.clone()).collect()
            }),
        reflected::<ShadowEndpointSlice>(),
        Registration::of(Scope::All, keep_node),
        Registration::of(Scope::Planned, keep_ip)
            .index(BY_SPEC, |ip: &IP| vec![ip.spec.ip.clone()]),
    ]
}

/// Returns the name of the Service of an EndpointSlice.
pub(super) fn service_of(slice: &EndpointSlice) -> Option<&str> {
    let labels = slice.metadata.labels.as_ref()?;
    labels
        .get(control_api::labels::SERVICE_NAME)
        .map(String::as_str)
}

/// Keeps the fields that are reflected.
fn keep_slice(slice: EndpointSlice) -> EndpointSlice {
    let endpoint = |endpoint: Endpoint| Endpoint {
        deprecated_topology: None,
        ..endpoint
    };
    EndpointSlice {
        metadata: pruned(slice.metadata),
        endpoints: slice
            .endpoints
            .map(|it| it.into_iter().map(endpoint).collect()),
        ..slice
    }
}

/// Keeps the annotations of a namespace about reflection.
fn keep_namespace(namespace: Namespace) -> Namespace {
    let mut metadata = pruned(namespace.metadata);
    metadata.labels = None;
    let mut annotations = metadata.annotations.take().unwrap_or_default();
    annotations.retain(|key, _| [SKIP_REFLECTION, ALLOW_REFLECTION].contains(&key.as_str()));
    metadata.annotations = Some(annotations).filter(|it| !it.is_empty());

    Namespace {
        metadata,
        ..Namespace::default()
    }
}

/// Keeps the labels of a Node, and the CIDRs of its provider.
fn keep_node(node: Node) -> Node {
    let mut metadata = pruned(node.metadata);
    let mut annotations = metadata.annotations.take().unwrap_or_default();
    annotations.retain(|key, _| key == REMOTE_POD_CIDRS);
    metadata.annotations = Some(annotations).filter(|it| !it.is_empty());

    Node {
        metadata,
        ..Node::default()
    }
}

/// Keeps the addresses of an IP object.
fn keep_ip(ip: IP) -> IP {
    let mut kept = IP::new("", control_api::IPSpec::default());
    kept.metadata = ObjectMeta {
        annotations: None,
        labels: None,
        ..pruned(ip.metadata)
    };
    kept.spec.ip = ip.spec.ip;
    kept.status = ip.status;
    kept
}

/// Returns name, labels and annotations, and whether the object is being deleted.
fn pruned(metadata: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        labels: metadata.labels,
        annotations: metadata.annotations,
        deletion_timestamp: metadata.deletion_timestamp,
        ..ObjectMeta::default()
    }
}

/// Returns the watch of the reflected objects of a kind in a namespace of the provider.
pub(super) fn remote_watch(peering: &Peering, kind: Kind, namespace: &str) -> WatchId {
    WatchId {
        cluster: peering.cluster(),
        resource: kind.remote(),
        namespace: Some(namespace.to_owned()),
        selector: Selector {
            labels: peering.selector(),
            ..Selector::default()
        },
    }
}

/// Returns the watch of a resource in a namespace of this cluster.
pub(super) fn local_watch(resource: Resource, namespace: &str) -> WatchId {
    WatchId {
        cluster: Cluster::Local,
        resource,
        namespace: Some(namespace.to_owned()),
        selector: Selector::default(),
    }
}

/// Returns the watches in a namespace of this cluster that the reflection of a kind needs.
pub(super) fn local_watches(kind: Kind, namespace: &str) -> Vec<WatchId> {
    let mut watches = vec![local_watch(kind.local(), namespace)];
    if kind == Kind::EndpointSlice {
        watches.push(local_watch(Resource::of::<Service>(), namespace));
        watches.push(local_watch(Resource::of::<IP>(), namespace));
    }

    watches
}
