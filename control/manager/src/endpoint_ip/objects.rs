//! The objects on which the need for an IP object depends, in the cache.

use crate::authentication::label;
use crate::network::is_real;
use control_api::{IP, NamespaceOffloading, Network, VirtualNode, annotations, labels};
use control_runtime::{Cache, Cluster, Destinations, Key, Objects, Ref};
use ipam::Remap;
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Index of EndpointSlices by their addresses.
pub(super) const BY_ADDRESS: &str = "endpoint-ip/address";
/// Index of EndpointSlices by the Nodes of their endpoints.
pub(super) const BY_NODE: &str = "endpoint-ip/node";
/// Index of pods by their addresses.
pub(super) const POD_BY_ADDRESS: &str = "endpoint-ip/pod-address";
/// Index of Nodes by their addresses.
pub(super) const NODE_BY_ADDRESS: &str = "endpoint-ip/node-address";
/// Index of IP objects by the address that they translate.
pub(super) const IP_BY_ADDRESS: &str = "endpoint-ip/ip";

/// Name of the NamespaceOffloading of each offloaded namespace.
const OFFLOADING: &str = "offloading";

/// Type of the condition of a cluster to which a namespace is offloaded.
const REQUIRED: &str = "OffloadingRequired";

/// Why an address gets no IP object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("it is loopback, link-local, multicast or reserved")]
    Unroutable,
    #[error("it is a metadata service")]
    Metadata,
    #[error("it is the address of a node")]
    Node,
    #[error("it is in the Service, external or internal CIDR of this cluster")]
    Internal,
}

/// The objects of this cluster.
pub(super) struct Local<'a> {
    pub(super) cache: &'a Cache,
    /// Namespace of Liqo.
    liqo: &'a str,
    pub(super) slices: Objects<'a, EndpointSlice>,
    pub(super) pods: Objects<'a, Pod>,
    pub(super) services: Objects<'a, Service>,
    pub(super) virtual_nodes: Objects<'a, VirtualNode>,
    pub(super) ips: Objects<'a, IP>,
    networks: Objects<'a, Network>,
    nodes: Objects<'a, Node>,
}

impl<'a> Local<'a> {
    /// Creates the view of a cache.
    pub(super) fn new(cache: &'a Cache, liqo: &'a str) -> Self {
        let local = &Cluster::Local;
        Self {
            cache,
            liqo,
            slices: cache.objects(local),
            pods: cache.objects(local),
            services: cache.objects(local),
            virtual_nodes: cache.objects(local),
            ips: cache.objects(local),
            networks: cache.objects(local),
            nodes: cache.objects(local),
        }
    }

    /// Returns the cluster IDs of the providers to which a namespace is offloaded.
    pub(super) fn providers(&self, namespace: &str) -> BTreeSet<&'a str> {
        let key = Key::new(namespace, OFFLOADING);
        let offloading = self.cache.local::<NamespaceOffloading>(&key);
        let offloading = offloading.filter(|it| it.metadata.deletion_timestamp.is_none());
        let status = offloading.and_then(|it| it.status.as_ref());
        let conditions = status.into_iter();
        let conditions = conditions.flat_map(|it| &it.remote_namespaces_conditions);
        let required = conditions.filter(|(_, conditions)| {
            let mut conditions = conditions.iter();
            conditions.any(|it| it.type_ == REQUIRED && it.status == "True")
        });

        required.map(|(cluster, _)| cluster.as_str()).collect()
    }

    /// Returns an object with an address of which a provider needs an IP object: an EndpointSlice, because the provider reaches
    /// the address only by one, or a pod at another provider, whose packets to it have the address of one.
    pub(super) fn object_with(&self, namespace: &str, address: Ipv4Addr) -> Option<Ref> {
        let text = address.to_string();
        if self.is_of_pod(address) {
            return None;
        }
        let mut slices = self.slices.indexed(BY_ADDRESS, &text);
        let slice = slices.find(|(key, slice)| {
            if key.namespace != namespace {
                return false;
            }
            let providers = self.reflected_to(namespace, slice);
            let mut endpoints = slice.endpoints.iter().flatten();
            endpoints
                .any(|it| it.addresses.contains(&text) && self.is_far((it, address), &providers))
        });
        if let Some((key, _)) = slice {
            return Some(Ref::of::<EndpointSlice>(&Cluster::Local, key));
        }
        let pod = self.pod_with(namespace, address)?;

        Some(Ref::of::<Pod>(&Cluster::Local, pod))
    }

    /// Returns a pod with an address that runs at a provider, if its namespace is offloaded to another one, too.
    pub(super) fn pod_with(&self, namespace: &str, address: Ipv4Addr) -> Option<&'a Key> {
        let mut pods = self.pods.indexed(POD_BY_ADDRESS, &address.to_string());
        let pod = pods.find(|(key, pod)| {
            let spec = pod.spec.as_ref();
            let node = spec.and_then(|it| it.node_name.as_deref());
            let node = node.and_then(|it| self.nodes.get(&Key::cluster(it)));
            let of_host = spec.and_then(|it| it.host_network) == Some(true);
            let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
            key.namespace == namespace
                && !of_host
                && !matches!(phase, Some("Succeeded" | "Failed"))
                && node.is_some_and(|it| {
                    let cluster = label(&it.metadata, labels::REMOTE_CLUSTER_ID);
                    let mut providers = self.providers(namespace).into_iter();
                    is_of_provider(it, address) && providers.any(|it| Some(it) != cluster)
                })
        });

        pod.map(|(key, _)| key)
    }

    /// Returns whether an address is in a pod CIDR of this cluster, which providers remap.
    pub(super) fn is_of_pod(&self, address: Ipv4Addr) -> bool {
        self.is_within(address, &[labels::NETWORK_TYPE_POD])
    }

    /// Returns whether one of these providers reaches an address of an endpoint through this cluster only. A direct connection to
    /// another provider may end.
    fn is_far(
        &self,
        (endpoint, address): (&Endpoint, Ipv4Addr),
        providers: &BTreeSet<&str>,
    ) -> bool {
        let Some(name) = &endpoint.node_name else {
            return !providers.is_empty();
        };
        let Some(node) = self.nodes.get(&Key::cluster(&**name)) else {
            // A virtual kubelet leaves it out.
            return false;
        };
        if is_real(node) {
            return !providers.is_empty();
        }
        let cluster = label(&node.metadata, labels::REMOTE_CLUSTER_ID);

        is_of_provider(node, address) && providers.iter().any(|it| Some(*it) != cluster)
    }

    /// Checks that an address is none of this cluster itself.
    ///
    /// # Errors
    ///
    /// Returns [`Refusal`] unless an administrator has labelled the namespace.
    pub(super) fn check(&self, namespace: &str, address: Ipv4Addr) -> Result<(), Refusal> {
        if !control_fabric::is_routable(address) {
            return Err(Refusal::Unroutable);
        }
        if !Destinations::Remote.permits(address.into()) {
            return Err(Refusal::Metadata);
        }
        if self.is_permitted(namespace) {
            return Ok(());
        }
        let mut nodes = self
            .nodes
            .indexed(NODE_BY_ADDRESS, &address.to_string())
            .filter(|(_, node)| is_real(node));
        if nodes.next().is_some() {
            return Err(Refusal::Node);
        }
        let internal = [
            labels::NETWORK_TYPE_SERVICE,
            labels::NETWORK_TYPE_EXTERNAL,
            labels::NETWORK_TYPE_INTERNAL,
        ];
        match self.is_within(address, &internal) {
            true => Err(Refusal::Internal),
            false => Ok(()),
        }
    }

    /// Returns whether an administrator permits addresses of this cluster in a namespace.
    fn is_permitted(&self, namespace: &str) -> bool {
        let namespace = self.cache.local::<Namespace>(&Key::cluster(namespace));
        let value = namespace.and_then(|it| label(&it.metadata, labels::ALLOW_INTERNAL_ADDRESSES));

        value == Some("true")
    }

    /// Returns whether an address is in a CIDR of this cluster of one of these types.
    fn is_within(&self, address: Ipv4Addr, types: &[&str]) -> bool {
        let mut networks = self.networks.within(self.liqo);
        networks.any(|(_, network)| {
            let type_ = label(&network.metadata, labels::NETWORK_TYPE);
            let is_of_type = type_.is_some_and(|it| types.contains(&it));
            is_of_type && cidr(network).is_some_and(|it| it.contains(&address))
        })
    }
}

/// Returns the CIDR of a Network.
pub(super) fn cidr(network: &Network) -> Option<Ipv4Net> {
    let allocated = network.status.as_ref();
    let allocated = allocated.and_then(|status| status.cidr.as_ref());

    allocated.unwrap_or(&network.spec.cidr).parse().ok()
}

/// Returns the addresses of an EndpointSlice.
pub(super) fn addresses(slice: &EndpointSlice) -> BTreeSet<Ipv4Addr> {
    let endpoints = slice.endpoints.iter().flatten();
    let texts = endpoints.flat_map(|it| &it.addresses);

    texts.filter_map(|it| it.parse().ok()).collect()
}

/// Returns whether a virtual node has an address in the pod CIDRs of its provider, as this cluster has them. Without networking, the
/// provider could name any address.
fn is_of_provider(node: &Node, address: Ipv4Addr) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    let cidrs = annotations.and_then(|it| it.get(annotations::REMOTE_POD_CIDRS));
    let mut remaps = cidrs.into_iter().flat_map(|it| Remap::parse_list(it));

    !is_real(node) && remaps.any(|it| it.to().contains(&address))
}

/// Returns the address of a pod.
pub(super) fn pod_address(pod: &Pod) -> Option<Ipv4Addr> {
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}
