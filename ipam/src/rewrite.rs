//! A reference model of the gateway, with which tests compare the eBPF programs.
//!
//! For each packet, the model (*test oracle*) computes the gateway's verdict: drop the packet, or
//! forward it with rewritten addresses. The diagram shows the pair (source, destination) of a
//! packet from a pod in one cluster to a pod in another cluster:
//!
//! ```text
//!   node --(a, b')--> [ from_node ] --(a, b)--> tunnel --(a, b)--> [ from_peer ] --(a', b)--> node
//! ```
//!
//! `a` and `b` are the original addresses of the two pods, which each pod has in its own cluster.
//! `a'` and `b'` are the remapped addresses, by which the other cluster reaches the pod. Packets in
//! the tunnel have original addresses. The gateway of the sender rewrites the destination, and the
//! gateway of the receiver rewrites the source.
//!
//! The oracle shares no code with the eBPF programs, and prefers simple rules to speed.
//!
//! An ICMP error quotes the packet that caused it. The gateway accepts the error only if it would
//! have forwarded the quoted packet to the cluster from which the error comes. The eBPF programs
//! check the quoted addresses by table lookups. The oracle instead reconstructs the quoted packet
//! as it was sent, and computes the verdict on that packet.
//!
//! An *IP object* is a custom resource of Liqo. Here, it represents a pod of a peer, or the ClusterIP
//! of a Service, by an address in this cluster's external CIDR. Pods of two peers use IP objects to
//! communicate through this cluster. A peer sends packets for a Service to the address of the IP
//! object, and nodes receive them with the ClusterIP as destination.

use crate::Remap;
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

pub use parse::Malformed;

mod parse;

/// The tables of a gateway, which determine its verdicts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gateway {
    /// The peers, by index.
    pub peers: BTreeMap<u16, Peer>,
    /// The prefixes of this cluster. Packets from its nodes must have a source in one of them.
    pub sources: Vec<Ipv4Net>,
    /// The prefixes of this cluster to which the gateway forwards packets from peers.
    pub local: Vec<Ipv4Net>,
    /// The remote pods that IP objects of this cluster represent, by address of the IP object.
    pub mapped_pods: BTreeMap<Ipv4Addr, RemotePod>,
    /// The ClusterIPs that IP objects of this cluster represent, by address of the IP object.
    pub services: BTreeMap<Ipv4Addr, Ipv4Addr>,
}

/// The address translations for a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The translations from original to remapped prefixes.
    pub remaps: Vec<Remap>,
    /// Replacement for the source of an ICMP error from the peer, if that source is in no original
    /// prefix of `remaps`.
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
    /// ICMP type: destination unreachable (3), source quench (4), redirect (5), time exceeded (11)
    /// or parameter problem (12).
    pub kind: u8,
    /// The addresses of the quoted packet; `None` if its IPv4 header is truncated or invalid.
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
    /// The options are malformed, or the header that an ICMP error quotes is truncated or invalid.
    Malformed,
    /// The options contain a loose or strict source route.
    SourceRouted,
    /// The source is not an address of the cluster from which the packet comes.
    UnknownSource,
    /// The destination is not an address that the sender can reach through this gateway.
    ///
    /// A node can reach the peers. A peer can reach this cluster, and other peers by IP objects.
    UnknownDestination,
    /// The packet goes from one peer to another, but no IP object exists for its source or for its
    /// destination.
    Transit,
    /// The TTL of a packet from one peer to another expired.
    TtlExceeded,
    /// The packet is an ICMP redirect, or an ICMP error that quotes a packet that this gateway
    /// cannot have forwarded to the sender of the error.
    Quote,
}

/// ICMP type of a redirect. A redirect is only valid on the link of its receiver, so a gateway
/// never forwards one.
const REDIRECT: u8 = 5;

impl Gateway {
    /// Returns the verdict on a packet from a node of this cluster.
    ///
    /// The destination is a remapped address of a peer, and the gateway replaces it by the original
    /// address. If the source is a ClusterIP, the gateway replaces it by the address of its IP
    /// object. In an ICMP error, the gateway also replaces the addresses of the quoted packet.
    pub fn from_node(&self, packet: &Packet) -> Verdict {
        self.checked_from_node(packet).unwrap_or_else(Verdict::Drop)
    }

    /// Returns the verdict on a packet that arrived through the tunnel of the peer `index`.
    ///
    /// The source is an original address of the peer, and the gateway replaces it by the remapped
    /// address. In an ICMP error, the gateway also replaces the addresses of the quoted packet.
    ///
    /// If the destination is the address of an IP object, the gateway replaces both addresses. It
    /// forwards the packet to another peer if the IP object represents a pod, and to a node if the
    /// IP object represents a ClusterIP.
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
        let of_service = self.service_address(source);
        if of_service.is_none() && !contains(&self.sources, source) {
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
        forwarded.header.source = of_service.unwrap_or(source);
        if let Some(quote) = quote(packet)? {
            // The quoted packet, as the peer's pod sent it: with the original source, and to the
            // address of the Service's IP object.
            let of_service = self.service_address(quote.destination);
            let sent = Header {
                source: original,
                destination: of_service.unwrap_or(quote.destination),
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
        let service = self.services.get(&destination).copied();
        if service.is_none() && !contains(&self.local, destination) {
            return Err(match self.peer_seen_as(destination) {
                Some(_) => Refusal::Transit,
                None => Refusal::UnknownDestination,
            });
        }

        let mut forwarded = packet.clone();
        forwarded.header.destination = service.unwrap_or(destination);
        if let Some(quote) = quote(packet)? {
            // The quoted packet, as a node of this cluster sent it: with the remapped destination,
            // and from the ClusterIP of a Service.
            let sent = Header {
                source: forwarded.header.destination,
                destination: peer.seen(quote.destination).ok_or(Refusal::Quote)?,
            };
            let arrived = self.from_node(&Packet::plain(sent));
            if arrived != Verdict::ToPeer(index, Packet::plain(quote)) {
                return Err(Refusal::Quote);
            }
            forwarded.set_quote(sent);
        }
        // ICMP errors may have a source outside of the peer's prefixes, because path MTU discovery
        // needs the errors of the peer's routers and nodes. Other packets were dropped above.
        forwarded.header.source = peer
            .seen(source)
            .or(peer.unknown_source)
            .ok_or(Refusal::UnknownSource)?;

        Ok(Verdict::ToNode(forwarded))
    }

    /// Returns the verdict on a packet from the peer `index` to `pod`, a pod of another peer.
    ///
    /// The gateway replaces the source by the address of the IP object that represents it, because
    /// the other peer accepts only addresses of this cluster as sources from this gateway.
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
            // The quoted packet, as `pod` sent it: to the address of an IP object that represents a
            // pod of the peer from which the error comes.
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
            // No IP object represents a router that reports an error. The source of the error then
            // becomes the address to which `pod` sent the quoted packet.
            stands_for = stands_for.or(Some(reported));
        }
        forwarded.header.source = stands_for.ok_or(Refusal::Transit)?;

        Ok(Verdict::ToPeer(pod.peer, forwarded))
    }

    fn peer_seen_as(&self, address: Ipv4Addr) -> Option<(u16, &Peer)> {
        let mut peers = self.peers.iter().map(|(index, peer)| (*index, peer));
        peers.find(|(_, peer)| peer.original(address).is_some())
    }

    /// Returns the address of the IP object that represents a ClusterIP, if any.
    fn service_address(&self, cluster_ip: Ipv4Addr) -> Option<Ipv4Addr> {
        let mut services = self.services.iter();
        services.find_map(|(address, mapped)| (*mapped == cluster_ip).then_some(*address))
    }

    /// Returns the address of the IP object that represents a peer's pod, if any.
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
    /// Returns the original address if `address` is a remapped address of the peer.
    fn original(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        let mut remaps = self.remaps.iter();
        remaps.find_map(|remap| remap.inverse().apply(address))
    }

    /// Returns the remapped address if `address` is an original address of the peer.
    fn seen(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        self.remaps.iter().find_map(|remap| remap.apply(address))
    }
}

/// Returns the addresses that an ICMP error quotes, or `None` if the packet is not an ICMP error.
///
/// Redirects and ICMP errors without a valid quoted header are refused.
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
///
/// Type 0 ends the list of options, type 1 is a single byte of padding, and the types 0x83 and 0x89
/// are the loose and the strict source route.
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
