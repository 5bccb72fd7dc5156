//! Runs the timers of peers and sessions.

use super::Engine;
use super::drops::Drop;
use super::interface::{Event, Kind, SessionId};
use super::liveness;
use super::noise::{HANDSHAKE_BUFFER, Tick};
use super::peer::Peer;
use super::session::{Session, State};
use std::time::{Duration, Instant};

/// Interval of the ticks at which sessions and peers are handled. boringtun needs several ticks per
/// second. Sessions share the ticks, because a wake-up costs more than the work in it.
const TICK: Duration = Duration::from_millis(250);
/// Minimum time between two wake-ups for timeouts. Deadlines that are closer together are handled
/// in one wake-up.
const GRAIN: Duration = Duration::from_millis(5);
/// Number of sessions up to which all PINGs are sent in the same tick. The PINGs then take less
/// than a millisecond, during which packets wait.
const ALIGNED_MAX: usize = 64;
/// Delay of a timeout above which the engine assumes that the process was suspended. The PONGs of
/// the peers may then still wait in its sockets.
const LATE: Duration = Duration::from_millis(200);
/// Time limit for the first data message after a response.
const CONFIRMATION: Duration = Duration::from_secs(10);
/// Time for which a server keeps a session whose PONGs no longer arrive.
const DOWN: Duration = Duration::from_secs(10);
/// Round-trip time that path MTU discovery assumes until the first PONG has arrived.
const RTT_UNKNOWN: Duration = Duration::from_millis(100);
/// Number of ticks without a packet after which a leaving replica assumes that a peer has moved its
/// flows.
const QUIET_TICKS: u32 = 2;
/// Time limit for leaving. The engine then emits [`Event::Drained`] in any case.
const LEAVE_MAX: Duration = Duration::from_secs(5);

impl Engine {
    /// Advances time to `now`.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if now < self.next_timeout {
            return;
        }
        if now.duration_since(self.next_timeout) > LATE {
            for session in self.sessions.iter_mut() {
                session.liveness.reset_missing();
            }
        }

        self.unknown_receiver_handled = false;
        self.keys.handle_timeout(now);
        self.queue.handle_timeout(now, &mut self.drops);
        self.tick_peers(now);
        self.tick_sessions(now);
        self.end_connections(now);
        self.check_drained(now);
        self.next_timeout = self.earliest(now).max(now + GRAIN);
    }

    /// Returns when [`Engine::handle_timeout`] is next due.
    pub(crate) fn poll_timeout(&self) -> Instant {
        self.next_timeout
    }

    fn earliest(&self, now: Instant) -> Instant {
        let peers = self.peers.iter().map(|peer| {
            let error = peer.connection.poll_timeout();
            error.map_or(peer.next_tick, |at| at.min(peer.next_tick))
        });
        let sessions = self.sessions.iter().map(|session| {
            let kind = self
                .peers
                .get(session.peer)
                .map_or(Kind::Unknown, |peer| peer.kind);
            session.poll_timeout(kind)
        });

        peers.chain(sessions).fold(now + TICK, Instant::min)
    }

    fn next_tick(&self, now: Instant) -> Instant {
        let passed = now.saturating_duration_since(self.clock.instant);
        let ticks = passed.as_millis() / TICK.as_millis() + 1;

        self.clock.instant + TICK * u32::try_from(ticks).unwrap_or(u32::MAX)
    }

    fn tick_peers(&mut self, now: Instant) {
        let next = self.next_tick(now);
        let due: Vec<u16> = self
            .peers
            .iter()
            .filter(|peer| peer.next_tick <= now)
            .map(|peer| peer.config.index)
            .collect();

        for index in due {
            if let Some(peer) = self.peers.get_mut(index) {
                peer.handle_tick(next);
                peer.is_active = (peer.sessions.iter())
                    .filter_map(|id| self.sessions.get(*id))
                    .any(|session| session.traffic.is_active());
                if let Some(client) = &mut peer.client {
                    let port = client.endpoints.port();
                    while let Some(host) = client.endpoints.poll_lookup(now) {
                        self.events.push_back(Event::Resolve {
                            peer: index,
                            host,
                            port,
                        });
                    }
                }
            }
            self.maintain_client(index, now);
            self.report_connection(index, now);
        }
    }

    /// Reports the connections without replies. Their peers' next ticks may be up to [`TICK`] later.
    fn end_connections(&mut self, now: Instant) {
        let is_due = |peer: &&Peer| peer.connection.poll_timeout().is_some_and(|at| at <= now);
        let due: Vec<u16> = (self.peers.iter().filter(is_due))
            .map(|peer| peer.config.index)
            .collect();

        for index in due {
            self.report_connection(index, now);
        }
    }

    fn tick_sessions(&mut self, now: Instant) {
        let peers = &self.peers;
        let due: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|session| {
                let kind = peers
                    .get(session.peer)
                    .map_or(Kind::Unknown, |peer| peer.kind);
                session.poll_timeout(kind) <= now
            })
            .map(|session| session.id)
            .collect();

        for id in due {
            self.tick_session(id, now);
        }
    }

    /// Handles all timers of a session that are due.
    pub(super) fn tick_session(&mut self, id: SessionId, now: Instant) {
        let next = self.next_tick(now);
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        if session.next_tick <= now {
            session.handle_tick(next);
            self.tick_tunnel(id, now);
            if self.end_of(id, now) {
                return self.remove_session(id);
            }
            self.pace_pings(id, now);
        }
        self.tick_liveness(id, now);
        self.wake_session(id);
    }

    /// Advances boringtun's timers for a session, and sends the resulting message.
    fn tick_tunnel(&mut self, id: SessionId, now: Instant) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let kind = self
            .peers
            .get(session.peer)
            .map_or(Kind::Unknown, |peer| peer.kind);
        let was_keyed = session.tunnel.is_keyed();
        let mut buffer = [0; HANDSHAKE_BUFFER];
        let tick = session.tunnel.tick(&mut buffer);
        let (peer, port, to) = (session.peer, session.port, session.endpoint);
        // Between two gateways of this project, only the client initiates handshakes.
        let may_initiate = session.state != State::Opening
            && !session.is_closing()
            && (session.target.is_some() || kind != Kind::Ours);

        let has_lost_keys = was_keyed && !session.tunnel.is_keyed();
        match tick {
            Tick::Keepalive(len) => self.transmit(port, to, &buffer[..len]),
            Tick::Initiation(len) if may_initiate => self.transmit(port, to, &buffer[..len]),
            Tick::Initiation(_) | Tick::Nothing | Tick::Expired => {}
        }
        if has_lost_keys {
            self.refresh(peer);
            self.maintain_client(peer, now);
        }
    }

    /// Returns whether a session has expired and must be removed.
    fn end_of(&mut self, id: SessionId, now: Instant) -> bool {
        let Some(session) = self.sessions.get(id) else {
            return false;
        };
        let over = match session.state {
            State::Opening | State::Handshaking => false, // The client role times out its attempts.
            State::Tentative => now.duration_since(session.created) >= CONFIRMATION,
            State::Live => session.target.is_none() && !session.tunnel.is_keyed(),
            State::Down { since } => {
                session.target.is_none()
                    && now.duration_since(since.max(session.last_received)) >= DOWN
            }
            State::Closing { until } => now >= until,
        };
        if over && session.state == State::Tentative {
            self.drops.count(Drop::TentativeEvicted);
        }

        over
    }

    /// Adapts the interval of PINGs to the traffic, and aligns them with the ticks if there are few
    /// sessions.
    fn pace_pings(&mut self, id: SessionId, now: Instant) {
        let are_few = self.sessions.len() <= ALIGNED_MAX;
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let peer = self.peers.get(session.peer);
        let kind = peer.map_or(Kind::Unknown, |peer| peer.kind);
        // Sessions without packets are the ones to which flows move after a loss, so they are probed as often.
        let is_active = peer.is_some_and(|peer| peer.is_active) || session.traffic.is_active();
        let interval = match is_active {
            true => liveness::OURS_INTERVAL,
            false => self.local.idle_probe_interval,
        };
        session.liveness.set_interval(kind, interval);
        if are_few {
            session.liveness.handle_tick(kind, now);
        }
    }

    /// Sends a PING that is due, and detects the loss of the session.
    fn tick_liveness(&mut self, id: SessionId, now: Instant) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let kind = self
            .peers
            .get(session.peer)
            .map_or(Kind::Unknown, |peer| peer.kind);
        if !session.tunnel.is_keyed() || session.state == State::Tentative {
            return;
        }

        let is_live = session.state == State::Live;
        if is_live && session.liveness.is_lost(kind, session.last_received, now) {
            return self.handle_lost(id, now);
        }
        if session.liveness.poll_ping(kind, now) {
            self.send_ping(id, None, now);
        }
        if is_live && kind == Kind::Ours {
            self.probe_path(id, now);
        }
    }

    fn probe_path(&mut self, id: SessionId, now: Instant) {
        loop {
            let Some(session) = self.sessions.get_mut(id) else {
                return;
            };
            let rtt = session.liveness.rtt().unwrap_or(RTT_UNKNOWN);
            let healthy = session.liveness.is_healthy();
            session.path_mtu.handle_timeout(healthy, rtt, now);
            let Some(size) = session.path_mtu.poll_probe() else {
                return;
            };
            self.send_ping(id, Some(size), now);
        }
    }

    /// Handles a session whose PONGs no longer arrive. Its flows move to other sessions at once.
    fn handle_lost(&mut self, id: SessionId, now: Instant) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        if session.target.is_some() {
            return self.replace_lost(id, now);
        }
        session.state = State::Down { since: now };
        let peer = session.peer;
        self.refresh(peer);
    }

    /// Emits [`Event::Drained`] once after [`Engine::leave`], when the peers have moved their
    /// flows. Single-session peers cannot move their flows, so the engine does not wait for these
    /// peers.
    fn check_drained(&mut self, now: Instant) {
        let Some(since) = self.leaving.filter(|_| !self.drained) else {
            return;
        };
        let has_moved =
            |session: &Session| session.leave_known && session.traffic.quiet_ticks >= QUIET_TICKS;
        let waiting = self.sessions.iter().any(|session| {
            let peer = self.peers.get(session.peer);
            let is_ours = peer.is_some_and(|peer| peer.kind == Kind::Ours);
            is_ours && session.is_usable() && !has_moved(session)
        });

        if !waiting || now.duration_since(since) >= LEAVE_MAX {
            self.drained = true;
            self.events.push_back(Event::Drained);
        }
    }
}

const _: () = assert!(
    TICK.as_millis() == liveness::OURS_INTERVAL.as_millis(),
    "PINGs are aligned with ticks"
);
