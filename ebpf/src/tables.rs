//! The tables of the kernel programs, as a pure value.

use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The desired contents of the kernel's maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// From remapped destination to the peer and its original prefix.
    pub outbound: BTreeMap<Ipv4Net, Outbound>,
    /// From peer and original source prefix to the remapped prefix, of equal length.
    pub inbound: BTreeMap<(u16, Ipv4Net), Ipv4Net>,
    /// From inner destination to its node or nodes.
    pub local: BTreeMap<Ipv4Net, Local>,
    /// From the address of an IP object to the remote pod that it stands for.
    pub transit: BTreeMap<Ipv4Addr, Transit>,
    /// From peer and original pod address to the address of its IP object.
    pub transit_sources: BTreeMap<(u16, Ipv4Addr), Ipv4Addr>,
    /// From peer to the address to which its unknown sources are mapped.
    pub unknown_sources: BTreeMap<u16, Ipv4Addr>,
    /// Inner sources that are accepted from the overlay.
    pub sources: BTreeSet<Ipv4Net>,
    /// Outer sources that are accepted on the overlay.
    pub nodes: BTreeSet<Ipv4Addr>,
}

/// The peer to which a remapped destination belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbound {
    /// Index of the peer.
    pub peer: u16,
    /// The original prefix, of the same length as the key.
    pub to: Ipv4Net,
    /// Largest TCP segment towards and from the peer, in bytes; zero for no limit.
    pub mss: u16,
}

/// The node of an inner destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Local {
    /// The node with this outer address.
    Node(Ipv4Addr),
    /// One of the nodes with these outer addresses, by rendezvous hash of the inner source. Many
    /// destinations share a list, which may hold every node of a cluster.
    Spread(Arc<[Ipv4Addr]>),
}

/// The remote pod for which an IP object stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// Index of the pod's peer.
    pub peer: u16,
    /// The pod's original address.
    pub to: Ipv4Addr,
}
