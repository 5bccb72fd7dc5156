//! Liveness probes in and out.

use super::Engine;
use super::drops::Drop;
use super::inner::{self, ProbeAddresses};
use super::interface::{ConnectionState, Event, Kind, LaneId, Nodes, SessionId, Transmit};
use super::noise::OVERHEAD;
use super::probe::{self, Gateway, Probe};
use super::session::State;
use std::collections::VecDeque;
use std::time::Instant;

/// The most datagrams of the engine's own that wait to be sent: all sessions of a
/// large gateway probing at once.
const TRANSMITS_MAX: usize = 16_384;

impl Engine {
    /// Handles a probe that came through a session.
    pub(super) fn handle_probe(
        &mut self,
        id: SessionId,
        addresses: ProbeAddresses,
        json: &[u8],
        now: Instant,
    ) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let leaving = self.standby || self.leaving.is_some() || session.is_closing();
        let Some(peer) = self.peers.get_mut(session.peer) else {
            return self.drops.count(Drop::NoPeer);
        };
        if !peer.take_probe() {
            return self.drops.count(Drop::ProbeRate);
        }
        let question = json.len();
        match probe::parse(json, peer.kind == Kind::Ours) {
            None => self.drops.count(Drop::ProbeMalformed),
            Some(Probe::Ping { answer, gateway }) => {
                let own = self.gateway(leaving);
                let json = probe::pong(answer, &own);
                // No amplifier: some JSON is longer when it is written again.
                if json.len() > question && json.len() > question + probe::own_len(&own) {
                    return self.drops.count(Drop::ProbeMalformed);
                }
                let packet = inner::probe_packet(addresses.destination, addresses.source, &json);
                self.send_probe(id, &packet, false);
                self.learn(id, gateway, now);
            }
            Some(Probe::Pong { sent, gateway }) => self.handle_pong(id, sent, gateway, now),
        }
    }

    /// Sends a PING; `size` pads it to an inner packet of that many bytes, which
    /// must not be fragmented.
    pub(super) fn send_ping(&mut self, id: SessionId, size: Option<u16>, now: Instant) {
        let sent = self.next_sent(now);
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let Some(peer) = self.peers.get(session.peer) else {
            return;
        };
        let headers = inner::IPV4_HEADER + inner::UDP_HEADER;
        let len = size.map(|size| usize::from(size).saturating_sub(headers));
        session.liveness.handle_sent(sent, size, now);
        let leaving = self.standby || self.leaving.is_some() || session.is_closing();
        let own = self.gateway(leaving);
        let (from, remote) = peer.probe_addresses();
        let json = probe::ping(&peer.config.cluster_id, sent, &own, len);
        let packet = inner::probe_packet(from, (remote, inner::PROBE_PORT), &json);
        self.send_probe(id, &packet, size.is_some());
    }

    /// Returns the time stamp of a PING that is sent now. Two of one moment differ, since a PONG
    /// names its PING by this.
    fn next_sent(&mut self, now: Instant) -> i128 {
        let sent = self.clock.unix + now.saturating_duration_since(self.clock.instant);
        self.last_sent = (self.last_sent + 1).max(i128::try_from(sent.as_nanos()).unwrap_or(0));

        self.last_sent
    }

    fn handle_pong(&mut self, id: SessionId, sent: i128, gateway: Option<Gateway>, now: Instant) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let index = session.peer;
        let Some(answer) = session.liveness.handle_answer(sent, now) else {
            return self.drops.count(Drop::ProbeUnexpected);
        };
        if let Some(size) = answer.size {
            return session.path_mtu.handle_arrival(size, now);
        }
        session.replicas = gateway.as_ref().and_then(|g| g.replicas).unwrap_or(1);
        session.nodes = gateway.as_ref().and_then(|g| g.nodes);
        session.leave_known |= self.leaving.is_some_and(|since| answer.asked >= since);
        let is_back = session.tunnel.is_keyed()
            && matches!(session.state, State::Down { .. } | State::Handshaking);
        if is_back {
            session.state = State::Live;
            session.live_since = now;
            self.refresh(index);
        }

        if let Some(peer) = self.peers.get_mut(index)
            && peer.connection.handle_answer(answer.rtt, now)
        {
            self.events.push_back(peer.connection.event(index));
        }
        self.learn(id, gateway, now);
    }

    /// Takes in what the sender of a probe says of itself; one that says nothing is
    /// upstream's.
    fn learn(&mut self, id: SessionId, gateway: Option<Gateway>, now: Instant) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let index = session.peer;
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let kind = match gateway {
            Some(_) => Kind::Ours,
            None => Kind::Upstream,
        };
        let leaving = gateway.as_ref().is_some_and(|gateway| gateway.leaving);
        let replica = gateway.as_ref().map(|gateway| gateway.replica.clone());
        let lane = gateway
            .as_ref()
            .map_or(LaneId::ONLY, |gateway| gateway.lane);
        let is_news = kind != peer.kind
            || leaving != session.leaving
            || replica != session.replica
            || lane != session.remote_lane;
        if !is_news {
            return;
        }

        // Another lane has no say: it is told.
        let is_first = self.local.lane.is_first();
        let is_another = is_first && peer.kind != kind;
        if is_first {
            peer.kind = kind;
        }
        peer.version = gateway.map(|gateway| gateway.version);
        session.leaving = leaving;
        session.replica = replica;
        session.remote_lane = lane;
        if kind == Kind::Ours {
            self.close_duplicates(id, now);
        }
        self.refresh(index);
        self.maintain_client(index, now);
        if is_another {
            self.tell_remote(index); // Other lanes wait for it.
        }
    }

    /// Handles that nobody has heard what was told of a peer.
    pub(crate) fn forget_told(&mut self, index: u16) {
        if let Some(peer) = self.peers.get_mut(index) {
            peer.told = None;
        }
    }

    /// What this replica says of itself.
    fn gateway(&self, leaving: bool) -> Gateway {
        let replicas = u32::try_from(self.replicas.len()).unwrap_or(u32::MAX);

        Gateway {
            version: self.local.version.clone(),
            replica: self.local.replica.clone(),
            lane: self.local.lane,
            replicas: Some(replicas.max(1)),
            leaving,
            nodes: self.nodes,
        }
    }

    fn send_probe(&mut self, id: SessionId, packet: &[u8], dont_fragment: bool) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let mut datagram = vec![0; packet.len() + OVERHEAD];
        match session.tunnel.seal(packet, &mut datagram) {
            Ok(len) => {
                datagram.truncate(len);
                let transmit = Transmit {
                    port: session.port,
                    to: session.endpoint,
                    datagram,
                    dont_fragment,
                };
                push(&mut self.transmits, transmit, &mut self.drops);
            }
            Err(reason) => self.drops.count(reason),
        }
    }

    /// Sends a datagram of the engine's own.
    pub(super) fn transmit(
        &mut self,
        port: super::PortId,
        to: std::net::SocketAddr,
        datagram: &[u8],
    ) {
        let transmit = Transmit {
            port,
            to,
            datagram: datagram.to_vec(),
            dont_fragment: false,
        };
        push(&mut self.transmits, transmit, &mut self.drops);
    }

    /// Reports whether a peer's connection is alive.
    pub(super) fn report_connection(&mut self, index: u16, now: Instant) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let kind = peer.kind;
        let is_alive = peer
            .sessions
            .iter()
            .filter_map(|id| self.sessions.get(*id))
            .any(|session| session.is_usable() && session.liveness.is_answering(kind, now));
        if peer.connection.handle_tick(is_alive, now) {
            self.events.push_back(peer.connection.event(index));
        }
        let is_connected = peer.connection.state == ConnectionState::Connected;
        if let Some(signs) = peer.signs.poll(is_connected, now) {
            self.events.push_back(Event::Signs { peer: index, signs });
        }
        self.tell_remote(index);
    }

    /// Tells what a peer runs and how its nodes fare, if that is news.
    fn tell_remote(&mut self, index: u16) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let kind = peer.kind;
        let usable = peer
            .sessions
            .iter()
            .filter_map(|id| self.sessions.get(*id))
            .filter(|session| session.is_usable() && session.liveness.is_answered());
        let nodes = usable.map(|session| session.nodes).reduce(worst).flatten();
        if peer.told != Some((kind, nodes)) {
            peer.told = Some((kind, nodes));
            self.events.push_back(Event::Remote {
                peer: index,
                kind,
                nodes,
            });
        }
    }
}

/// What of two replicas' accounts of the same nodes to believe: the worse.
fn worst(one: Option<Nodes>, other: Option<Nodes>) -> Option<Nodes> {
    let (one, other) = (one?, other?);

    Some(Nodes {
        all: one.all.max(other.all),
        cut: one.cut.max(other.cut),
        resting: one.resting.max(other.resting),
        reflect: one.reflect && other.reflect,
    })
}

fn push(transmits: &mut VecDeque<Transmit>, transmit: Transmit, drops: &mut super::Drops) {
    if transmits.len() >= TRANSMITS_MAX {
        drops.count(Drop::TransmitQueueFull);
        return;
    }

    transmits.push_back(transmit);
}
