//! The kernel state of one node that carries our mark, as a value.
//!
//! `plan` makes the desired one, `kernel` observes the actual one, `diff` compares them.

use crate::ruleset::Ruleset;
use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Everything of ours in a node's network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The overlay device, if it exists.
    pub(crate) device: Option<Device>,
    /// The addresses on the overlay device.
    pub(crate) addresses: BTreeSet<Ipv4Net>,
    /// Whether the policy rule leads to our table.
    pub(crate) rule: bool,
    /// Single nexthops by id: for each gateway replica one of the probes, and one of each MTU.
    pub(crate) hops: BTreeMap<u32, Hop>,
    /// Nexthop groups by id: one per distinct set of replicas and MTU.
    pub(crate) groups: BTreeMap<u32, BTreeSet<u32>>,
    /// The routes of our table that lead somewhere, by destination.
    pub(crate) routes: BTreeMap<Ipv4Net, Route>,
    /// The destinations of our table that are unreachable when no route leads there.
    pub(crate) unreachable: BTreeSet<Ipv4Net>,
    /// The nft table.
    pub(crate) filter: Option<Ruleset>,
}

/// The overlay device: VXLAN that takes each packet's outer addresses from its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// UDP port of the outer packets; fixed at creation.
    pub(crate) port: u16,
    /// MAC address.
    pub(crate) mac: [u8; 6],
    /// MTU in bytes.
    pub(crate) mtu_bytes: u32,
    /// Whether it is up, without ARP, and carries our alias.
    pub(crate) ready: bool,
}

impl Device {
    /// Returns whether `self` can become `desired` without being made anew.
    pub(crate) fn can_become(&self, desired: &Self) -> bool {
        self.port == desired.port
    }
}

/// A way to one gateway replica: the outer header of what takes it.
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
    /// Stands for a hop of a form that we do not make.
    pub(crate) const UNKNOWN: Self = Self {
        src: Ipv4Addr::UNSPECIFIED,
        dst: Ipv4Addr::UNSPECIFIED,
        vni: 0,
    };
}

/// Where packets for one destination go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Route {
    /// Id of a hop or group.
    pub(crate) nexthop: u32,
    /// Source address of the node's own packets.
    pub(crate) src: Ipv4Addr,
    /// Path MTU in bytes; `None` leaves it to the device.
    pub(crate) mtu_bytes: Option<u32>,
}
