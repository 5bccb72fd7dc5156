//! What a gateway does to the addresses of a packet, in both directions: the oracle for the kernel's
//! programs, which must do the same faster.
//!
//! ```text
//!   node --(a, b')--> [ from_node ] --(a, b)--> tunnel --(a, b)--> [ from_peer ] --(a', b)--> node
//! ```
//!
//! Inside the tunnel each cluster's addresses are the original ones. The sender's gateway swaps the
//! destination, the receiver's gateway the source, and each header field is swapped in one place only.

use crate::Remap;
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// What a gateway knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gateway {
    /// The peers, by their number.
    pub peers: BTreeMap<u16, Peer>,
    /// The prefixes from which this cluster's own packets come.
    pub sources: Vec<Ipv4Net>,
    /// The prefixes that lead to a node of this cluster.
    pub local: Vec<Ipv4Net>,
    /// The pods of peers that other peers reach through this cluster, by the address they do so under.
    pub mapped_pods: BTreeMap<Ipv4Addr, RemotePod>,
}

/// A peer, as far as addresses go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// From its original prefixes to those seen here.
    pub remaps: Vec<Remap>,
    /// Under what its senders of unknown origin are seen here.
    pub unknown_source: Option<Ipv4Addr>,
}

/// A pod of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemotePod {
    /// The peer's number.
    pub peer: u16,
    /// The pod's address in its own cluster.
    pub original: Ipv4Addr,
}

/// The addresses of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Where it comes from.
    pub source: Ipv4Addr,
    /// Where it goes to.
    pub destination: Ipv4Addr,
}

/// The addresses of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its own.
    pub header: Header,
    /// Those that an ICMP error quotes; all other packets have none.
    pub quote: Option<Header>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes into the tunnel to a peer.
    ToPeer(u16, Packet),
    /// It goes to a node of this cluster.
    ToNode(Packet),
    /// It is dropped.
    Drop(Refusal),
}

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The sender may not have this source.
    UnknownSource,
    /// The destination leads nowhere.
    UnknownDestination,
    /// It would go from one peer to another though not both of its ends are mapped pods.
    Transit,
}

impl Gateway {
    /// Decides on a packet from a node of this cluster.
    ///
    /// A quote is of a packet that came from the peer: its source is swapped back, as the destination
    /// of the error itself is.
    pub fn from_node(&self, packet: &Packet) -> Verdict {
        let Header {
            source,
            destination,
        } = packet.header;
        if !contains(&self.sources, source) {
            return Verdict::Drop(Refusal::UnknownSource);
        }
        let Some((number, peer)) = self.peer_seen_as(destination) else {
            return Verdict::Drop(Refusal::UnknownDestination);
        };
        let original = |address| peer.original(address).unwrap_or(address);

        let packet = Packet {
            header: Header {
                source,
                destination: original(destination),
            },
            quote: packet.quote.map(|quote| Header {
                source: original(quote.source),
                destination: quote.destination,
            }),
        };
        Verdict::ToPeer(number, packet)
    }

    /// Decides on a packet out of the tunnel of the peer with that number.
    ///
    /// A quote is of a packet that went to the peer: its destination is swapped, as the source of the
    /// error itself is.
    pub fn from_peer(&self, number: u16, packet: &Packet) -> Verdict {
        let Some(peer) = self.peers.get(&number) else {
            return Verdict::Drop(Refusal::UnknownSource);
        };
        if peer.seen(packet.header.source).is_none() && packet.quote.is_none() {
            return Verdict::Drop(Refusal::UnknownSource);
        }
        let destination = packet.header.destination;
        if let Some(&pod) = self.mapped_pods.get(&destination) {
            return self.transit(number, packet, pod);
        }
        if !contains(&self.local, destination) {
            return Verdict::Drop(match self.peer_seen_as(destination) {
                Some(_) => Refusal::Transit,
                None => Refusal::UnknownDestination,
            });
        }

        let source = peer.seen(packet.header.source);
        let Some(source) = source.or_else(|| peer.router(packet)) else {
            return Verdict::Drop(Refusal::UnknownSource);
        };
        Verdict::ToNode(Packet {
            header: Header {
                source,
                destination,
            },
            quote: packet.quote.map(|quote| Header {
                source: quote.source,
                destination: peer.seen(quote.destination).unwrap_or(quote.destination),
            }),
        })
    }

    /// Passes a packet of a peer on to `pod` of another one, who knows the first by mapped addresses
    /// only.
    fn transit(&self, number: u16, packet: &Packet, pod: RemotePod) -> Verdict {
        let Header {
            source,
            destination,
        } = packet.header;
        // A router on the way has no mapped address: it speaks for the pod it reports on.
        let spoken_for = packet
            .quote
            .filter(|quote| quote.source == destination)
            .and_then(|quote| self.mapped_address(number, quote.destination));
        let Some(source) = self.mapped_address(number, source).or(spoken_for) else {
            return Verdict::Drop(Refusal::Transit);
        };

        let packet = Packet {
            header: Header {
                source,
                destination: pod.original,
            },
            quote: packet.quote.map(|quote| Header {
                source: if quote.source == destination {
                    pod.original
                } else {
                    quote.source
                },
                destination: self
                    .mapped_address(number, quote.destination)
                    .unwrap_or(quote.destination),
            }),
        };
        Verdict::ToPeer(pod.peer, packet)
    }

    fn peer_seen_as(&self, address: Ipv4Addr) -> Option<(u16, &Peer)> {
        let mut peers = self.peers.iter().map(|(number, peer)| (*number, peer));
        peers.find(|(_, peer)| peer.original(address).is_some())
    }

    /// Returns the address under which other peers reach a pod.
    fn mapped_address(&self, peer: u16, original: Ipv4Addr) -> Option<Ipv4Addr> {
        let pod = RemotePod { peer, original };
        let mut mapped = self.mapped_pods.iter();
        mapped.find_map(|(address, mapped)| (*mapped == pod).then_some(*address))
    }
}

impl Peer {
    /// Returns the peer's own address for one seen here.
    fn original(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        let mut remaps = self.remaps.iter();
        remaps.find_map(|remap| remap.inverse().apply(address))
    }

    /// Returns the address seen here for one of the peer's own.
    fn seen(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        self.remaps.iter().find_map(|remap| remap.apply(address))
    }

    /// Returns the address for an unknown sender of an ICMP error about a packet that its receiver sent
    /// to the peer; without these, path MTU discovery dies.
    fn router(&self, packet: &Packet) -> Option<Ipv4Addr> {
        let quote = packet.quote?;
        let is_ours = quote.source == packet.header.destination;
        let is_about_peer = self.seen(quote.destination).is_some();

        self.unknown_source.filter(|_| is_ours && is_about_peer)
    }
}

fn contains(nets: &[Ipv4Net], address: Ipv4Addr) -> bool {
    nets.iter().any(|net| net.contains(&address))
}

#[cfg(test)]
mod tests;
