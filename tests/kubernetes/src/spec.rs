//! What a cluster is to be: pure values, checked once.

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most nodes of a cluster: their addresses end below those of load balancers.
pub const NODES_MAX: u8 = 90;

/// The most hollow nodes; each has a pod network, too.
pub const HOLLOW_MAX: u16 = 5_000;

/// The longest name of a cluster, so that its nodes' names fit in a host name.
const NAME_MAX: usize = 40;

/// The host part of the first node's address in its cluster's /24.
const FIRST_NODE: u8 = 2;

/// How kube-proxy makes Services work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum KubeProxy {
    /// By nftables rules.
    #[default]
    Nftables,
    /// By iptables rules.
    Iptables,
    /// By the kernel's virtual server; needs the module `ip_vs`.
    Ipvs,
    /// Not at all: there is no kube-proxy.
    None,
}

impl KubeProxy {
    /// The value of `mode` in its configuration, or nothing.
    pub fn mode(self) -> Option<&'static str> {
        match self {
            Self::Nftables => Some("nftables"),
            Self::Iptables => Some("iptables"),
            Self::Ipvs => Some("ipvs"),
            Self::None => None,
        }
    }
}

/// A cluster as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Its name, a DNS label.
    pub name: String,
    /// How many nodes it has, the control plane included.
    pub nodes: u8,
    /// How many nodes without a kubelet it has beside them.
    pub hollow: u16,
    /// The network of its pods.
    pub pod_cidr: Ipv4Net,
    /// The network of its Services.
    pub service_cidr: Ipv4Net,
    /// How Services work.
    pub kube_proxy: KubeProxy,
    /// Whether pods, Services and nodes have IPv6 addresses, too.
    pub ipv6: bool,
    /// The Kubernetes version, as asked for.
    pub version: Option<String>,
    /// The lifetime of its certificates, in seconds.
    pub certificate_seconds: u64,
}

impl Spec {
    /// A cluster as the laboratory makes it if nothing else is said: every one has
    /// the same networks, on purpose.
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

    /// Checks what flags cannot check one by one.
    ///
    /// # Errors
    ///
    /// Returns an error that names the flag and what it may be.
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
                "{flag} {cidr} has bits set behind its prefix: use {}",
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

    /// Each node needs a pod network of its own.
    fn check_room(&self) -> Result<()> {
        let wanted = u32::from(self.nodes) + u32::from(self.hollow);
        let bits = u32::from(self.node_prefix_len() - self.pod_cidr.prefix_len());
        ensure!(
            self.node_prefix_len() <= 28 && wanted <= 1 << bits,
            "--pod-cidr {} has no room for {wanted} nodes: use a shorter prefix",
            self.pod_cidr
        );

        Ok(())
    }

    /// The prefix length of one node's pod network: 24, or longer if the cluster's is
    /// small or its nodes are many.
    pub fn node_prefix_len(&self) -> u8 {
        let wanted = u32::from(self.nodes) + u32::from(self.hollow);
        let bits = wanted.next_power_of_two().trailing_zeros() as u8;

        (self.pod_cidr.prefix_len() + bits).max(24)
    }

    /// The name of node `index`, as kind names them.
    pub fn node_name(&self, index: u8) -> String {
        match index {
            0 => format!("{}-control-plane", self.name),
            1 => format!("{}-worker", self.name),
            _ => format!("{}-worker{index}", self.name),
        }
    }

    /// The name of hollow node `index`.
    pub fn hollow_name(&self, index: u16) -> String {
        format!("{}-hollow{index}", self.name)
    }

    /// The pod network of the `index`th node, hollow ones counted after the others.
    pub fn node_pod_cidr(&self, index: u16) -> Ipv4Net {
        let prefix_len = self.node_prefix_len();
        let offset = u32::from(index) << (32 - prefix_len);
        let addr = Ipv4Addr::from_bits(self.pod_cidr.addr().to_bits() + offset);

        Ipv4Net::new(addr, prefix_len).unwrap_or(self.pod_cidr)
    }

    /// The IPv6 network of all pods.
    pub fn pod_cidr_v6(&self) -> Ipv6Net {
        v6([0xfd00, 0x0010, 0x0244, 0, 0, 0, 0, 0], 48)
    }

    /// The IPv6 pod network of the `index`th node.
    pub fn node_pod_cidr_v6(&self, index: u16) -> Ipv6Net {
        v6([0xfd00, 0x0010, 0x0244, index, 0, 0, 0, 0], 64)
    }

    /// The IPv6 network of the Services.
    pub fn service_cidr_v6(&self) -> Ipv6Net {
        v6([0xfd00, 0x0010, 0x0096, 0, 0, 0, 0, 0], 112)
    }

    /// The address of the Service `kubernetes`: the first.
    pub fn api_service(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.service_cidr.addr().to_bits() + 1)
    }

    /// The address of the cluster's DNS: the tenth.
    pub fn dns_service(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.service_cidr.addr().to_bits() + 10)
    }
}

/// One node: what follows from the cluster, its number and the underlay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its name, which is its host name, too.
    pub name: String,
    /// Whether it runs the control plane.
    pub control_plane: bool,
    /// Its address on the underlay.
    pub ip: Ipv4Addr,
    /// Its IPv6 address there, in clusters with IPv6.
    pub ip_v6: Option<Ipv6Addr>,
    /// The network of its pods.
    pub pod_cidr: Ipv4Net,
    /// Their IPv6 network.
    pub pod_cidr_v6: Option<Ipv6Net>,
}

impl NodeSpec {
    /// All nodes of the cluster that is the `number`th on `underlay`.
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

    /// Its addresses, IPv4 first.
    pub fn ips(&self) -> Vec<IpAddr> {
        let v6 = self.ip_v6.map(IpAddr::from);
        [IpAddr::from(self.ip)].into_iter().chain(v6).collect()
    }

    /// The networks of its pods, IPv4 first.
    pub fn pod_cidrs(&self) -> Vec<String> {
        let v6 = self.pod_cidr_v6.map(|cidr| cidr.to_string());
        [self.pod_cidr.to_string()].into_iter().chain(v6).collect()
    }
}

/// The address of host `host` in the /24 of the `number`th cluster.
pub fn underlay_address(underlay: Ipv4Net, number: u8, host: u8) -> Ipv4Addr {
    let [a, b, ..] = underlay.addr().octets();
    Ipv4Addr::new(a, b, number, host)
}

/// The same for IPv6, in a unique local network (RFC 4193).
pub fn underlay_address_v6(number: u8, host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0x0172, 0x0018, 0, 0, 0, number.into(), host.into())
}

fn check_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !starts || !name.chars().all(plain) || name.ends_with('-') || name.len() > NAME_MAX {
        bail!(
            "{name:?} is no name of a cluster: use up to {NAME_MAX} lower-case letters, digits and `-`, beginning with a letter"
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
