//! The desired contents of the eBPF maps, in types that do not depend on the kernel.

use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The desired contents of the eBPF maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// The peer and the original prefix, by remapped destination prefix.
    pub outbound: BTreeMap<Ipv4Net, Outbound>,
    /// The remapped prefix, by peer index and original source prefix of the same length.
    pub inbound: BTreeMap<(u16, Ipv4Net), Ipv4Net>,
    /// The node or nodes that receive packets from peers, by destination prefix.
    pub local: BTreeMap<Ipv4Net, Local>,
    /// The remote pod for which an IP object stands, by the address of the IP object.
    pub transit: BTreeMap<Ipv4Addr, Transit>,
    /// The address of the IP object, by peer index and original address of the peer's pod.
    pub transit_sources: BTreeMap<(u16, Ipv4Addr), Ipv4Addr>,
    /// The ClusterIP for which an IP object stands, by the address of the IP object. No two IP
    /// objects stand for the same ClusterIP.
    pub services: BTreeMap<Ipv4Addr, Service>,
    /// The address that replaces a source in no CIDR of the peer, in ICMP errors from the peer; by
    /// peer index.
    pub unknown_sources: BTreeMap<u16, Ipv4Addr>,
    /// The prefixes of this cluster. The gateway drops packets from nodes with other inner sources.
    pub sources: BTreeSet<Ipv4Net>,
    /// The outer addresses of the nodes. The gateway drops overlay packets from other outer
    /// sources.
    pub nodes: BTreeSet<Ipv4Addr>,
}

/// The peer to which a remapped destination belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbound {
    /// Index of the peer. The peer's MAC address on the TAP contains this index.
    pub peer: u16,
    /// The original prefix, of the same length as the remapped prefix.
    pub to: Ipv4Net,
    /// Highest maximum segment size, in bytes, that TCP handshakes to and from the peer may
    /// announce; zero means no limit.
    pub mss: u16,
}

/// The node or nodes to which the gateway sends packets from peers for one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Local {
    /// A single node, by outer address.
    Node(Ipv4Addr),
    /// Several nodes, by outer address. A hash of the packet's source selects one of them.
    ///
    /// A list may contain all nodes of a cluster, so destinations share one copy of it.
    Spread(Arc<[Ipv4Addr]>),
}

/// The ClusterIP for which an IP object stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The ClusterIP.
    pub to: Ipv4Addr,
    /// Outer addresses of the nodes that forward packets to the Service. A hash of the packet's
    /// source selects one of them.
    pub nodes: Arc<[Ipv4Addr]>,
}

/// The remote pod for which an IP object stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// Index of the pod's peer.
    pub peer: u16,
    /// Address of the pod in its own cluster, before remapping.
    pub to: Ipv4Addr,
}
