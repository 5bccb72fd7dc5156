//! The oracle for the kernel programs: what a gateway must do to a packet, in both directions.
//!
//! ```text
//!   node --(a, b')--> [ from_node ] --(a, b)--> tunnel --(a, b)--> [ from_peer ] --(a', b)--> node
//! ```
//!
//! Inside the tunnel each cluster's addresses are the original ones. The sender's gateway remaps the
//! destination, the receiver's gateway the source, and each header field is rewritten in one place only.
//!
//! The kernel programs decide by lookups, header by header. The oracle shares nothing with them: it
//! states each rule by its purpose, however slow that is. An ICMP error, above all, is legitimate if and
//! only if it quotes a packet that this gateway would have forwarded to the network that reports it, so
//! the oracle reconstructs that packet and forwards it.

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
    /// The prefixes from which this cluster's own packets come.
    pub sources: Vec<Ipv4Net>,
    /// The prefixes of this cluster's nodes.
    pub local: Vec<Ipv4Net>,
    /// The pods of peers that have an IP object here, by the object's address.
    pub mapped_pods: BTreeMap<Ipv4Addr, RemotePod>,
}

/// The addresses of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// From original to remapped prefixes.
    pub remaps: Vec<Remap>,
    /// The address to which senders outside the peer's prefixes are mapped.
    pub unknown_source: Option<Ipv4Addr>,
}

/// A pod of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemotePod {
    /// The peer's index.
    pub peer: u16,
    /// The pod's address in its own cluster.
    pub original: Ipv4Addr,
}

/// The addresses of an IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender.
    pub source: Ipv4Addr,
    /// The receiver.
    pub destination: Ipv4Addr,
}

/// The part of a packet that decides about it, and that may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The addresses.
    pub header: Header,
    /// Hops left.
    pub ttl: u8,
    /// The options of the IPv4 header, as on the wire.
    pub options: Vec<u8>,
    /// The ICMP error that it carries, if it is one.
    pub error: Option<IcmpError>,
}

/// An ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// The type: 3, 4, 5, 11 or 12.
    pub kind: u8,
    /// The addresses of the quoted packet; `None` if no whole IPv4 header is quoted.
    pub quote: Option<Header>,
}

/// The decision about a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it into the tunnel of this peer.
    ToPeer(u16, Packet),
    /// Send it to a node of this cluster.
    ToNode(Packet),
    /// Drop it.
    Drop(Refusal),
}

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its headers are malformed.
    Malformed,
    /// Its options route it.
    SourceRouted,
    /// The sender may not have this source.
    UnknownSource,
    /// The destination belongs neither to this cluster nor to a peer.
    UnknownDestination,
    /// It goes from one peer to another, and not both of its ends are mapped pods.
    Transit,
    /// It goes from one peer to another and has no hop left.
    TtlExceeded,
    /// It is an ICMP error about a packet that this gateway did not forward.
    Quote,
}

/// The ICMP type of a redirect, which only a router on the receiver's own link may send.
const REDIRECT: u8 = 5;

impl Gateway {
    /// Decides about a packet from a node of this cluster.
    ///
    /// An error quotes a packet of the peer, whose source is remapped back like the destination of the
    /// error itself.
    pub fn from_node(&self, packet: &Packet) -> Verdict {
        self.checked_from_node(packet).unwrap_or_else(Verdict::Drop)
    }

    /// Decides about a packet that came through the tunnel of the peer with this index.
    ///
    /// An error quotes a packet to the peer, whose destination is remapped like the source of the error
    /// itself.
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
            // The peer's pod has sent the quoted packet from its original address.
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
            // A node of ours has sent the quoted packet to the remapped address.
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
        // Only an error comes from outside the peer's prefixes: without those of its routers and
        // nodes, path MTU discovery fails.
        forwarded.header.source = peer
            .seen(source)
            .or(peer.unknown_source)
            .ok_or(Refusal::UnknownSource)?;

        Ok(Verdict::ToNode(forwarded))
    }

    /// Decides about a packet of a peer to `pod` of another one, to which only mapped addresses mean
    /// anything.
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
            // The other peer's pod has sent the quoted packet to the mapped address of its receiver.
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
            // A router on the path has no mapped address: the pod that it reports on stands for it.
            stands_for = stands_for.or(Some(reported));
        }
        forwarded.header.source = stands_for.ok_or(Refusal::Transit)?;

        Ok(Verdict::ToPeer(pod.peer, forwarded))
    }

    fn peer_seen_as(&self, address: Ipv4Addr) -> Option<(u16, &Peer)> {
        let mut peers = self.peers.iter().map(|(index, peer)| (*index, peer));
        peers.find(|(_, peer)| peer.original(address).is_some())
    }

    /// Returns the address of the IP object that stands for a pod.
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
    /// Returns the peer's own address for a remapped one.
    fn original(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        let mut remaps = self.remaps.iter();
        remaps.find_map(|remap| remap.inverse().apply(address))
    }

    /// Returns the remapped address for one of the peer's own.
    fn seen(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        self.remaps.iter().find_map(|remap| remap.apply(address))
    }
}

/// Returns the addresses that an ICMP error quotes, `None` if the packet is no error.
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

/// Refuses options that are malformed or route the packet (RFC 791, section 3.1).
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
