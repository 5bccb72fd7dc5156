//! EndpointSlice -> ShadowEndpointSlice, from which the provider creates an EndpointSlice.

use super::metadata::reflected;
use super::peering::Peering;
use control_api::annotations::DIRECT_CONNECTIONS_DATA;
use control_api::offloading::shadow_endpoint_slice::EndpointSliceTemplate;
use control_api::{ShadowEndpointSlice, ShadowEndpointSliceSpec, labels};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// Value of the label [`labels::SLICE_MANAGED_BY`] on reflected objects.
pub(crate) const MANAGED_BY: &str = "endpointslice.reflection.liqo.io";

/// Length of all annotations of an object below which the API server accepts them, in bytes.
const ANNOTATIONS_LEN_MAX: usize = 256 * 1024;

/// Address type of host names, which are not translated.
const FQDN: &str = "FQDN";

/// Prefix of the kind of an endpoint's object in another cluster.
const REMOTE_KIND: &str = "Remote";

/// Cluster that an endpoint is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location<'a> {
    /// This cluster, or outside of all clusters.
    Local,
    /// The virtual node of a provider, by its cluster ID.
    Remote(&'a str),
    /// A Node that does not exist.
    Unknown,
}

/// Values that the endpoints of a slice depend on.
pub(crate) struct Endpoints<'a> {
    /// Pod CIDRs of this cluster, whose addresses the provider remaps.
    pub(crate) pod_cidrs: &'a [IpNet],
    /// Returns the cluster of a Node.
    pub(crate) locate: &'a dyn Fn(&str) -> Location<'a>,
    /// Returns the address that a pod of a virtual node has in the cluster of its provider, if it is known.
    pub(crate) own_address: &'a dyn Fn(&str, Ipv4Addr) -> Option<Ipv4Addr>,
    /// Returns the address of this cluster's external CIDR for an address outside of the pod CIDRs.
    pub(crate) translate: &'a dyn Fn(&str) -> Option<String>,
    /// Whether the Service has the annotation [`control_api::annotations::USE_DIRECT_CONNECTIONS`].
    pub(crate) is_direct: bool,
}

/// The addresses in other clusters that the provider reaches without this one, by cluster ID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct DirectConnections<'a> {
    cluster_addresses: BTreeMap<&'a str, BTreeSet<String>>,
}

/// Returns the ShadowEndpointSlice of a slice.
///
/// Endpoints in the provider's cluster are left out, because its own EndpointSlices contain them. So are endpoints whose
/// address cannot be translated yet.
pub(crate) fn remote(
    local: &EndpointSlice,
    peering: &Peering,
    context: &Endpoints<'_>,
) -> ShadowEndpointSlice {
    let mut metadata = reflected(&local.metadata, peering);
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(labels::SLICE_MANAGED_BY.to_owned(), MANAGED_BY.to_owned());
    // Only the annotation of the Service requests direct connections.
    let annotations = metadata.annotations.take().map(|mut annotations| {
        annotations.remove(DIRECT_CONNECTIONS_DATA);
        annotations
    });
    metadata.annotations = annotations.filter(|it| !it.is_empty());
    let direct = direct(local, peering, context);
    let direct = direct.filter(|(_, data)| {
        let annotations = metadata.annotations.iter().flatten();
        let len: usize = annotations.map(|(key, it)| key.len() + it.len()).sum();
        len + DIRECT_CONNECTIONS_DATA.len() + data.len() < ANNOTATIONS_LEN_MAX
    });
    let addresses = direct.as_ref().map(|(addresses, _)| addresses);
    let endpoints = local.endpoints.iter().flatten();
    let endpoints = endpoints.filter_map(|it| endpoint(it, local, (peering, context), addresses));
    let template = EndpointSliceTemplate {
        address_type: Some(local.address_type.clone()),
        endpoints: endpoints.collect(),
        ports: local.ports.clone().unwrap_or_default(),
    };
    if let Some((_, data)) = direct {
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(DIRECT_CONNECTIONS_DATA.to_owned(), data);
    }

    ShadowEndpointSlice {
        metadata,
        spec: ShadowEndpointSliceSpec {
            template: Some(template),
        },
    }
}

/// Returns whether a slice is itself reflected from another cluster. The provider does not reach that one through this
/// cluster.
pub(super) fn is_from_peer(local: &EndpointSlice) -> bool {
    let labels = local.metadata.labels.as_ref();
    let manager = labels.and_then(|it| it.get(labels::SLICE_MANAGED_BY));
    manager.is_some_and(|it| it == MANAGED_BY)
}

/// Returns the addresses of pods on virtual nodes of other providers, each with that in the cluster of its provider, and the
/// annotation with the latter; `None` if there are none.
///
/// The provider knows them by the address only. One that another endpoint may have, as it is or translated, is reached through this
/// cluster: otherwise the provider that has it would get the packets to the other one.
fn direct<'a>(
    slice: &'a EndpointSlice,
    peering: &Peering,
    context: &Endpoints<'_>,
) -> Option<(BTreeMap<&'a str, String>, String)> {
    if !context.is_direct {
        return None;
    }
    let mut data = DirectConnections::default();
    let mut direct = BTreeMap::new();
    let endpoints = || slice.endpoints.iter().flatten();
    let local = endpoints().filter(|it| location(it, context) == Location::Local);
    let local = local.flat_map(|it| it.addresses.iter().cloned());
    let translated = endpoints().flat_map(|it| &it.addresses);
    let translated = translated.filter_map(|it| (context.translate)(it));
    let mut taken: BTreeSet<_> = local.chain(translated).collect();
    for endpoint in endpoints().filter(|it| it.target_ref.is_some()) {
        let Location::Remote(cluster) = location(endpoint, context) else {
            continue;
        };
        if cluster == peering.destination {
            continue;
        }
        let node = endpoint.node_name.as_deref().unwrap_or_default();
        for address in &endpoint.addresses {
            let here = address.parse().ok();
            let Some(own) = here.and_then(|it| (context.own_address)(node, it)) else {
                continue;
            };
            let own = own.to_string();
            if !direct.contains_key(address.as_str()) && taken.insert(own.clone()) {
                let of_cluster = data.cluster_addresses.entry(cluster).or_default();
                of_cluster.insert(own.clone());
                direct.insert(address.as_str(), own);
            }
        }
    }
    if direct.is_empty() {
        return None;
    }

    Some((direct, serde_json::to_string(&data).ok()?))
}

fn location<'a>(endpoint: &Endpoint, context: &Endpoints<'a>) -> Location<'a> {
    let node = endpoint.node_name.as_deref();
    node.map_or(Location::Local, context.locate)
}

/// Returns the reflected endpoint; `None` if it is left out.
fn endpoint(
    local: &Endpoint,
    slice: &EndpointSlice,
    (peering, context): (&Peering, &Endpoints<'_>),
    direct: Option<&BTreeMap<&str, String>>,
) -> Option<Endpoint> {
    let location = location(local, context);
    let is_left_out = match location {
        Location::Local => false,
        Location::Remote(cluster) => cluster == peering.destination,
        Location::Unknown => true,
    };
    if is_left_out {
        return None;
    }
    let address = |address: &String| {
        let is_remote = location != Location::Local;
        let own = direct.and_then(|it| it.get(address.as_str()));
        let is_kept = slice.address_type == FQDN || is_of_pod(address, context.pod_cidrs);
        match own.filter(|_| is_remote) {
            Some(own) => Some(own.clone()),
            None if is_kept => Some(address.clone()),
            None => (context.translate)(address),
        }
    };
    let target = |target: &ObjectReference| ObjectReference {
        kind: target
            .kind
            .as_ref()
            .map(|kind| format!("{REMOTE_KIND}{kind}")),
        ..target.clone()
    };
    Some(Endpoint {
        addresses: local.addresses.iter().map(address).collect::<Option<_>>()?,
        conditions: local.conditions.clone(),
        deprecated_topology: None,
        hints: local.hints.clone(),
        hostname: local.hostname.clone(),
        node_name: Some(peering.origin.clone()),
        target_ref: local.target_ref.as_ref().map(target),
        zone: local.zone.clone(),
    })
}

fn is_of_pod(address: &str, pod_cidrs: &[IpNet]) -> bool {
    let address = address.parse::<IpAddr>();
    address.is_ok_and(|it| pod_cidrs.iter().any(|cidr| cidr.contains(&it)))
}
