//! Packets that wait for a session, bounded in bytes and in time.

use super::drops::{Drop, Drops};
use crate::mutant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Most bytes queued for one peer: about 60 ms at 34 Mb/s, a round trip's worth of first packets.
const PEER_BYTES_MAX: usize = 256 * 1024;
/// Most bytes queued for all peers.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest time in the queue: a TCP sender has retransmitted three times by then.
const AGE_MAX: Duration = Duration::from_secs(5);
/// Cost of a packet beside its bytes.
const PACKET_OVERHEAD: usize = size_of::<Waiting>();

/// The queues of all peers.
#[derive(Debug, Default)]
pub(super) struct Queue {
    peers: BTreeMap<u16, PeerQueue>,
    /// The peers ordered by queued bytes.
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
    /// Appends a packet. Beyond the limits it drops the oldest packets of the peer, or of the peer with the longest
    /// queue.
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

    /// Takes the oldest packet for `peer`.
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

    /// Returns the cost in bytes of the packets for `peer`.
    pub(super) fn bytes(&self, peer: u16) -> usize {
        self.peers.get(&peer).map_or(0, |queue| queue.bytes)
    }

    /// Drops expired packets.
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
