//! The network between clusters. It consists of the core router, which has a link to the edge
//! router of each cluster.

use super::Identity;
use super::address::{self, Link};
use super::link::{End, ip, veth};
use super::netns::Netns;
use super::spec::MTU;
use anyhow::Result;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The core router and the number of hosts that are connected to it.
#[derive(Debug)]
pub struct Underlay {
    core: Netns,
    hosts: u8,
}

/// A machine on the underlay that belongs to no cluster.
#[derive(Clone, Debug)]
pub struct Host {
    /// The network namespace of the host, with the device `eth0`.
    pub netns: Netns,
    /// Address of the host on the underlay.
    pub address: Ipv4Addr,
}

impl Underlay {
    pub(super) fn build(identity: &Arc<Identity>) -> Result<Self> {
        let core = Netns::create(identity, "core")?;
        core.sysctl("net.ipv4.ip_forward", 1)?;
        ip(&core, &["link set dev lo up"])?;

        Ok(Self { core, hosts: 0 })
    }

    /// Returns the namespace of the core router. It has a device `to-<cluster>` to each cluster,
    /// and a device `to-host-<n>` to each host.
    pub fn core(&self) -> &Netns {
        &self.core
    }

    /// Adds a machine to the underlay. The machine belongs to no cluster.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses to create the machine's namespace or link.
    pub(super) fn add_host(&mut self, identity: &Arc<Identity>) -> Result<Host> {
        self.hosts += 1;
        let netns = Netns::create(identity, &format!("host-{}", self.hosts))?;
        let device = format!("to-host-{}", self.hosts);
        let Link { upper, lower } = address::host_link(self.hosts);

        let near = End {
            netns: &self.core,
            device: &device,
        };
        let far = End {
            netns: &netns,
            device: "eth0",
        };
        ip(
            &self.core,
            &[
                veth(near, far, MTU),
                format!("addr add {upper}/30 dev {device}"),
                format!("link set dev {device} up"),
            ],
        )?;
        ip(
            &netns,
            &[
                "link set dev lo up".to_owned(),
                format!("addr add {lower}/30 dev eth0"),
                "link set dev eth0 up".to_owned(),
                format!("route add default via {upper}"),
            ],
        )?;

        Ok(Host {
            netns,
            address: lower,
        })
    }
}
