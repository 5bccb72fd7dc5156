//! The desired contents of the eBPF maps, in types that do not depend on the kernel.

use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

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
    pub services: BTreeMap<Ipv4Addr, Ipv4Addr>,
    /// The outer addresses of the nodes that receive the packets to [`Local::Spread`] and to
    /// [`Tables::services`]. A hash of the packet's source selects one of them.
    ///
    /// It may contain all nodes of a cluster, so it is stored once for all destinations.
    pub spread: BTreeSet<Ipv4Addr>,
    /// Highest maximum segment size, in bytes, that TCP handshakes to and from a peer may announce;
    /// by peer index. Without an entry there is no limit. It must have the entry of each peer to
    /// which another entry refers.
    pub mss: BTreeMap<u16, u16>,
    /// The address that replaces a source in no CIDR of the peer, in ICMP errors from the peer; by
    /// peer index.
    pub unknown_sources: BTreeMap<u16, Ipv4Addr>,
    /// The prefixes of this cluster. The gateway drops packets from nodes with other inner sources.
    pub sources: BTreeSet<Ipv4Net>,
    /// The outer addresses of the nodes. The gateway drops overlay packets from other outer
    /// sources.
    pub nodes: BTreeSet<Ipv4Addr>,
}

/// A change of [`Tables`], as two tables with the affected entries only.
///
/// An entry is affected if its key or its value changes. An unchanged entry may be in both tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableChanges {
    /// The affected entries before the change. Only their keys have an effect.
    pub removed: Tables,
    /// The affected entries after the change.
    pub added: Tables,
}

/// The peer to which a remapped destination belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbound {
    /// Index of the peer. The peer's MAC address on the TAP contains this index.
    pub peer: u16,
    /// The original prefix, of the same length as the remapped prefix.
    pub to: Ipv4Net,
}

/// The node or nodes to which the gateway sends packets from peers for one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// A single node, by outer address.
    Node(Ipv4Addr),
    /// Any node of [`Tables::spread`].
    Spread,
}

/// The remote pod for which an IP object stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// Index of the pod's peer.
    pub peer: u16,
    /// Address of the pod in its own cluster, before remapping.
    pub to: Ipv4Addr,
}
