//! Handles data messages. The fast path, for established sessions, neither allocates memory, takes
//! locks nor formats text.

use super::Engine;
use super::drops::Drop;
use super::handshakes::Source;
use super::inner::{self, Inner};
use super::interface::{PortId, Received, Sealed, SessionId};
use super::noise::{OVERHEAD, Opened};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

impl Engine {
    /// Decrypts a data message into `out`, and checks the inner packet.
    #[inline]
    pub(super) fn handle_data(
        &mut self,
        source: Source,
        index: u32,
        datagram: &[u8],
        out: &mut [u8],
        now: Instant,
    ) -> Received {
        let Some(session) = self.sessions.by_index(index) else {
            self.drops.count(Drop::UnknownReceiver);
            self.handle_unknown_receiver(source.from, now);
            return Received::Nothing;
        };
        // These two checks precede decryption, because decryption changes the tunnel's state. They
        // are cheap while the endpoint is unchanged.
        if source.from != session.endpoint && self.tunnelled.contains(source.from) {
            self.drops.count(Drop::EndpointInsideTunnel);
            return Received::Nothing;
        }
        if !session.is_at(source.port) {
            self.drops.count(Drop::ForeignPort);
            return Received::Nothing;
        }
        let opened = match session.tunnel.open(datagram, out) {
            Ok(opened) => opened,
            Err(reason) => {
                let is_authentic = reason == Drop::InnerNotIpv4 || reason == Drop::InnerMalformed;
                self.drops.count(reason);
                if is_authentic {
                    session.last_received = now;
                }
                return Received::Nothing;
            }
        };

        session.last_received = now;
        session.roam(source.port, source.from);
        let (id, peer) = (session.id, session.peer);
        session.received_index = Some(index);
        if session.unconfirmed && session.index_before != Some(index) {
            self.confirm(id, now);
        }
        let Opened::Packet(len) = opened else {
            return Received::Nothing;
        };

        self.handle_inner(id, peer, &out[..len], now)
    }

    #[inline]
    fn handle_inner(&mut self, id: SessionId, peer: u16, packet: &[u8], now: Instant) -> Received {
        let Some(sources) = self.peers.get(peer).map(|peer| &peer.sources) else {
            self.drops.count(Drop::NoPeer);
            return Received::Nothing;
        };
        match inner::check(packet, sources) {
            Ok(Inner::Forward) => {
                if let Some(session) = self.sessions.get_mut(id) {
                    session.traffic.rx_packets += 1;
                    session.traffic.rx_bytes += packet.len() as u64;
                }
                Received::Packet {
                    peer,
                    len: packet.len(),
                }
            }
            Ok(Inner::Probe(json)) => {
                let addresses = inner::probe_addresses(packet);
                self.handle_probe(id, addresses, &packet[json], now);
                Received::Nothing
            }
            Err(reason) => {
                self.drops.count(reason);
                Received::Nothing
            }
        }
    }

    /// Returns the session of a flow to `destination`, an original address of `peer`. If there is none, the caller passes the
    /// packet to [`Engine::queue`].
    #[inline]
    pub(crate) fn select(
        &self,
        peer: u16,
        flow_hash: u32,
        destination: Ipv4Addr,
    ) -> Option<SessionId> {
        self.peers
            .get(peer)?
            .select(flow_hash, destination.to_bits())
    }

    /// Encrypts `packet` into `out`, and returns the length of the datagram. `out` must be at least
    /// 32 bytes longer than `packet`. Returns `None` if the packet was dropped and counted.
    #[inline]
    pub(crate) fn seal(
        &mut self,
        session: SessionId,
        packet: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        let Some(session) = self.sessions.get_mut(session) else {
            self.drops.count(Drop::SessionGone);
            return None;
        };
        match session.tunnel.seal(packet, out) {
            Ok(len) => {
                session.traffic.tx_packets += 1;
                session.traffic.tx_bytes += packet.len() as u64;
                Some(len)
            }
            Err(reason) => {
                self.drops.count(reason);
                None
            }
        }
    }

    /// Returns the local port and the remote endpoint of a session.
    #[inline]
    pub(crate) fn destination(&self, session: SessionId) -> Option<(PortId, SocketAddr)> {
        self.sessions
            .get(session)
            .map(|session| (session.port, session.endpoint))
    }

    /// Returns the inner MTU of a session's path in bytes.
    #[inline]
    pub(crate) fn mtu(&self, session: SessionId) -> Option<u16> {
        self.sessions
            .get(session)
            .map(|session| session.path_mtu.mtu())
    }

    /// Queues a packet until `peer` has a session.
    pub(crate) fn queue(&mut self, peer: u16, packet: &[u8], now: Instant) {
        if self.peers.get(peer).is_none() {
            return self.drops.count(Drop::NoPeer);
        }

        self.queue.push(peer, packet, now, &mut self.drops);
        self.wake_queue(peer);
    }

    /// Marks the queue of `peer` for [`Engine::poll_queued`] if the peer has a session.
    pub(super) fn wake_queue(&mut self, peer: u16) {
        if self.queue.bytes(peer) > 0 && self.has_session(peer) {
            self.awake.insert(peer);
        }
    }

    fn has_session(&self, peer: u16) -> bool {
        let peer = self.peers.get(peer);

        peer.is_some_and(|peer| !peer.selectable.is_empty())
    }

    /// Encrypts the next queued packet into `out`. A packet is dropped unless `out` is at least
    /// 32 bytes longer than the packet.
    pub(crate) fn poll_queued(&mut self, out: &mut [u8]) -> Option<Sealed> {
        loop {
            let peer = *self.awake.first()?;
            let is_ready = self.has_session(peer);
            let packet = is_ready.then(|| self.queue.pop(peer)).flatten();
            let Some(packet) = packet else {
                self.awake.remove(&peer);
                continue;
            };
            if out.len() < packet.len() + OVERHEAD {
                self.drops.count(Drop::Oversized);
                continue;
            }

            let destination = inner::destination(&packet);
            let session = self.select(peer, inner::flow_hash(&packet), destination)?;
            let (port, to) = self.destination(session)?;
            if let Some(len) = self.seal(session, &packet, out) {
                return Some(Sealed { port, to, len });
            }
        }
    }
}
