//! One session: a tunnel to one remote replica over one path.

use super::interface::{Kind, LaneId, Nodes, PortId, SessionId};
use super::liveness::Liveness;
use super::noise::Tunnel;
use super::path_mtu::PathMtu;
use super::place::Place;
use super::snapshot::SessionSnapshot;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Bytes that the outer IPv4 and UDP headers and a data message add to a packet.
const OVERHEAD_V4: u16 = 20 + 8 + 32;
/// Bytes that the outer IPv6 and UDP headers and a data message add to a packet.
const OVERHEAD_V6: u16 = 40 + 8 + 32;
/// Time for which a closed session still replies. The remote side learns from the replies that the
/// session is closed, and no packet in flight is lost.
const CLOSING: Duration = Duration::from_secs(1);

/// Upper limit of handshake responses per session and tick that cost a Diffie-Hellman. One response
/// costs 0.1 ms, so all of them cost less than 1 % of a core. Such a response has the index of a
/// handshake in progress and a valid mac1. To forge it, an attacker must have observed the
/// initiation and must know the local public key.
const RESPONSES_PER_TICK: u32 = 16;

/// Time without a message after which a session with a gateway of this project is no longer in use.
/// The remote side sends a PING or a PONG every 250 ms on a session in use.
const SILENCE: Duration = Duration::from_secs(1);

/// States of a session.
///
/// ```text
///  client: Opening --port--> Handshaking --response--> Live --lost or duplicate--> Closing
///  server: Tentative --first data message--> Live --lost--> Down --PONG--> Live
///                                                            +--10 s--> removed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Waits until the shell has opened the source port.
    Opening,
    /// Has sent an initiation, and waits for the response.
    Handshaking,
    /// Has sent a response, and waits for the first data message, which proves that the initiation
    /// was no replay.
    Tentative,
    /// Carries packets.
    Live,
    /// The session was opened by the peer, and its PONGs no longer arrive.
    Down { since: Instant },
    /// No longer carries packets, but still replies to probes.
    Closing {
        /// The time of removal.
        until: Instant,
    },
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Handshaking => "handshaking",
            Self::Tentative => "tentative",
            Self::Live => "live",
            Self::Down { .. } => "down",
            Self::Closing { .. } => "closing",
        }
    }
}

pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) peer: u16,
    /// Upper 24 bits of the local sender index.
    pub(super) slot: u32,
    /// Upper 24 bits of the sender index in the peer's initiation.
    pub(super) remote_slot: Option<u32>,
    pub(super) tunnel: Tunnel,
    pub(super) state: State,
    pub(super) port: PortId,
    pub(super) endpoint: SocketAddr,
    /// Address to which this side opened the session; `None` if the peer opened it.
    pub(super) target: Option<SocketAddr>,
    pub(super) created: Instant,
    /// Time of the last initiation, or of the last move to a new port.
    pub(super) waiting_since: Instant,
    pub(super) live_since: Instant,
    /// Time of the last authenticated message.
    pub(super) last_received: Instant,
    pub(super) replica: Option<String>,
    /// The remote replica's lane; meaningful once `replica` is known.
    pub(super) remote_lane: LaneId,
    /// The number of replicas that the remote replica advertises.
    pub(super) replicas: u32,
    /// The remote replica's node, as the replica states it.
    pub(super) place: Option<Place>,
    /// Whether the session was opened to the address of the node on which the remote replica runs.
    pub(super) direct: bool,
    /// Health of the remote cluster's nodes, as the remote replica reports it.
    pub(super) nodes: Option<Nodes>,
    /// Whether a response was sent, and no data message with the new keys has arrived since.
    pub(super) unconfirmed: bool,
    /// Receiver index of the last data message.
    pub(super) received_index: Option<u32>,
    /// Value of `received_index` when the last response was sent. Messages with this index use
    /// older keys, and do not confirm the handshake.
    pub(super) index_before: Option<u32>,
    /// Whether the remote replica is leaving.
    pub(super) leaving: bool,
    /// Whether the last PONG to the remote replica said that this replica is leaving.
    pub(super) leave_announced: bool,
    /// Whether the remote replica has acknowledged that this replica is leaving.
    pub(super) leave_known: bool,
    /// Whether a cookie has already caused a repeated initiation. Further cookies cause none until
    /// keys are established.
    pub(super) cookie_used: bool,
    pub(super) liveness: Liveness,
    pub(super) path_mtu: PathMtu,
    pub(super) next_tick: Instant,
    /// Handshake responses that may still cost a Diffie-Hellman until the next tick.
    pub(super) responses_left: u32,
    pub(super) traffic: Traffic,
}

/// Numbers of inner packets and their bytes; liveness probes are not counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) rx_bytes: u64,
    pub(super) rx_packets: u64,
    pub(super) tx_bytes: u64,
    pub(super) tx_packets: u64,
    /// Number of packets in both directions at the last tick.
    packets_before: u64,
    /// Number of consecutive ticks without a packet.
    pub(super) quiet_ticks: u32,
    /// Number of consecutive ticks with at most [`IDLE_PACKETS`].
    idle_ticks: u32,
}

/// Packets in a tick up to which a session has no traffic: the probes of the nodes.
const IDLE_PACKETS: u64 = 4;

/// Number of such ticks after which it is idle: 2 s.
const IDLE_TICKS: u32 = 8;

pub(super) struct Opening {
    pub(super) peer: u16,
    pub(super) slot: u32,
    pub(super) remote_slot: Option<u32>,
    pub(super) state: State,
    pub(super) port: PortId,
    pub(super) endpoint: SocketAddr,
    pub(super) target: Option<SocketAddr>,
    pub(super) mtu: u16,
}

impl Session {
    pub(super) fn new(opening: Opening, tunnel: Tunnel, now: Instant) -> Self {
        Self {
            id: SessionId {
                place: 0,
                generation: 0,
            },
            peer: opening.peer,
            slot: opening.slot,
            remote_slot: opening.remote_slot,
            tunnel,
            state: opening.state,
            port: opening.port,
            endpoint: opening.endpoint,
            target: opening.target,
            created: now,
            waiting_since: now,
            live_since: now,
            last_received: now,
            replica: None,
            remote_lane: LaneId::ONLY,
            replicas: 1,
            place: None,
            direct: false,
            nodes: None,
            unconfirmed: opening.state == State::Tentative,
            received_index: None,
            index_before: None,
            leaving: false,
            leave_announced: false,
            leave_known: false,
            cookie_used: false,
            liveness: Liveness::new(now),
            path_mtu: PathMtu::new(opening.mtu, overhead(opening.endpoint), now),
            next_tick: now,
            responses_left: RESPONSES_PER_TICK,
            traffic: Traffic::default(),
        }
    }

    /// Returns whether flows may use the session.
    pub(super) fn is_usable(&self) -> bool {
        self.state == State::Live && self.tunnel.is_keyed()
    }

    /// Returns whether the next handshake reaches the same remote lane. The first remote lane
    /// handles all handshakes until the remote gateway knows that this gateway is of this project.
    /// Later handshakes reach the lane that the slot selects.
    pub(super) fn is_settled(&self) -> bool {
        self.remote_lane.holds(self.slot)
    }

    /// Returns whether this side opened the session and has not closed it.
    pub(super) fn is_own(&self) -> bool {
        self.target.is_some() && !self.is_closing()
    }

    /// Returns whether the session waits for its port or for a handshake response.
    pub(super) fn is_pending(&self) -> bool {
        matches!(self.state, State::Opening | State::Handshaking)
    }

    /// Returns whether messages arrive in both directions.
    pub(super) fn is_replying(&self, kind: Kind, now: Instant) -> bool {
        self.liveness.is_replying(kind, self.last_received, now)
    }

    /// Returns whether no message has arrived for [`SILENCE`].
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_received) >= SILENCE
    }

    pub(super) fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing { .. })
    }

    /// Closes the session. A last PING announces the closing to the remote replica.
    pub(super) fn close(&mut self, now: Instant) {
        if !self.is_closing() {
            self.state = State::Closing {
                until: now + CLOSING,
            };
            self.liveness.ping_now(now);
        }
    }

    /// Makes the session live after its keys were confirmed, and restarts the probes.
    pub(super) fn revive(&mut self, now: Instant) {
        self.state = State::Live;
        self.live_since = now;
        self.cookie_used = false;
        self.liveness.restart(now);
    }

    /// Restarts path MTU discovery if the upper bound changed.
    pub(super) fn set_mtu(&mut self, upper: u16, now: Instant) {
        if self.path_mtu.upper() != upper {
            self.path_mtu = PathMtu::new(upper, overhead(self.endpoint), now);
        }
    }

    /// Returns whether messages of the session may arrive at `port`. A client port belongs to one
    /// session.
    #[inline]
    pub(super) fn is_at(&self, port: PortId) -> bool {
        port == PortId::LISTEN || port == self.port
    }

    /// Moves the endpoint to the source of an authenticated message. A session that this side
    /// opened keeps its local port.
    #[inline]
    pub(super) fn roam(&mut self, port: PortId, endpoint: SocketAddr) {
        self.endpoint = endpoint;
        if self.target.is_none() {
            self.port = port;
        }
    }

    /// Returns the time at which the session needs the next call of `tick_session`.
    pub(super) fn poll_timeout(&self, kind: Kind) -> Instant {
        if !self.tunnel.is_keyed() {
            return self.next_tick;
        }

        let probe = self.liveness.poll_timeout(kind, self.last_received);
        let due = self.next_tick.min(probe);
        if kind == Kind::Ours && self.state == State::Live {
            due.min(self.path_mtu.poll_timeout())
        } else {
            due
        }
    }

    /// Handles a tick; `next` is the time of the next one.
    pub(super) fn handle_tick(&mut self, next: Instant) {
        self.next_tick = next;
        self.responses_left = RESPONSES_PER_TICK;
        self.traffic.handle_tick();
    }

    /// Returns the state for `gateway status`. `lane` is the lane of this engine.
    pub(super) fn snapshot(&self, lane: LaneId, now: Instant) -> SessionSnapshot {
        SessionSnapshot {
            lane: lane.number(),
            slot: self.slot,
            remote_slot: self.remote_slot,
            endpoint: self.endpoint,
            port: self.port,
            state: self.state.name(),
            replica: self.replica.clone(),
            remote_lane: self.replica.as_ref().map(|_| self.remote_lane.number()),
            leaving: self.leaving,
            rtt: self.liveness.rtt(),
            last_handshake_age: self.tunnel.age(),
            last_heard_age: Some(now.saturating_duration_since(self.last_received)),
            rx_bytes: self.traffic.rx_bytes,
            rx_packets: self.traffic.rx_packets,
            tx_bytes: self.traffic.tx_bytes,
            tx_packets: self.traffic.tx_packets,
            mtu: self.path_mtu.mtu(),
        }
    }
}

impl Traffic {
    /// Returns whether the session has had traffic in the last seconds.
    pub(super) fn is_active(&self) -> bool {
        self.idle_ticks < IDLE_TICKS
    }

    fn handle_tick(&mut self) {
        let packets = self.rx_packets + self.tx_packets;
        let new = packets.saturating_sub(self.packets_before);
        self.idle_ticks = if new <= IDLE_PACKETS {
            self.idle_ticks.saturating_add(1)
        } else {
            0
        };
        if packets == self.packets_before {
            self.quiet_ticks = self.quiet_ticks.saturating_add(1);
        } else {
            self.quiet_ticks = 0;
            self.packets_before = packets;
        }
    }
}

fn overhead(endpoint: SocketAddr) -> u16 {
    match endpoint {
        SocketAddr::V4(_) => OVERHEAD_V4,
        SocketAddr::V6(_) => OVERHEAD_V6,
    }
}
