//! The spec of a cluster, and the values that follow from it. All functions are pure.

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The maximum number of nodes of a cluster. The last octets of the nodes' addresses must be below
/// those of load balancers.
pub const NODES_MAX: u8 = 90;

/// The maximum number of hollow nodes of a cluster. Each hollow node has a pod CIDR.
pub const HOLLOW_MAX: u16 = 5_000;

/// The maximum length of a cluster's name. It ensures that the names of nodes are valid host names.
const NAME_MAX: usize = 40;

/// The last octet of the first node's address. A cluster has a /24 of the underlay.
const FIRST_NODE: u8 = 2;

/// The mode in which kube-proxy forwards the traffic of Services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum KubeProxy {
    /// Forwarding by nftables rules.
    #[default]
    Nftables,
    /// Forwarding by iptables rules.
    Iptables,
    /// Forwarding by the kernel's IP virtual server, which is the module `ip_vs`.
    Ipvs,
    /// No kube-proxy runs.
    None,
}

impl KubeProxy {
    /// Returns the value of `mode` in kube-proxy's configuration. Returns `None` without
    /// kube-proxy.
    pub fn mode(self) -> Option<&'static str> {
        match self {
            Self::Nftables => Some("nftables"),
            Self::Iptables => Some("iptables"),
            Self::Ipvs => Some("ipvs"),
            Self::None => None,
        }
    }
}

/// The desired state of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The name of the cluster. It must be a DNS label.
    pub name: String,
    /// The number of nodes, including the control plane.
    pub nodes: u8,
    /// The number of additional nodes without a kubelet, which kwok simulates.
    pub hollow: u16,
    /// The CIDR from which each node gets a pod CIDR.
    pub pod_cidr: Ipv4Net,
    /// The CIDR from which Services get ClusterIPs.
    pub service_cidr: Ipv4Net,
    /// The mode in which kube-proxy forwards the traffic of Services.
    pub kube_proxy: KubeProxy,
    /// Whether pods, Services and nodes also have IPv6 addresses.
    pub ipv6: bool,
    /// The requested Kubernetes version. `None` means the default version.
    pub version: Option<String>,
    /// The lifetime of the cluster's certificates, in seconds.
    pub certificate_seconds: u64,
}

impl Spec {
    /// Returns the spec of a cluster with default settings. The default CIDRs are the same in all
    /// clusters, to test overlapping addresses.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            nodes: 2,
            hollow: 0,
            pod_cidr: net(10, 244),
            service_cidr: net(10, 96),
            kube_proxy: KubeProxy::default(),
            ipv6: false,
            version: None,
            certificate_seconds: 10 * 365 * 24 * 60 * 60,
        }
    }

    /// Checks that the settings are valid and consistent.
    ///
    /// # Errors
    ///
    /// Returns an error that names the invalid flag and its valid values.
    pub fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        ensure!(
            (1..=NODES_MAX).contains(&self.nodes),
            "--nodes {}: use 1 to {NODES_MAX}",
            self.nodes
        );
        ensure!(
            self.hollow <= HOLLOW_MAX,
            "--hollow {}: use at most {HOLLOW_MAX}",
            self.hollow
        );
        for (flag, cidr, longest) in [
            ("--pod-cidr", self.pod_cidr, 24),
            ("--service-cidr", self.service_cidr, 24),
        ] {
            ensure!(
                cidr == cidr.trunc(),
                "{flag} {cidr} has host bits set: use {}",
                cidr.trunc()
            );
            ensure!(
                (8..=longest).contains(&cidr.prefix_len()),
                "{flag} {cidr}: use a prefix length of 8 to {longest}"
            );
        }
        if overlap(self.pod_cidr, self.service_cidr) {
            bail!(
                "--pod-cidr {} and --service-cidr {} overlap: pods and Services need addresses of their own",
                self.pod_cidr,
                self.service_cidr
            );
        }
        self.check_room()
    }

    /// Checks that the cluster's pod CIDR has room for the pod CIDR of each node.
    fn check_room(&self) -> Result<()> {
        let count = u32::from(self.nodes) + u32::from(self.hollow);
        let bits = u32::from(self.node_prefix_len() - self.pod_cidr.prefix_len());
        ensure!(
            self.node_prefix_len() <= 28 && count <= 1 << bits,
            "--pod-cidr {} has no room for {count} nodes: use a shorter prefix",
            self.pod_cidr
        );

        Ok(())
    }

    /// Returns the prefix length of each node's pod CIDR. It is 24, or longer if the cluster has a
    /// small pod CIDR or many nodes.
    pub fn node_prefix_len(&self) -> u8 {
        let count = u32::from(self.nodes) + u32::from(self.hollow);
        let bits = count.next_power_of_two().trailing_zeros() as u8;

        (self.pod_cidr.prefix_len() + bits).max(24)
    }

    /// Returns the name of node `index`, which has the same form as the names of kind's nodes.
    pub fn node_name(&self, index: u8) -> String {
        match index {
            0 => format!("{}-control-plane", self.name),
            1 => format!("{}-worker", self.name),
            _ => format!("{}-worker{index}", self.name),
        }
    }

    /// Returns the name of hollow node `index`, such as `rome-hollow0`.
    pub fn hollow_name(&self, index: u16) -> String {
        format!("{}-hollow{index}", self.name)
    }

    /// Returns the pod CIDR of node `index`. The indices of hollow nodes follow those of other
    /// nodes.
    pub fn node_pod_cidr(&self, index: u16) -> Ipv4Net {
        let prefix_len = self.node_prefix_len();
        let offset = u32::from(index) << (32 - prefix_len);
        let addr = Ipv4Addr::from_bits(self.pod_cidr.addr().to_bits() + offset);

        Ipv4Net::new(addr, prefix_len).unwrap_or(self.pod_cidr)
    }

    /// Returns the IPv6 CIDR of all pods, which is the same in all clusters.
    pub fn pod_cidr_v6(&self) -> Ipv6Net {
        v6([0xfd00, 0x0010, 0x0244, 0, 0, 0, 0, 0], 48)
    }

    /// Returns the IPv6 pod CIDR of node `index`, which is a /64.
    pub fn node_pod_cidr_v6(&self, index: u16) -> Ipv6Net {
        v6([0xfd00, 0x0010, 0x0244, index, 0, 0, 0, 0], 64)
    }

    /// Returns the IPv6 CIDR of Services, which is the same in all clusters.
    pub fn service_cidr_v6(&self) -> Ipv6Net {
        v6([0xfd00, 0x0010, 0x0096, 0, 0, 0, 0, 0], 112)
    }

    /// Returns the address of the Service `kubernetes`, which is the first address of the Service
    /// CIDR.
    pub fn api_service(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.service_cidr.addr().to_bits() + 1)
    }

    /// Returns the address of the cluster's DNS, which is the tenth address of the Service CIDR.
    pub fn dns_service(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.service_cidr.addr().to_bits() + 10)
    }
}

/// The spec of a node, derived from the cluster's spec, the cluster's number and the underlay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// The name of the Node object, which is also the host name.
    pub name: String,
    /// Whether the node runs the control plane.
    pub control_plane: bool,
    /// The node's address on the underlay.
    pub ip: Ipv4Addr,
    /// The node's IPv6 address on the underlay, if the cluster has IPv6.
    pub ip_v6: Option<Ipv6Addr>,
    /// The CIDR from which the node's pods get addresses.
    pub pod_cidr: Ipv4Net,
    /// The IPv6 CIDR of the node's pods, if the cluster has IPv6.
    pub pod_cidr_v6: Option<Ipv6Net>,
}

impl NodeSpec {
    /// Returns all nodes of the cluster with this number on `underlay`.
    pub fn all(spec: &Spec, number: u8, underlay: Ipv4Net) -> Vec<Self> {
        (0..spec.nodes)
            .map(|index| Self {
                name: spec.node_name(index),
                control_plane: index == 0,
                ip: underlay_address(underlay, number, FIRST_NODE + index),
                ip_v6: spec
                    .ipv6
                    .then(|| underlay_address_v6(number, FIRST_NODE + index)),
                pod_cidr: spec.node_pod_cidr(index.into()),
                pod_cidr_v6: spec.ipv6.then(|| spec.node_pod_cidr_v6(index.into())),
            })
            .collect()
    }

    /// Returns the node's addresses on the underlay. The IPv4 address is the first.
    pub fn ips(&self) -> Vec<IpAddr> {
        let v6 = self.ip_v6.map(IpAddr::from);
        [IpAddr::from(self.ip)].into_iter().chain(v6).collect()
    }

    /// Returns the CIDRs of the node's pods. The IPv4 CIDR is the first.
    pub fn pod_cidrs(&self) -> Vec<String> {
        let v6 = self.pod_cidr_v6.map(|cidr| cidr.to_string());
        [self.pod_cidr.to_string()].into_iter().chain(v6).collect()
    }
}

/// Returns an address on the underlay. The third octet is the cluster's number, and the last is
/// `host`.
pub fn underlay_address(underlay: Ipv4Net, number: u8, host: u8) -> Ipv4Addr {
    let [a, b, ..] = underlay.addr().octets();
    Ipv4Addr::new(a, b, number, host)
}

/// Returns the IPv6 address that corresponds to [`underlay_address`], in a unique local prefix (RFC
/// 4193).
pub fn underlay_address_v6(number: u8, host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0x0172, 0x0018, 0, 0, 0, number.into(), host.into())
}

fn check_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !starts || !name.chars().all(plain) || name.ends_with('-') || name.len() > NAME_MAX {
        bail!(
            "{name:?} is no valid name of a cluster: use up to {NAME_MAX} lower-case letters, digits and `-`, beginning with a letter"
        );
    }

    Ok(())
}

fn overlap(a: Ipv4Net, b: Ipv4Net) -> bool {
    a.contains(&b) || b.contains(&a)
}

fn net(a: u8, b: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, 0, 0), 16)
}

fn v6(segments: [u16; 8], prefix_len: u8) -> Ipv6Net {
    Ipv6Net::new_assert(segments.into(), prefix_len)
}

#[cfg(test)]
mod tests;
