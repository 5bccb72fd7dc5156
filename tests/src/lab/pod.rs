//! Pods: a namespace, and a veth pair to the node.

use super::Identity;
use super::link::{End, ip, veth};
use super::netns::Netns;
use anyhow::Result;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// A pod. Its device `eth0` leads to its node.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Its name, unique in its cluster.
    pub name: String,
    /// Its cluster's name.
    pub cluster: String,
    /// Its node's name.
    pub node: String,
    /// Its original address, in its own cluster.
    pub address: Ipv4Addr,
    /// The namespace of the pod.
    pub netns: Netns,
    /// The device of the node that leads to it.
    pub node_device: String,
}

/// The parameters of a new pod that its node decides.
pub(super) struct Place<'a> {
    pub(super) cluster: &'a str,
    pub(super) node: &'a str,
    pub(super) netns: &'a Netns,
    /// The node's address on the links of all pods: their default gateway.
    pub(super) gateway: Ipv4Addr,
    pub(super) device: String,
    pub(super) mtu: u32,
}

impl Pod {
    /// Sets up a pod as the CNI plugin `ptp` does: a /32 route on the node, a default
    /// route in the pod.
    pub(super) fn build(
        identity: &Arc<Identity>,
        name: &str,
        address: Ipv4Addr,
        place: Place<'_>,
    ) -> Result<Self> {
        let Place {
            gateway, device, ..
        } = &place;
        let netns = Netns::create(identity, &format!("{}-{name}", place.cluster))?;
        let near = End {
            netns: place.netns,
            device,
        };
        let far = End {
            netns: &netns,
            device: "eth0",
        };
        ip(
            place.netns,
            &[
                veth(near, far, place.mtu),
                format!("addr add {gateway}/32 dev {device}"),
                format!("link set dev {device} up"),
                format!("route add {address}/32 dev {device} scope link"),
            ],
        )?;
        ip(
            &netns,
            &[
                "link set dev lo up".to_owned(),
                format!("addr add {address}/32 dev eth0"),
                "link set dev eth0 up".to_owned(),
                format!("route add {gateway}/32 dev eth0 scope link"),
                format!("route add default via {gateway}"),
            ],
        )?;

        Ok(Self {
            name: name.to_owned(),
            cluster: place.cluster.to_owned(),
            node: place.node.to_owned(),
            address,
            netns,
            node_device: place.device,
        })
    }
}
