//! A pod, which has a network namespace and a veth pair to its node.

use super::Identity;
use super::link::{End, ip, veth};
use super::netns::Netns;
use anyhow::Result;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// A pod. The device `eth0` connects the pod with its node.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Name of the pod, unique in its cluster.
    pub name: String,
    /// Name of the pod's cluster.
    pub cluster: String,
    /// Name of the pod's node.
    pub node: String,
    /// Address of the pod in its own cluster, without remapping.
    pub address: Ipv4Addr,
    /// The network namespace of the pod.
    pub netns: Netns,
    /// Name of the node's device of the veth pair to the pod.
    pub node_device: String,
}

/// The parameters of a new pod that depend on the node.
pub(super) struct Place<'a> {
    pub(super) cluster: &'a str,
    pub(super) node: &'a str,
    pub(super) netns: &'a Netns,
    /// The default gateway of the node's pods, which is the node's address on all pods' links.
    pub(super) gateway: Ipv4Addr,
    pub(super) device: String,
    pub(super) mtu: u32,
}

impl Pod {
    /// Creates a pod in the same way as the CNI plugin `ptp`. The node gets a /32 route to the pod,
    /// and the pod gets a default route to the node.
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
