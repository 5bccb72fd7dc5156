//! Sends and handles liveness probes.

use super::Engine;
use super::drops::Drop;
use super::inner::{self, ProbeAddresses};
use super::interface::{ConnectionState, Event, Kind, LaneId, Nodes, SessionId, Transmit};
use super::noise::OVERHEAD;
use super::probe::{self, Gateway, Heard, Probe};
use super::session::State;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Upper limit of the engine's datagrams that wait to be sent. It allows one PING on each of 16,384
/// sessions at once.
const TRANSMITS_MAX: usize = 16_384;

impl Engine {
    /// Handles a PING or PONG that arrived through a session. `addresses` are those of the inner
    /// packet.
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
        let request = json.len();
        match probe::parse(json, peer.kind == Kind::Ours) {
            None => self.drops.count(Drop::ProbeMalformed),
            Some(Probe::Ping { reply, gateway }) => {
                let leave_was_announced = session.leave_announced;
                session.leave_announced = self.leaving.is_some();
                let mut own = self.gateway(leaving);
                // Upstream's gateways accept no long message.
                if gateway.is_none() {
                    own.place = None;
                }
                let json = probe::pong(reply, &own);
                // A crafted PING could cause a much longer PONG, because some JSON becomes longer
                // when it is parsed and written again. The limit prevents this amplification.
                if json.len() > request && json.len() > request + probe::own_len(&own) {
                    return self.drops.count(Drop::ProbeMalformed);
                }
                let packet = inner::probe_packet(addresses.destination, addresses.source, &json);
                self.send_probe(id, &packet, false);
                match gateway.as_ref().and_then(|it| it.heard) {
                    Some(heard) => {
                        self.handle_heard(id, (heard, leave_was_announced), gateway, now)
                    }
                    None => self.learn(id, gateway, now),
                }
            }
            Some(Probe::Pong { sent, gateway }) => self.handle_pong(id, sent, gateway, now),
        }
    }

    /// Sends a PING. If `size` is given, pads it to an inner packet of `size` bytes and sets the DF
    /// bit.
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
        let heard = session
            .liveness
            .heard()
            .filter(|_| session.target.is_some() && peer.kind == Kind::Ours);
        session.liveness.handle_sent(sent, size, now);
        let leaving = self.standby || self.leaving.is_some() || session.is_closing();
        let direct = session.direct && session.target.is_some();
        let own = Gateway {
            heard: heard.filter(|_| size.is_none()),
            direct,
            ..self.gateway(leaving)
        };
        let (from, remote) = peer.probe_addresses();
        let json = probe::ping(&peer.config.cluster_id, sent, &own, len);
        let packet = inner::probe_packet(from, (remote, inner::PROBE_PORT), &json);
        self.send_probe(id, &packet, size.is_some());
    }

    /// Returns a unique timestamp for a PING at `now`. A PONG identifies its PING by this
    /// timestamp.
    fn next_sent(&mut self, now: Instant) -> i128 {
        let sent = self.clock.unix + now.saturating_duration_since(self.clock.instant);
        self.last_sent = (self.last_sent + 1).max(i128::try_from(sent.as_nanos()).unwrap_or(0));

        self.last_sent
    }

    fn handle_pong(&mut self, id: SessionId, sent: i128, gateway: Option<Gateway>, now: Instant) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let Some(reply) = session.liveness.handle_pong(sent, now) else {
            return self.drops.count(Drop::ProbeUnexpected);
        };
        if let Some(size) = reply.size {
            return session.path_mtu.handle_arrival(size, now);
        }
        session.leave_known |= self.leaving.is_some_and(|since| reply.sent_at >= since);
        self.replied(id, reply.rtt, gateway, now);
    }

    /// Handles a PING whose sender says that its earlier ones were answered. `leave_was_announced` means that
    /// the last answer said that this replica is leaving.
    fn handle_heard(
        &mut self,
        id: SessionId,
        (heard, leave_was_announced): (Heard, bool),
        gateway: Option<Gateway>,
        now: Instant,
    ) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        // The side that opened the session sends the PINGs.
        if session.target.is_some() || session.is_closing() {
            return self.learn(id, gateway, now);
        }
        session.leave_known |= leave_was_announced;
        let rtt = session.liveness.handle_heard(heard, now);
        self.replied(id, rtt, gateway, now);
    }

    /// Handles the evidence that messages of a session arrive in both directions.
    fn replied(&mut self, id: SessionId, rtt: Duration, gateway: Option<Gateway>, now: Instant) {
        let is_ping = gateway.as_ref().is_some_and(|g| g.heard.is_some());
        let stated_direct = gateway.as_ref().filter(|_| is_ping).map(|g| g.direct);
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let index = session.peer;
        session.replicas = gateway.as_ref().and_then(|g| g.replicas).unwrap_or(1);
        session.nodes = gateway.as_ref().and_then(|g| g.nodes);
        let place = gateway.as_ref().and_then(|g| g.place.as_ref());
        let is_direct = match (session.target, stated_direct) {
            (Some(target), _) => place.is_some_and(|place| place.address() == target.ip()),
            (None, stated) => stated.unwrap_or(session.direct),
        };
        let is_moved = place != session.place.as_ref() || is_direct != session.direct;
        if is_moved {
            session.place = place.cloned();
            session.direct = is_direct;
        }
        let is_back = session.tunnel.is_keyed()
            && matches!(session.state, State::Down { .. } | State::Handshaking);
        if is_back {
            session.state = State::Live;
            session.live_since = now;
        }
        if is_moved && let Some(peer) = self.peers.get(index) {
            let foreign = place.map_or(0, |place| place.foreign(&peer.sources));
            for _ in 0..foreign {
                self.drops.count(Drop::PlaceNotAllowed);
            }
        }
        if is_back || is_moved {
            self.refresh(index);
        }

        if let Some(peer) = self.peers.get_mut(index)
            && peer.connection.handle_pong(rtt, now)
        {
            self.events.push_back(peer.connection.event(index));
        }
        self.learn(id, gateway, now);
    }

    /// Handles the description of a probe's sender. A sender without a description is an upstream
    /// gateway.
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

        // Only the first lane derives the kind from probes. In the other lanes the shell sets the
        // kind (`set_kind`).
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
            self.report_remote(index); // The shell passes the kind to the other lanes.
        }
    }

    /// Makes the engine report a peer's kind and node health again, because the shell lost the
    /// report.
    pub(crate) fn forget_report(&mut self, index: u16) {
        if let Some(peer) = self.peers.get_mut(index) {
            peer.reported = None;
        }
    }

    /// Returns the description of this replica, for its probes.
    fn gateway(&self, leaving: bool) -> Gateway {
        let replicas = u32::try_from(self.replicas.len()).unwrap_or(u32::MAX);

        Gateway {
            version: self.local.version.clone(),
            replica: self.local.replica.clone(),
            lane: self.local.lane,
            replicas: Some(replicas.max(1)),
            leaving,
            nodes: self.nodes,
            heard: None,
            direct: false,
            place: self.place.clone(),
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

    /// Queues a datagram for [`Engine::poll_transmit`].
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

    /// Reports changes of a peer's connection, handshake evidence, kind and node health.
    pub(super) fn report_connection(&mut self, index: u16, now: Instant) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let kind = peer.kind;
        let is_alive = peer
            .sessions
            .iter()
            .filter_map(|id| self.sessions.get(*id))
            .any(|session| session.is_usable() && session.is_replying(kind, now));
        if peer.connection.handle_timeout(is_alive, now) {
            self.events.push_back(peer.connection.event(index));
        }
        let is_connected = peer.connection.state == ConnectionState::Connected;
        if let Some(evidence) = peer.evidence.poll(is_connected, now) {
            self.events.push_back(Event::HandshakeEvidence {
                peer: index,
                evidence,
            });
        }
        self.report_remote(index);
    }

    /// Reports a peer's kind and the health of its nodes, if they changed.
    fn report_remote(&mut self, index: u16) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let kind = peer.kind;
        let usable = peer
            .sessions
            .iter()
            .filter_map(|id| self.sessions.get(*id))
            .filter(|session| session.is_usable() && session.liveness.has_reply());
        let nodes = usable.map(|session| session.nodes).reduce(worst).flatten();
        if peer.reported != Some((kind, nodes)) {
            peer.reported = Some((kind, nodes));
            self.events.push_back(Event::Remote {
                peer: index,
                kind,
                nodes,
            });
        }
    }
}

/// Combines two replicas' reports about the same nodes, with the worse value of each field.
fn worst(one: Option<Nodes>, other: Option<Nodes>) -> Option<Nodes> {
    let (one, other) = (one?, other?);

    Some(Nodes {
        all: one.all.max(other.all),
        cut: one.cut.max(other.cut),
        resting: one.resting.max(other.resting),
        echo_responder: one.echo_responder && other.echo_responder,
    })
}

fn push(transmits: &mut VecDeque<Transmit>, transmit: Transmit, drops: &mut super::Drops) {
    if transmits.len() >= TRANSMITS_MAX {
        drops.count(Drop::TransmitQueueFull);
        return;
    }

    transmits.push_back(transmit);
}
