//! The kernel state of one node that carries our marks, as a value.
//!
//! `plan` computes the desired one, `kernel` observes the actual one, `diff` compares them.

use crate::ruleset::Ruleset;
use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// All our state in a node's network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The overlay device, if it exists.
    pub(crate) device: Option<Device>,
    /// The addresses on the overlay device.
    pub(crate) addresses: BTreeSet<Ipv4Net>,
    /// Whether the policy rule to our table exists.
    pub(crate) rule: bool,
    /// Single nexthops by id. Each gateway replica has one for probes, and one for each MTU.
    pub(crate) hops: BTreeMap<u32, Hop>,
    /// Nexthop groups by id: one per distinct set of replicas and MTU.
    pub(crate) groups: BTreeMap<u32, BTreeSet<u32>>,
    /// The unicast routes of our table, by destination.
    pub(crate) routes: BTreeMap<Ipv4Net, Route>,
    /// The destinations of our table's unreachable routes, which apply while no unicast route exists.
    pub(crate) unreachable: BTreeSet<Ipv4Net>,
    /// The nft table.
    pub(crate) filter: Option<Ruleset>,
}

/// The overlay device: VXLAN in external mode, with the outer addresses of each packet's nexthop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// Destination UDP port of the outer packets; fixed at creation.
    pub(crate) port: u16,
    pub(crate) mac: [u8; 6],
    pub(crate) mtu_bytes: u32,
    /// Whether it is up, without ARP, and carries our alias.
    pub(crate) ready: bool,
}

impl Device {
    /// Returns whether `self` can be changed to `desired` without a new device.
    pub(crate) fn can_change_to(&self, desired: &Self) -> bool {
        self.port == desired.port
    }
}

/// A nexthop to one gateway replica: the outer header of the packets through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hop {
    /// The node's address on the underlay.
    pub(crate) src: Ipv4Addr,
    /// The replica's address on the underlay.
    pub(crate) dst: Ipv4Addr,
    /// VXLAN network identifier.
    pub(crate) vni: u32,
}

impl Hop {
    /// Represents a nexthop of any other form, which differs from every desired one.
    pub(crate) const UNKNOWN: Self = Self {
        src: Ipv4Addr::UNSPECIFIED,
        dst: Ipv4Addr::UNSPECIFIED,
        vni: 0,
    };
}

/// A unicast route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Route {
    /// Id of a hop or group.
    pub(crate) nexthop: u32,
    /// Source address of the node's own packets.
    pub(crate) src: Ipv4Addr,
    /// In bytes; `None` means the device's MTU.
    pub(crate) mtu_bytes: Option<u32>,
}
