//! WireGuard for many peers, without IO: PURE.
//!
//! The shell feeds input (`handle_*`, `queue`, `set_*`, `leave`) and after each
//! input drains, in this order: [`Engine::poll_transmit`] until `None`,
//! [`Engine::poll_queued`] until `None`, [`Engine::poll_event`] until `None`,
//! then waits until [`Engine::poll_timeout`] at most. Data messages of the
//! shell's own packets take the short way: [`Engine::select`], [`Engine::seal`],
//! [`Engine::destination`].
//!
//! Only `engine/noise.rs` names boringtun, which reads clock and randomness itself.
//!
//! Refinements of the agreed interface: `new` takes a [`Clock`] (monotonic and wall
//! reading of the same moment) instead of an instant; a port is used only after
//! [`Engine::handle_port_opened`]; resolution answers name the host; packets that
//! waited for a session come out sealed from [`Engine::poll_queued`];
//! [`Engine::set_replicas`] tells the live replicas of this cluster;
//! [`Event::Reachable`] is what the overlay's heartbeat should say.

pub(crate) mod drops;
pub(crate) mod interface;
pub(crate) mod snapshot;

#[expect(unused_imports, reason = "the shell starts to use them")]
pub(crate) use interface::{
    Clock, ConnectionState, Event, Kind, Local, PeerConfig, PortId, Received, Role, Sealed,
    SessionId, Transmit,
};

use drops::Drops;
use snapshot::Snapshot;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

/// The state machine of all peers.
pub(crate) struct Engine {
    local: Local,
    clock: Clock,
    drops: Drops,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
}

#[expect(unused_variables, reason = "the shell starts to use it")]
impl Engine {
    /// Creates an engine without peers. `seed` is 32 bytes of the system's randomness.
    pub(crate) fn new(local: Local, seed: [u8; 32], clock: Clock) -> Self {
        Self {
            local,
            clock,
            drops: Drops::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Replaces the set of peers; unchanged ones keep their sessions.
    pub(crate) fn set_peers(&mut self, peers: Vec<PeerConfig>, now: Instant) {}

    /// Tells the names of this cluster's live gateway replicas, this one included.
    pub(crate) fn set_replicas(&mut self, replicas: Vec<String>, now: Instant) {}

    /// Handles the addresses of one of a peer's end points.
    pub(crate) fn handle_resolved(
        &mut self,
        peer: u16,
        host: &str,
        addresses: Vec<SocketAddr>,
        now: Instant,
    ) {
    }

    /// Handles that the socket of `port` is open.
    pub(crate) fn handle_port_opened(&mut self, port: PortId, now: Instant) {}

    /// Handles one received datagram; `out` must be as long as the datagram.
    pub(crate) fn handle_datagram(
        &mut self,
        port: PortId,
        from: SocketAddr,
        datagram: &mut [u8],
        out: &mut [u8],
        now: Instant,
    ) -> Received {
        Received::Nothing
    }

    /// Returns the session on which the flow of `flow_hash` goes to `peer`, or
    /// `None`: then the packet belongs into [`Engine::queue`].
    pub(crate) fn select(&self, peer: u16, flow_hash: u32) -> Option<SessionId> {
        None
    }

    /// Encrypts `packet` into `out`, which must be 32 bytes longer, and returns
    /// the datagram's length.
    pub(crate) fn seal(
        &mut self,
        session: SessionId,
        packet: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        None
    }

    /// Returns where a session's datagrams leave and go.
    pub(crate) fn destination(&self, session: SessionId) -> Option<(PortId, SocketAddr)> {
        None
    }

    /// Returns the inner MTU of a session's path in bytes.
    pub(crate) fn mtu(&self, session: SessionId) -> Option<u16> {
        None
    }

    /// Keeps a packet until `peer` has a session.
    pub(crate) fn queue(&mut self, peer: u16, packet: &[u8], now: Instant) {}

    /// Advances time to `now`.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {}

    /// Returns when [`Engine::handle_timeout`] is next due.
    pub(crate) fn poll_timeout(&self) -> Instant {
        self.clock.instant
    }

    /// Returns the next datagram of the engine's own.
    pub(crate) fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Seals the next packet that waited for a session into `out` (as long as the
    /// longest queued packet and 32 bytes).
    pub(crate) fn poll_queued(&mut self, out: &mut [u8]) -> Option<Sealed> {
        None
    }

    /// Returns the next event.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns whether this replica can carry packets to `peer`.
    pub(crate) fn reachable(&self, peer: u16) -> bool {
        false
    }

    /// Returns the counters of all drops.
    pub(crate) fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Returns what a person sees of the engine.
    pub(crate) fn snapshot(&self, now: Instant) -> Snapshot {
        Snapshot {
            replica: self.local.replica.clone(),
            leaving: false,
            peers: Vec::new(),
            drops: self.drops.iter().filter(|(_, count)| *count > 0).collect(),
        }
    }

    /// Starts to leave: tells all peers to move their flows away.
    pub(crate) fn leave(&mut self, now: Instant) {}
}
