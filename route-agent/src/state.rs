//! The state of all kernel objects of the agent on one node.
//!
//! The module `plan` computes the desired state, and `kernel` reads the actual state. The module
//! `diff` compares both states.

use crate::ruleset::Ruleset;
use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// The agent's objects in the node's network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The overlay device, if it exists.
    pub(crate) device: Option<Device>,
    /// The addresses on the overlay device.
    pub(crate) addresses: BTreeSet<Ipv4Net>,
    /// Whether the policy rule exists, with which the kernel looks up destinations in the agent's
    /// routing table.
    pub(crate) rule: bool,
    /// Single nexthops by id. Each gateway replica has one nexthop for probes, and one per MTU.
    pub(crate) hops: BTreeMap<u32, Hop>,
    /// Members of the nexthop groups by id. Each combination of a replica set and an MTU has one
    /// group.
    pub(crate) groups: BTreeMap<u32, BTreeSet<u32>>,
    /// The unicast routes in the agent's routing table, by destination.
    pub(crate) routes: BTreeMap<Ipv4Net, Route>,
    /// Destinations of the unreachable routes in the agent's routing table. They apply while no
    /// unicast route to the same destination exists.
    pub(crate) unreachable: BTreeSet<Ipv4Net>,
    /// The agent's nft table, if it exists.
    pub(crate) filter: Option<Ruleset>,
}

/// The overlay device, which is a VXLAN device in external mode. In this mode, the nexthop of a
/// packet determines the outer addresses, not the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// UDP port of overlay frames. It cannot be changed after the creation of the device.
    pub(crate) port: u16,
    pub(crate) mac: [u8; 6],
    pub(crate) mtu_bytes: u32,
    /// Whether the device is up, has ARP disabled, and has the agent's alias.
    pub(crate) ready: bool,
}

impl Device {
    /// Returns whether the device can get the properties `desired` without being recreated.
    pub(crate) fn can_change_to(&self, desired: &Self) -> bool {
        self.port == desired.port
    }
}

/// A nexthop to one gateway replica. It determines the outer header of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hop {
    /// Outer source address, which is the Node's InternalIP.
    pub(crate) src: Ipv4Addr,
    /// Outer destination address, which is the address of the replica's pod.
    pub(crate) dst: Ipv4Addr,
    /// VXLAN network identifier (24 bits).
    pub(crate) vni: u32,
}

impl Hop {
    /// Represents a nexthop of another type, such as a blackhole. The value differs from every
    /// desired nexthop.
    pub(crate) const UNKNOWN: Self = Self {
        src: Ipv4Addr::UNSPECIFIED,
        dst: Ipv4Addr::UNSPECIFIED,
        vni: 0,
    };
}

/// A unicast route in the agent's routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Route {
    /// Id of a nexthop or of a nexthop group.
    pub(crate) nexthop: u32,
    /// Preferred source address: the source of packets that the node itself sends along this route.
    pub(crate) src: Ipv4Addr,
    /// MTU of the route in bytes. With `None`, the MTU of the device applies.
    pub(crate) mtu_bytes: Option<u32>,
}
