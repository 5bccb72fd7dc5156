//! The network between clusters: one router, with a link to each cluster's edge.

use super::Identity;
use super::address::{self, Link};
use super::link::{End, ip, veth};
use super::netns::Netns;
use super::spec::MTU;
use anyhow::Result;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The core router.
#[derive(Debug)]
pub struct Underlay {
    core: Netns,
    hosts: u8,
}

/// A machine on the underlay outside of all clusters.
#[derive(Clone, Debug)]
pub struct Host {
    /// The namespace of the host; its device is `eth0`.
    pub netns: Netns,
    /// Its address on the underlay.
    pub address: Ipv4Addr,
}

impl Underlay {
    pub(super) fn build(identity: &Arc<Identity>) -> Result<Self> {
        let core = Netns::create(identity, "core")?;
        core.sysctl("net.ipv4.ip_forward", 1)?;
        ip(&core, &["link set dev lo up"])?;

        Ok(Self { core, hosts: 0 })
    }

    /// The namespace of the router, with a device `to-<cluster>` to each cluster
    /// and `to-host-<n>` to each host.
    pub fn core(&self) -> &Netns {
        &self.core
    }

    /// Adds a machine outside of all clusters.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses its namespace or link.
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
