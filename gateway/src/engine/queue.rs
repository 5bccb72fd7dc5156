//! Packets that wait for a session. The queues are limited in bytes and in time.

use super::drops::{Drop, Drops};
use crate::mutant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Upper limit of queued bytes per peer. It holds 60 ms of traffic at 34 Mb/s, which covers a
/// handshake of one round trip.
const PEER_BYTES_MAX: usize = 256 * 1024;
/// Upper limit of queued bytes of all peers.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum time of a packet in the queue. In this time a TCP sender retransmits a SYN twice, after
/// 1 s and after 3 s (RFC 6298).
const AGE_MAX: Duration = Duration::from_secs(5);
/// Memory per queued packet in addition to its bytes.
const PACKET_OVERHEAD: usize = size_of::<Waiting>();

#[derive(Debug, Default)]
pub(super) struct Queue {
    peers: BTreeMap<u16, PeerQueue>,
    /// Queued bytes and index of each peer. The last entry is the peer with the longest queue.
    by_bytes: BTreeSet<(usize, u16)>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct PeerQueue {
    packets: VecDeque<Waiting>,
    bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    packet: Box<[u8]>,
}

impl Queue {
    /// Appends a packet. At the limit per peer, drops the oldest packets of the peer. At the limit
    /// of all peers, drops the oldest packets of the peer with the longest queue.
    pub(super) fn push(&mut self, peer: u16, packet: &[u8], now: Instant, drops: &mut Drops) {
        let cost = packet.len() + PACKET_OVERHEAD;
        let queue = self.peers.entry(peer).or_default();
        queue.packets.push_back(Waiting {
            since: now,
            packet: packet.into(),
        });
        self.by_bytes.remove(&(queue.bytes, peer));
        queue.bytes += cost;
        self.by_bytes.insert((queue.bytes, peer));
        self.bytes += cost;
        if mutant::disables("queue-bound") {
            return;
        }

        while self.bytes(peer) > PEER_BYTES_MAX {
            self.pop(peer);
            drops.count(Drop::QueueFull);
        }
        while self.bytes > BYTES_MAX {
            let longest = self.by_bytes.last();
            let (_, longest) = longest.expect("bytes belong to some peer");
            self.pop(*longest);
            drops.count(Drop::QueueFull);
        }
    }

    /// Removes and returns the oldest packet for `peer`.
    pub(super) fn pop(&mut self, peer: u16) -> Option<Box<[u8]>> {
        let queue = self.peers.get_mut(&peer)?;
        let waiting = queue.packets.pop_front()?;
        let cost = waiting.packet.len() + PACKET_OVERHEAD;
        self.by_bytes.remove(&(queue.bytes, peer));
        queue.bytes -= cost;
        self.bytes -= cost;
        if queue.packets.is_empty() {
            self.peers.remove(&peer);
        } else {
            self.by_bytes.insert((queue.bytes, peer));
        }

        Some(waiting.packet)
    }

    /// Returns the memory in bytes of the packets for `peer`.
    pub(super) fn bytes(&self, peer: u16) -> usize {
        self.peers.get(&peer).map_or(0, |queue| queue.bytes)
    }

    /// Drops packets that have waited for [`AGE_MAX`].
    pub(super) fn handle_timeout(&mut self, now: Instant, drops: &mut Drops) {
        let expired = |waiting: &Waiting| now.duration_since(waiting.since) >= AGE_MAX;
        let peers: Vec<u16> = self.peers.keys().copied().collect();
        for peer in peers {
            while self
                .peers
                .get(&peer)
                .and_then(|queue| queue.packets.front())
                .is_some_and(expired)
            {
                self.pop(peer);
                drops.count(Drop::QueueExpired);
            }
        }
    }

    /// Drops all packets of a removed peer.
    pub(super) fn remove(&mut self, peer: u16, drops: &mut Drops) {
        while self.pop(peer).is_some() {
            drops.count(Drop::NoPeer);
        }
    }
}

#[cfg(test)]
mod tests;
