//! Values of the flags, as the controllers use them.

use crate::pod::forge::ApiServerSupport;
use control_runtime::{Destinations, Key};
use ipam::Remap;
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::net::IpAddr;
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
    /// CIDRs of the provider, and the CIDRs that they have in this cluster.
    pub(crate) remaps: Vec<Remap>,
    /// CIDRs of this cluster and of other peers, if networking with the provider is off. Then addresses of remote pods are
    /// reflected as they are, but not those in these CIDRs.
    pub(crate) reserved: Vec<Ipv4Net>,
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

    /// Returns the address that an address of the provider has in this cluster; `None` if it is in no CIDR of the provider.
    pub(crate) fn remapped(&self, address: IpAddr) -> Option<IpAddr> {
        let IpAddr::V4(address) = address else {
            return None;
        };
        let mut remapped = self.remaps.iter().filter_map(|it| it.apply(address));

        remapped.next().map(IpAddr::from)
    }

    /// Returns the address that a remote pod with this address has in this cluster; `None` if it has none, or must not be reflected.
    pub(crate) fn reflected(&self, address: IpAddr) -> Option<IpAddr> {
        if !self.reflects_ips || self.reserving(address).is_some() {
            return None;
        }
        if self.reserved.is_empty() {
            return self.remapped(address);
        }
        let IpAddr::V4(ip) = address else {
            return None;
        };
        let is_special =
            ip.is_loopback() || ip.is_link_local() || ip.is_unspecified() || ip.is_multicast();

        (!is_special).then_some(address)
    }

    /// Returns the reserved CIDR that an address of the provider is in.
    pub(crate) fn reserving(&self, address: IpAddr) -> Option<Ipv4Net> {
        let IpAddr::V4(address) = address else {
            return None;
        };
        let mut reserved = self.reserved.iter();

        reserved.find(|it| it.contains(&address)).copied()
    }

    /// Returns the name of the NamespaceMap of the provider.
    pub(crate) fn namespace_map(&self) -> Key {
        Key::new(&*self.tenant_namespace, &*self.provider)
    }
}
