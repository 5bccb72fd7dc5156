//! Values of the flags, as the controllers use them.

use crate::pod::forge::ApiServerSupport;
use crate::pod::is_bound;
use control_api::annotations::{API_SERVER_ADDRESSES, RESERVED_CIDRS};
use control_api::{VirtualNode, labels};
use control_runtime::{Destinations, Key};
use ipam::Remap;
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

/// Values of the flags.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Name of the VirtualNode and of its Node.
    pub(crate) node: String,
    /// Cluster ID of this cluster.
    pub(crate) home: String,
    /// Cluster ID of the provider.
    pub(crate) provider: String,
    /// Namespace of the VirtualNode.
    pub(crate) tenant_namespace: String,
    /// Address of this pod, which the Node and its pods report.
    pub(crate) address: IpAddr,
    /// Whether a Node is created.
    pub(crate) creates_node: bool,
    /// Whether the Node is ready only while the pod networks are connected.
    pub(crate) checks_network: bool,
    /// Time for which the Node stays ready while the API server of the provider does not respond, and the networks are connected.
    pub(crate) api_server_grace_period: Duration,
    /// Whether pods can have storage of the provider.
    pub(crate) has_storage: bool,
    /// CIDRs of the provider's pods, and the CIDRs that they have in this cluster.
    pub(crate) pod_remaps: Vec<Remap>,
    /// External CIDRs of the provider, likewise.
    pub(crate) external_remaps: Vec<Remap>,
    /// Whether the addresses of remote pods are reflected.
    pub(crate) reflects_ips: bool,
    /// Whether Events of the provider are reflected.
    pub(crate) reflects_events: bool,
    /// Further labels of the Node.
    pub(crate) labels: BTreeMap<String, String>,
    /// Further annotations of the Node.
    pub(crate) annotations: BTreeMap<String, String>,
    /// How pods reach the API server of this cluster.
    pub(crate) api_server_support: ApiServerSupport,
    /// Where pods reach the API server of this cluster, if not at the Service `kubernetes`.
    pub(crate) home_api_server: Option<(String, u16)>,
    /// Port of the Service `kubernetes` of this cluster.
    pub(crate) service_port: u16,
    /// Version of this cluster's API server, which the Node reports.
    pub(crate) version: String,
    /// Port of the kubelet's API, which the Node reports.
    pub(crate) kubelet_port: u16,
    /// Addresses at which the provider may have its API server.
    pub(crate) destinations: Destinations,
}

impl Settings {
    /// Returns the name of the VirtualNode.
    pub(crate) fn virtual_node(&self) -> Key {
        Key::new(&*self.tenant_namespace, &*self.node)
    }

    /// Returns whether a pod of this cluster is bound to the Node.
    pub(crate) fn is_of_node(&self, pod: &Pod) -> bool {
        is_bound(pod, &self.node)
    }

    /// Returns whether an object of the provider is of a pod of the Node.
    pub(crate) fn is_own(&self, metadata: &ObjectMeta) -> bool {
        let present = metadata.labels.as_ref();
        let markers = [
            (labels::ORIGIN, &self.home),
            (labels::DESTINATION, &self.provider),
            (labels::NODE_NAME, &self.node),
        ];

        markers
            .into_iter()
            .all(|(key, value)| present.and_then(|it| it.get(key)) == Some(value))
    }

    /// Returns the address that an address of the provider has in this cluster; `None` if it is in no CIDR of the provider.
    pub(crate) fn remapped(&self, address: IpAddr) -> Option<IpAddr> {
        let IpAddr::V4(address) = address else {
            return None;
        };
        let remaps = self.pod_remaps.iter().chain(&self.external_remaps);
        let mut remapped = remaps.filter_map(|it| it.apply(address));

        remapped.next().map(IpAddr::from)
    }

    /// Returns the address that a remote pod with this address has in this cluster; `None` if it has none, or must not be reflected.
    /// With reserved CIDRs, networking with the provider is off, and an address outside of them is reflected as it is.
    pub(crate) fn reflected(&self, address: IpAddr, reserved: &[Ipv4Net]) -> Option<IpAddr> {
        if !self.reflects_ips || reserving(address, reserved).is_some() {
            return None;
        }
        if reserved.is_empty() {
            return self.remapped(address);
        }
        let is_reflected = address.is_ipv4() && special(address).is_none();

        is_reflected.then_some(address)
    }

    /// Returns the name of the NamespaceMap of the provider.
    pub(crate) fn namespace_map(&self) -> Key {
        Key::new(&*self.tenant_namespace, &*self.provider)
    }
}

/// Returns the CIDRs of this cluster and of other peers; none if networking with the provider is on.
pub(crate) fn reserved(node: &VirtualNode) -> Vec<Ipv4Net> {
    list(node, RESERVED_CIDRS)
}

/// Returns the addresses at which pods at the provider reach this cluster's API server, before the provider remaps them.
pub(crate) fn api_servers(node: &VirtualNode) -> Vec<IpAddr> {
    list(node, API_SERVER_ADDRESSES)
}

fn list<T: FromStr>(node: &VirtualNode, annotation: &str) -> Vec<T> {
    let annotations = node.metadata.annotations.as_ref();
    let values = annotations.and_then(|it| it.get(annotation));
    let values = values.into_iter().flat_map(|it| it.split(','));

    values.filter_map(|it| it.parse().ok()).collect()
}

/// Returns the reserved CIDR that an address of the provider is in.
pub(crate) fn reserving(address: IpAddr, reserved: &[Ipv4Net]) -> Option<Ipv4Net> {
    let IpAddr::V4(address) = address else {
        return None;
    };

    reserved.iter().find(|it| it.contains(&address)).copied()
}

/// Returns the kind of an IPv4 address that no pod network has.
pub(crate) fn special(address: IpAddr) -> Option<&'static str> {
    let IpAddr::V4(address) = address else {
        return None;
    };
    let kinds = [
        (address.is_loopback(), "a loopback address"),
        (address.is_link_local(), "a link-local address"),
        (address.is_unspecified(), "the unspecified address"),
        (address.is_multicast(), "a multicast address"),
    ];
    let kind = kinds.into_iter().find(|(is_it, _)| *is_it);

    kind.map(|(_, name)| name)
}
