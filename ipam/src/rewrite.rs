//! A reference model (*oracle*) for the eBPF programs: it computes a gateway's verdict on a packet.
//!
//! ```text
//!   node --(a, b')--> [ from_node ] --(a, b)--> tunnel --(a, b)--> [ from_peer ] --(a', b)--> node
//! ```
//!
//! `a` and `b` are the original addresses of two pods, and `a'` and `b'` are the remapped
//! addresses. Packets in the tunnel have original addresses. The gateway of the sender rewrites the
//! destination, and the gateway of the receiver rewrites the source.
//!
//! The oracle shares no code with the eBPF programs, and prefers simple rules to speed. It accepts
//! an ICMP error only if this gateway would have forwarded the quoted packet to the network that
//! reports the error. The programs check the quoted addresses by table lookups. The oracle instead
//! reconstructs the quoted packet, and computes the verdict on this packet.
//!
//! An *IP object* is a custom resource of Liqo. Here, it stands for a pod of a peer, and has an
//! address in this cluster's external CIDR. It lets the pods of two peers communicate through this
//! cluster.

use crate::Remap;
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

pub use parse::Malformed;

mod parse;

/// The tables of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gateway {
    /// The peers, by index.
    pub peers: BTreeMap<u16, Peer>,
    /// The source prefixes of this cluster's own packets.
    pub sources: Vec<Ipv4Net>,
    /// The destination prefixes behind this cluster's nodes.
    pub local: Vec<Ipv4Net>,
    /// The remote pods for which IP objects of this cluster stand, by address of the IP object.
    pub mapped_pods: BTreeMap<Ipv4Addr, RemotePod>,
}

/// The addresses of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The translations from original to remapped prefixes.
    pub remaps: Vec<Remap>,
    /// The address that replaces unknown source addresses in the peer's ICMP errors.
    pub unknown_source: Option<Ipv4Addr>,
}

/// A pod of a remote cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemotePod {
    /// Index of the peer in [`Gateway::peers`].
    pub peer: u16,
    /// Address of the pod in its own cluster.
    pub original: Ipv4Addr,
}

/// The addresses of an IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Address of the packet's sender.
    pub source: Ipv4Addr,
    /// Address of the packet's receiver.
    pub destination: Ipv4Addr,
}

/// The fields of a packet on which the verdict depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The addresses of the IPv4 header.
    pub header: Header,
    /// TTL of the IPv4 header.
    pub ttl: u8,
    /// Options of the IPv4 header, in wire format.
    pub options: Vec<u8>,
    /// The ICMP error in the packet, if any.
    pub error: Option<IcmpError>,
}

/// An ICMP message that reports an error about a quoted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// ICMP type: 3, 4, 5, 11 or 12.
    pub kind: u8,
    /// The addresses of the quoted packet; `None` if the quoted IPv4 header is incomplete.
    pub quote: Option<Header>,
}

/// The gateway's verdict on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The gateway sends the rewritten packet into the tunnel of the peer with this index.
    ToPeer(u16, Packet),
    /// The gateway sends the rewritten packet to a node of this cluster.
    ToNode(Packet),
    /// The gateway drops the packet.
    Drop(Refusal),
}

/// The reason for which a gateway drops a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The options are malformed, or an ICMP error quotes no complete header.
    Malformed,
    /// The options contain a source route.
    SourceRouted,
    /// The source address does not belong to the sender.
    UnknownSource,
    /// The destination belongs neither to this cluster nor to a peer.
    UnknownDestination,
    /// The packet goes from one peer to another, and an IP object is missing for one of its ends.
    Transit,
    /// The TTL of a packet from one peer to another expired.
    TtlExceeded,
    /// The packet is an ICMP redirect, or an ICMP error about a packet that this gateway cannot
    /// have forwarded.
    Quote,
}

/// ICMP type of a redirect, which only a router on the receiver's own link may send.
const REDIRECT: u8 = 5;

impl Gateway {
    /// Returns the verdict on a packet from a node of this cluster.
    ///
    /// The gateway replaces remapped addresses of the peer by the original addresses. It replaces
    /// the destination of the packet, and the quoted source in an ICMP error.
    pub fn from_node(&self, packet: &Packet) -> Verdict {
        self.checked_from_node(packet).unwrap_or_else(Verdict::Drop)
    }

    /// Returns the verdict on a packet that arrived through the tunnel of the peer `index`.
    ///
    /// The gateway replaces original addresses of the peer by the remapped addresses. It replaces
    /// the source of the packet, and the quoted destination in an ICMP error.
    pub fn from_peer(&self, index: u16, packet: &Packet) -> Verdict {
        self.checked_from_peer(index, packet)
            .unwrap_or_else(Verdict::Drop)
    }

    fn checked_from_node(&self, packet: &Packet) -> Result<Verdict, Refusal> {
        check_options(&packet.options)?;
        let Header {
            source,
            destination,
        } = packet.header;
        if !contains(&self.sources, source) {
            return Err(Refusal::UnknownSource);
        }
        let (index, peer) = self
            .peer_seen_as(destination)
            .ok_or(Refusal::UnknownDestination)?;
        let original = peer
            .original(destination)
            .ok_or(Refusal::UnknownDestination)?;

        let mut forwarded = packet.clone();
        forwarded.header.destination = original;
        if let Some(quote) = quote(packet)? {
            // The peer's pod sent the quoted packet from its original address.
            let sent = Header {
                source: original,
                destination: quote.destination,
            };
            let arrived = self.from_peer(index, &Packet::plain(sent));
            if arrived != Verdict::ToNode(Packet::plain(quote)) {
                return Err(Refusal::Quote);
            }
            forwarded.set_quote(sent);
        }

        Ok(Verdict::ToPeer(index, forwarded))
    }

    fn checked_from_peer(&self, index: u16, packet: &Packet) -> Result<Verdict, Refusal> {
        check_options(&packet.options)?;
        let unknown = Peer::default();
        let peer = self.peers.get(&index).unwrap_or(&unknown);
        let Header {
            source,
            destination,
        } = packet.header;
        if peer.seen(source).is_none() && packet.error.is_none() {
            return Err(Refusal::UnknownSource);
        }
        if let Some(&pod) = self.mapped_pods.get(&destination) {
            return self.transit(index, packet, pod);
        }
        if !contains(&self.local, destination) {
            return Err(match self.peer_seen_as(destination) {
                Some(_) => Refusal::Transit,
                None => Refusal::UnknownDestination,
            });
        }

        let mut forwarded = packet.clone();
        if let Some(quote) = quote(packet)? {
            // A node of this cluster sent the quoted packet to the remapped address.
            let sent = Header {
                source: destination,
                destination: peer.seen(quote.destination).ok_or(Refusal::Quote)?,
            };
            let arrived = self.from_node(&Packet::plain(sent));
            if arrived != Verdict::ToPeer(index, Packet::plain(quote)) {
                return Err(Refusal::Quote);
            }
            forwarded.set_quote(sent);
        }
        // Only ICMP errors may have a source outside of the peer's prefixes. Path MTU discovery
        // needs the errors of the peer's routers and nodes.
        forwarded.header.source = peer
            .seen(source)
            .or(peer.unknown_source)
            .ok_or(Refusal::UnknownSource)?;

        Ok(Verdict::ToNode(forwarded))
    }

    /// Returns the verdict on a packet from the peer `index` to a pod of another peer.
    ///
    /// In the forwarded packet, the address of an IP object replaces the source, because the other
    /// peer has no route to the original source.
    fn transit(&self, index: u16, packet: &Packet, pod: RemotePod) -> Result<Verdict, Refusal> {
        let Header {
            source,
            destination,
        } = packet.header;
        let mut forwarded = packet.clone();
        forwarded.header.destination = pod.original;
        forwarded.ttl = match packet.ttl {
            0 | 1 => return Err(Refusal::TtlExceeded),
            ttl => ttl - 1,
        };

        let mut stands_for = self.mapped_address(index, source);
        if let Some(quote) = quote(packet)? {
            // A pod of the other peer sent the quoted packet to an IP object. The IP object stands
            // for a pod of the peer that reports the error.
            let reported = self
                .mapped_address(index, quote.destination)
                .ok_or(Refusal::Quote)?;
            let sent = Header {
                source: pod.original,
                destination: reported,
            };
            let mut arrived = Packet::plain(quote);
            arrived.ttl -= 1;
            if quote.source != destination
                || self.from_peer(pod.peer, &Packet::plain(sent)) != Verdict::ToPeer(index, arrived)
            {
                return Err(Refusal::Quote);
            }
            forwarded.set_quote(sent);
            // A router on the path has no IP object. The error gets the address of the IP object
            // that stands for the receiver of the quoted packet.
            stands_for = stands_for.or(Some(reported));
        }
        forwarded.header.source = stands_for.ok_or(Refusal::Transit)?;

        Ok(Verdict::ToPeer(pod.peer, forwarded))
    }

    fn peer_seen_as(&self, address: Ipv4Addr) -> Option<(u16, &Peer)> {
        let mut peers = self.peers.iter().map(|(index, peer)| (*index, peer));
        peers.find(|(_, peer)| peer.original(address).is_some())
    }

    /// Returns the address of the IP object that stands for a peer's pod, if any.
    fn mapped_address(&self, peer: u16, original: Ipv4Addr) -> Option<Ipv4Addr> {
        let pod = RemotePod { peer, original };
        let mut mapped = self.mapped_pods.iter();
        mapped.find_map(|(address, mapped)| (*mapped == pod).then_some(*address))
    }
}

impl Packet {
    /// Creates a packet with these addresses, without options and without an ICMP error.
    pub fn plain(header: Header) -> Self {
        const TTL: u8 = 64;

        Self {
            header,
            ttl: TTL,
            options: Vec::new(),
            error: None,
        }
    }

    fn set_quote(&mut self, quote: Header) {
        if let Some(error) = &mut self.error {
            error.quote = Some(quote);
        }
    }
}

impl Peer {
    /// Returns the original address for a remapped address of the peer.
    fn original(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        let mut remaps = self.remaps.iter();
        remaps.find_map(|remap| remap.inverse().apply(address))
    }

    /// Returns the remapped address for an original address of the peer.
    fn seen(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        self.remaps.iter().find_map(|remap| remap.apply(address))
    }
}

/// Returns the addresses that an ICMP error quotes, or `None` if the packet is not an ICMP error.
fn quote(packet: &Packet) -> Result<Option<Header>, Refusal> {
    let Some(error) = packet.error else {
        return Ok(None);
    };
    let quote = error.quote.ok_or(Refusal::Malformed)?;

    if error.kind == REDIRECT {
        return Err(Refusal::Quote);
    }
    Ok(Some(quote))
}

/// Returns an error if the options are malformed or contain a source route (RFC 791, section 3.1).
fn check_options(mut options: &[u8]) -> Result<(), Refusal> {
    loop {
        options = match options {
            [] | [0, ..] => return Ok(()),
            [1, rest @ ..] => rest,
            [0x83 | 0x89, ..] => return Err(Refusal::SourceRouted),
            [_, len, ..] if *len >= 2 => {
                options.get(usize::from(*len)..).ok_or(Refusal::Malformed)?
            }
            [_, ..] => return Err(Refusal::Malformed),
        };
    }
}

fn contains(nets: &[Ipv4Net], address: Ipv4Addr) -> bool {
    nets.iter().any(|net| net.contains(&address))
}

#[cfg(test)]
mod tests;
