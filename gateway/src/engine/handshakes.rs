//! Authenticates handshake messages, and assigns them to sessions. A session of the responder is
//! tentative until its first data message, because the initiation may be a replayed copy.

use super::Engine;
use super::drops::Drop;
use super::index;
use super::interface::{Event, Kind, PortId, SessionId};
use super::keys::Refusal;
use super::noise::{HANDSHAKE_BUFFER, Initiator, Opened, Tunnel};
use super::session::{Opening, Session, State};
use crate::mutant;
use std::net::SocketAddr;
use std::time::Instant;

/// Upper limit of tentative sessions per peer. It allows all replicas, ports and lanes of a client
/// to connect at once.
const TENTATIVE_PER_PEER: usize = 64;
/// Upper limit of tentative sessions of all peers; each session costs 12 KB.
const TENTATIVE_MAX: usize = 512;
/// Upper limit of confirmed sessions per peer: four replicas with 16 lanes each, at two addresses.
const LIVE_PER_PEER: usize = 128;

/// The source of a message, and the local port that received it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) port: PortId,
    pub(super) from: SocketAddr,
}

impl Engine {
    pub(super) fn handle_initiation(&mut self, source: Source, datagram: &[u8], now: Instant) {
        let mut buffer = [0; HANDSHAKE_BUFFER];
        let local = match self.keys.verify(source.from, datagram, &mut buffer) {
            Ok(local) => local,
            Err(refusal) => return self.refuse(source, refusal, &buffer),
        };
        self.handle_verified(local, source, datagram, now);
    }

    /// Handles an initiation whose mac1, cookie and limits have been checked. `local` is the local
    /// public key that the initiation is for.
    pub(super) fn handle_verified(
        &mut self,
        local: [u8; 32],
        source: Source,
        datagram: &[u8],
        now: Instant,
    ) {
        let mut buffer = [0; HANDSHAKE_BUFFER];
        let initiator = self.keys.get(&local).and_then(|key| key.identify(datagram));
        let Some(initiator) = initiator else {
            return self.drops.count(Drop::InvalidHandshake);
        };
        let slot = index::slot(initiator.index);
        let Some(peer) = self.peers.by_keys(local, initiator.public_key) else {
            self.peers.note_unknown_key(local, source.from.ip(), now);
            return self.drops.count(Drop::UnknownPeer);
        };
        if !self.is_newest(peer, slot, initiator) {
            return self.drops.count(Drop::InvalidHandshake);
        }

        // Only clients of this project choose a slot that selects the lane. All other peers have
        // their session in the first lane.
        let is_ours = self.peers.get(peer).is_some_and(|p| p.kind == Kind::Ours);
        if !is_ours && !self.local.lane.is_first() {
            return self.events.push_back(Event::Initiation {
                local,
                from: source.from,
                datagram: datagram.to_vec(),
            });
        }
        let responder = self.responder(peer, slot, source, now);
        // A client port belongs to the session that it was opened for.
        if source.port != PortId::LISTEN && responder != self.ports.get(&source.port).copied() {
            return self.drops.count(Drop::ForeignPort);
        }
        let outcome = match responder {
            Some(id) => self.respond(id, slot, datagram, &mut buffer),
            None => self.respond_in_new_session(peer, slot, source, datagram, &mut buffer, now),
        };
        match outcome {
            Ok(len) => {
                if let Some(peer) = self.peers.get_mut(peer) {
                    peer.evidence.initiations.note(source.from.ip(), now);
                }
                self.transmit(source.port, source.from, &buffer[..len]);
            }
            Err(reason) => self.drops.count(reason),
        }
    }

    /// Returns whether the peer created an initiation with its private key, with a timestamp that
    /// is newer than all earlier timestamps of the slot. A lane also records the timestamps of
    /// initiations that it forwards to the first lane. If the lane later handles the initiations of
    /// this peer itself, it can then refuse replayed copies.
    fn is_newest(&mut self, peer: u16, slot: u32, initiator: Initiator) -> bool {
        let Some(peer) = self.peers.get_mut(peer) else {
            return false;
        };
        let Some(key) = self.keys.get(&peer.local_key) else {
            return false;
        };
        let timestamp = initiator.timestamp(peer.static_shared(key));

        timestamp.is_some_and(|timestamp| peer.timestamps.take(slot, timestamp))
    }

    /// Handles the response to an initiation of this gateway. The gateway never demands a cookie
    /// for a response, because the sender must have observed the index of the initiation.
    pub(super) fn handle_response(&mut self, index: u32, datagram: &[u8], now: Instant) {
        let mut buffer = [0; HANDSHAKE_BUFFER];
        let Some(session) = self.sessions.by_index(index) else {
            return self.drops.count(Drop::UnknownReceiver);
        };
        if session.responses_left == 0 {
            return self.drops.count(Drop::HandshakeRate);
        }
        let opened = session.tunnel.open(datagram, &mut buffer);
        // A message that fails with one of these two errors costs no Diffie-Hellman. It must not
        // use up the budget of genuine responses.
        if !matches!(opened, Err(Drop::InvalidMac | Drop::Unexpected)) {
            session.responses_left -= 1;
        }
        match opened {
            Ok(Opened::Established(len)) => {
                session.last_received = now;
                if session.state != State::Live && !session.is_closing() {
                    session.revive(now);
                }
                let (id, port, to) = (session.id, session.port, session.endpoint);
                if let Some(peer) = self.peers.get_mut(session.peer) {
                    peer.evidence.responses.note(to.ip(), now);
                }
                self.transmit(port, to, &buffer[..len]);
                self.handle_established(id, now);
            }
            Ok(_) => self.drops.count(Drop::Unexpected),
            Err(reason) => self.drops.count(reason),
        }
    }

    /// Handles a cookie reply. The endpoint of the session does not change, because a cookie reply
    /// is not authenticated with session keys.
    pub(super) fn handle_cookie(&mut self, index: u32, datagram: &[u8], now: Instant) {
        let mut buffer = [0; HANDSHAKE_BUFFER];
        let Some(session) = self.sessions.by_index(index) else {
            return self.drops.count(Drop::UnknownReceiver);
        };
        let id = session.id;
        match session.tunnel.open(datagram, &mut buffer) {
            Ok(Opened::Cookie) if session.state == State::Handshaking && !session.cookie_used => {
                session.cookie_used = true;
                self.initiate(id, now);
            }
            Ok(_) => {}
            Err(reason) => self.drops.count(reason),
        }
    }

    /// Confirms the handshake of a session when the first data message with the new keys arrives.
    /// This message proves that the initiation was no replay and that the initiator has the keys.
    pub(super) fn confirm(&mut self, id: SessionId, now: Instant) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        session.unconfirmed = false;
        let from = session.endpoint.ip();
        if let Some(peer) = self.peers.get(session.peer) {
            self.keys.remember(from, peer.local_key);
        }
        if session.state != State::Tentative {
            return self.handle_renewed(id, now);
        }
        session.revive(now);
        let (index, path) = (session.peer, (session.port, session.endpoint));

        let Some(peer) = self.peers.get(index) else {
            return;
        };
        let confirmed = |s: &&Session| s.id != id && s.state != State::Tentative;
        let others = || {
            let sessions = peer.sessions.iter();
            sessions
                .filter_map(|id| self.sessions.get(*id))
                .filter(confirmed)
        };
        // A client uses a port for one session, so an earlier session at this endpoint has ended.
        let mut ended: Vec<_> = others()
            .filter(|s| s.target.is_none() && (s.port, s.endpoint) == path)
            .map(|session| session.id)
            .collect();
        if others().count() - ended.len() >= LIVE_PER_PEER {
            let idlest = others().min_by_key(|session| session.last_received);
            ended.extend(idlest.map(|session| session.id));
            self.drops.count(Drop::SessionLimit);
        }
        for id in ended {
            self.remove_session(id);
        }

        self.handle_established(id, now);
    }

    /// Handles renewed keys of a session. A single-session peer uses only the session with the
    /// newest keys, so flows move to this session.
    fn handle_renewed(&mut self, id: SessionId, now: Instant) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let index = session.peer;
        if self.peers.get(index).is_some_and(|p| p.kind != Kind::Ours) {
            session.live_since = now;
            self.refresh(index);
        }
    }

    /// Handles the first keys of a session, or new keys after the session was lost.
    fn handle_established(&mut self, id: SessionId, now: Instant) {
        let Some(index) = self.sessions.get(id).map(|session| session.peer) else {
            return;
        };
        if let Some(client) = self.peers.get_mut(index).and_then(|p| p.client.as_mut()) {
            client.handle_established(now);
        }
        self.refresh(index);
        self.tick_session(id, now);
    }

    /// Returns the session to which an initiation with this slot belongs.
    fn responder(&self, index: u16, slot: u32, source: Source, now: Instant) -> Option<SessionId> {
        let peer = self.peers.get(index)?;
        let sessions = || {
            let all = peer.sessions.iter().filter_map(|id| self.sessions.get(*id));
            all.filter(|session| !session.is_closing() && session.state != State::Opening)
        };
        if mutant::disables("slots") {
            return sessions().next().map(|session| session.id);
        }

        let by_slot = sessions().filter(|session| session.remote_slot == Some(slot));
        // Two replicas of a peer may choose the same slot. A session that is in use from another
        // endpoint belongs to the other replica.
        let is_ours = peer.kind == Kind::Ours;
        let by_slot = by_slot
            .filter(|s| !is_ours || s.endpoint == source.from || s.is_silent(now))
            .max_by_key(|s| s.endpoint == source.from);
        let by_path = || {
            sessions()
                // A client port identifies the session.
                .filter(|s| {
                    s.port == source.port && (s.port != PortId::LISTEN || s.endpoint == source.from)
                })
                .max_by_key(|s| s.state == State::Live)
        };

        by_slot
            .or_else(|| (!is_ours).then(by_path).flatten())
            .map(|session| session.id)
    }

    /// Responds to an initiation within an existing session. The session's endpoint changes only
    /// with the first data message, because the initiation may be a replayed copy.
    fn respond(
        &mut self,
        id: SessionId,
        slot: u32,
        datagram: &[u8],
        buffer: &mut [u8; HANDSHAKE_BUFFER],
    ) -> Result<usize, Drop> {
        let session = self.sessions.get_mut(id).ok_or(Drop::SessionGone)?;
        let Opened::Response(len) = session.tunnel.open(datagram, buffer)? else {
            return Err(Drop::Unexpected);
        };
        session.remote_slot = Some(slot);
        session.unconfirmed = true;
        session.index_before = session.received_index;

        Ok(len)
    }

    /// Responds to an initiation with a new, tentative session.
    fn respond_in_new_session(
        &mut self,
        index: u16,
        slot: u32,
        source: Source,
        datagram: &[u8],
        buffer: &mut [u8; HANDSHAKE_BUFFER],
        now: Instant,
    ) -> Result<usize, Drop> {
        let own_lane = self.local.lane;
        let own_slot = self.slot(|slot| own_lane.holds(slot));
        let peer = self.peers.get(index).ok_or(Drop::UnknownPeer)?;
        let key = self.keys.get(&peer.local_key).ok_or(Drop::UnknownPeer)?;
        let mut tunnel = Tunnel::new(key, peer.config.public_key, own_slot);
        let Opened::Response(len) = tunnel.open(datagram, buffer)? else {
            return Err(Drop::Unexpected);
        };

        let opening = Opening {
            peer: index,
            slot: own_slot,
            remote_slot: Some(slot),
            state: State::Tentative,
            port: source.port,
            endpoint: source.from,
            target: None,
            mtu: peer.config.mtu,
        };
        self.make_room(index);
        let id = self
            .add_session(Session::new(opening, tunnel, now))
            .ok_or(Drop::SessionLimit)?;
        self.tentative.push_back(id);

        Ok(len)
    }

    /// Makes room for a tentative session. At a limit, removes the oldest tentative session of the
    /// peer or of all peers. A confirmed session is never removed for a tentative one.
    fn make_room(&mut self, index: u16) {
        let sessions = &self.sessions;
        let is_tentative = |id: &SessionId| {
            let session = sessions.get(*id);
            session.is_some_and(|session| session.state == State::Tentative)
        };
        // Remove the ids of sessions that have been confirmed or removed in the meantime.
        self.tentative.retain(is_tentative);
        let of_peer = self.peers.get(index).into_iter();
        let of_peer = of_peer.flat_map(|peer| &peer.sessions);
        // `Peer::sessions` and `self.tentative` are ordered oldest first.
        let mine: Vec<_> = of_peer.copied().filter(is_tentative).collect();
        let oldest = if mine.len() >= TENTATIVE_PER_PEER {
            mine.first().copied()
        } else if self.tentative.len() >= TENTATIVE_MAX {
            self.tentative.front().copied()
        } else {
            None
        };

        if let Some(id) = oldest {
            self.remove_session(id);
            self.drops.count(Drop::TentativeEvicted);
        }
    }

    fn refuse(&mut self, source: Source, refusal: Refusal, buffer: &[u8; HANDSHAKE_BUFFER]) {
        self.drops.count(refusal.reason);
        if let Some(len) = refusal.cookie {
            self.transmit(source.port, source.from, &buffer[..len]);
        }
    }
}
