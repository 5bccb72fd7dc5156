//! Implements WireGuard for many peers. PURE: a state machine without IO, clock or randomness. The
//! shell (`shell/`) performs all IO, and passes the current time as an argument.
//!
//! The shell calls the input methods `handle_*`, `queue`, `set_*` and `leave`. After each input the
//! shell drains the engine. It calls [`Engine::poll_transmit`], [`Engine::poll_queued`] and
//! [`Engine::poll_event`], in this order, each until it returns `None`. Then the shell waits for
//! the next input, or until [`Engine::poll_timeout`]. For packets from the TAP the shell calls
//! [`Engine::select`], [`Engine::seal`] and [`Engine::destination`].
//!
//! ```text
//! datagram -> classify -+-> data        -> session by index -> inner check -> packet | probe
//!                       +-> initiation  -> keys -> peer -> session by slot, or a tentative session
//!                       +-> response    -> session by index -> keys -> live
//!                       +-> cookie      -> session by index
//! time     -> peers: resolve names, open and close sessions, report the connection
//!          -> sessions: boringtun's timers, liveness, path MTU
//! ```
//!
//! The responder assigns an initiation to a session by its peer and its slot. The slot is the upper
//! 24 bits of the sender index. Slots allow all replicas of a cluster, and all lanes (worker
//! threads) of a replica, to share one static key. The messages on the wire are plain WireGuard.
//! Only the module `noise` uses boringtun. boringtun reads the clock and the system's randomness
//! directly, which the rest of the engine must not do.
//!
//! The engine sends from a client port only after [`Engine::handle_port_opened`].
//! [`Engine::poll_queued`] returns the packets that waited for a session, already encrypted.

pub(crate) mod interface;

mod handshakes;
mod index;
mod key;
mod keys;
mod noise;
mod timestamps;

mod data;
mod inner;
mod queue;

mod lifecycle;
mod peer;
mod peers;
mod place;
mod session;
mod sessions;

mod client;
mod endpoints;
mod lanes;
mod replicas;
mod tunnelled;

mod liveness;
mod path_mtu;
pub(crate) mod probe;
mod probes;
mod timers;

pub(crate) mod drops;
mod handshake_evidence;
mod rng;
pub(crate) mod snapshot;

pub(crate) use interface::{
    Clock, ConnectionState, Event, HandshakeEvidence, Kind, LaneId, Local, Nodes, PeerConfig,
    PortId, PrivateKey, Received, Role, SessionId, Transmit,
};
pub(crate) use lanes::LANES_MAX;
pub(crate) use place::Place;

use drops::{Drop, Drops};
use handshakes::Source;
use keys::Keys;
use noise::Message;
use peer::Peer;
use peers::Peers;
use queue::Queue;
use rng::Rng;
use sessions::Sessions;
use snapshot::{PeerSnapshot, Snapshot};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;
use tunnelled::Tunnelled;

pub(crate) fn public_key(private: &PrivateKey) -> [u8; 32] {
    noise::public_key(private)
}

/// WireGuard state machine of one lane, for all peers.
pub(crate) struct Engine {
    local: Local,
    clock: Clock,
    rng: Rng,
    keys: Keys,
    peers: Peers,
    sessions: Sessions,
    /// Tentative sessions, oldest first: sessions that sent a response and wait for the first data
    /// message. The list may still contain sessions that were confirmed or removed.
    tentative: VecDeque<SessionId>,
    /// The session for which each client port was opened.
    ports: BTreeMap<PortId, SessionId>,
    next_port: u32,
    /// Names of this cluster's live gateway replicas, sorted.
    replicas: Vec<String>,
    /// Prefixes that are routed into tunnels. No endpoint may be in them.
    tunnelled: Tunnelled,
    queue: Queue,
    /// Indices of the peers that have both queued packets and a usable session.
    awake: BTreeSet<u16>,
    drops: Drops,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
    next_timeout: Instant,
    /// Timestamp of the last PING, in nanoseconds since the Unix epoch.
    last_sent: i128,
    /// Whether a message with an unknown receiver index was handled since the last call of
    /// [`Engine::handle_timeout`]. Only the first of these messages may trigger a handshake.
    unknown_receiver_handled: bool,
    /// Health of this cluster's nodes; `None` until the shell reports it.
    nodes: Option<Nodes>,
    /// The node on which this replica runs; `None` until the shell reports it.
    place: Option<Place>,
    /// Whether some nodes of this cluster still drop packets from this replica. See
    /// [`Engine::set_standby`].
    standby: bool,
    /// Time of the first call of [`Engine::leave`]; `None` before.
    leaving: Option<Instant>,
    drained: bool,
}

impl Engine {
    /// Creates an engine without peers. `seed` is 32 random bytes from the operating system.
    pub(crate) fn new(local: Local, seed: [u8; 32], clock: Clock) -> Self {
        let mut rng = Rng::new(seed);

        Self {
            local,
            keys: Keys::new(rng.next_u64(), clock.instant),
            rng,
            peers: Peers::default(),
            sessions: Sessions::default(),
            tentative: VecDeque::new(),
            ports: BTreeMap::new(),
            next_port: PortId::LISTEN.0 + 1,
            replicas: Vec::new(),
            tunnelled: Tunnelled::default(),
            queue: Queue::default(),
            awake: BTreeSet::new(),
            drops: Drops::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            next_timeout: clock.instant,
            clock,
            last_sent: 0,
            unknown_receiver_handled: false,
            nodes: None,
            place: None,
            standby: false,
            leaving: None,
            drained: false,
        }
    }

    /// Replaces the set of peers. A peer with unchanged keys, cluster id and role keeps its
    /// sessions.
    pub(crate) fn set_peers(&mut self, peers: Vec<PeerConfig>, now: Instant) {
        let configured: BTreeSet<u16> = peers.iter().map(|peer| peer.index).collect();
        let gone: Vec<u16> = self
            .peers
            .indices()
            .filter(|index| !configured.contains(index))
            .collect();

        self.change_peers(peers, &gone, now);
    }

    /// Removes the peers with the indices `gone`, then adds or replaces `peers`. Other peers stay.
    pub(crate) fn change_peers(&mut self, peers: Vec<PeerConfig>, gone: &[u16], now: Instant) {
        for index in gone {
            self.remove_peer(*index);
        }
        let mut are_keys_kept = gone.is_empty();
        for config in peers {
            are_keys_kept &= self.set_peer(config, now);
        }

        if !are_keys_kept {
            let used: BTreeSet<_> = self.peers.iter().map(|peer| peer.local_key).collect();
            self.keys.retain(|public| used.contains(public));
        }
        self.next_timeout = self.next_timeout.min(now);
    }

    /// Adds or replaces a peer. Returns whether the peer keeps its sessions, and thus its keys.
    fn set_peer(&mut self, config: PeerConfig, now: Instant) -> bool {
        let index = config.index;
        let kept = self
            .peers
            .get_mut(index)
            .is_some_and(|peer| peer.update(&config, now));
        if kept {
            let peer = self.peers.get_mut(index).into_iter();
            for id in peer.flat_map(|peer| &peer.sessions) {
                if let Some(session) = self.sessions.get_mut(*id) {
                    session.set_mtu(config.mtu, now);
                }
            }
            return true;
        }

        let before = self.peers.get(index).map(|peer| peer.connection.state);
        self.remove_peer(index);
        let local_key = self.keys.add(&config.local_private_key);
        let mut peer = Peer::new(config, local_key, now);
        if before.is_some_and(|before| peer.connection.replace(before)) {
            self.events.push_back(peer.connection.event(index));
        }
        if let Some(client) = &mut peer.client {
            client.endpoints.set_tunnelled(self.tunnelled.clone());
        }
        self.peers.insert(peer);

        false
    }

    fn remove_peer(&mut self, index: u16) {
        let sessions = self.peers.get(index).map(|peer| peer.sessions.clone());
        for id in sessions.into_iter().flatten() {
            self.remove_session(id);
        }
        self.peers.remove(index);
        self.queue.remove(index, &mut self.drops);
    }

    /// Sets the names of this cluster's live gateway replicas. These replicas share the
    /// single-session peers (upstream Liqo and plain WireGuard), each of which has a session with
    /// one replica. If the list is empty, this replica serves all of these peers. If the list
    /// contains only other replicas, this replica serves none. The shell calls this before the
    /// first [`Engine::set_peers`].
    pub(crate) fn set_replicas(&mut self, mut replicas: Vec<String>, now: Instant) {
        replicas.sort_unstable();
        replicas.dedup();
        if replicas == self.replicas {
            return;
        }

        self.replicas = replicas;
        for index in self.peers.indices().collect::<Vec<_>>() {
            self.maintain_client(index, now);
        }
    }

    /// Sets the kind of a peer in a lane other than the first. Such a lane has no session with a
    /// peer of unknown kind, so it cannot learn the kind from probes.
    pub(crate) fn set_kind(&mut self, index: u16, kind: Kind, now: Instant) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        if !self.local.lane.is_first() && peer.kind != kind {
            peer.kind = kind;
            self.refresh(index);
            self.maintain_client(index, now);
        }
    }

    /// Handles the result of a DNS lookup: the addresses of `host`, an endpoint of `peer`.
    pub(crate) fn handle_resolved(
        &mut self,
        peer: u16,
        host: &str,
        addresses: Vec<SocketAddr>,
        now: Instant,
    ) {
        let client = self.peers.get_mut(peer).and_then(|p| p.client.as_mut());
        if let Some(client) = client {
            let refused = client.handle_resolved(host, addresses, now);
            for _ in 0..refused {
                self.drops.count(Drop::EndpointInsideTunnel);
            }
            self.maintain_client(peer, now);
        }
    }

    /// Starts the handshake for which the shell has opened the socket of `port`.
    pub(crate) fn handle_port_opened(&mut self, port: PortId, now: Instant) {
        self.start_handshake(port, now);
    }

    /// Handles one received datagram. Writes an inner packet to `out`, which must be at least as
    /// long as the datagram.
    #[inline]
    pub(crate) fn handle_datagram(
        &mut self,
        port: PortId,
        from: SocketAddr,
        datagram: &mut [u8],
        out: &mut [u8],
        now: Instant,
    ) -> Received {
        let source = Source { port, from };
        match noise::classify(datagram) {
            Some(Message::Data(index)) => {
                return self.handle_data(source, index, datagram, out, now);
            }
            Some(Message::Initiation | Message::Response(_) | Message::Cookie(_))
                if self.tunnelled.contains(from) =>
            {
                self.drops.count(Drop::EndpointInsideTunnel);
            }
            Some(Message::Initiation) => self.handle_initiation(source, datagram, now),
            Some(Message::Response(index)) => self.handle_response(index, datagram, now),
            Some(Message::Cookie(index)) => self.handle_cookie(index, datagram, now),
            None => self.drops.count(Drop::Malformed),
        }

        Received::Nothing
    }

    /// Handles an initiation that another lane received and verified. `local` is the local public
    /// key that the initiation is for.
    pub(crate) fn handle_forwarded_initiation(
        &mut self,
        local: [u8; 32],
        from: SocketAddr,
        datagram: &[u8],
        now: Instant,
    ) {
        let port = PortId::LISTEN;
        self.handle_verified(local, Source { port, from }, datagram, now);
    }

    /// Returns the next datagram that the engine itself sends: a handshake, keepalive or probe
    /// message.
    pub(crate) fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    pub(crate) fn lane(&self) -> LaneId {
        self.local.lane
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the state for `gateway status` and metrics.
    pub(crate) fn snapshot(&self, now: Instant) -> Snapshot {
        Snapshot {
            cluster_id: self.local.cluster_id.clone(),
            replica: self.local.replica.clone(),
            leaving: self.leaving.is_some(),
            peers: self
                .peers
                .iter()
                .map(|p| self.peer_snapshot(p, now))
                .collect(),
            drops: self.drops.iter().filter(|(_, count)| *count > 0).collect(),
        }
    }

    fn peer_snapshot(&self, peer: &Peer, now: Instant) -> PeerSnapshot {
        let cluster_id = &peer.config.cluster_id;
        let chosen = replicas::serves(&self.local.replica, &self.replicas, cluster_id);

        PeerSnapshot {
            index: peer.config.index,
            cluster_id: cluster_id.clone(),
            role: match peer.config.role {
                Role::Server => "server",
                Role::Client { .. } => "client",
            },
            kind: peer.kind,
            version: peer.version.clone(),
            served: self.local.lane.is_first() && chosen
                || peer.kind == Kind::Ours
                || peer.client.is_none(),
            connection: peer.connection.state,
            latency: peer.connection.latency,
            queued_bytes: self.queue.bytes(peer.config.index),
            sessions: peer
                .sessions
                .iter()
                .filter_map(|id| self.sessions.get(*id))
                .map(|session| session.snapshot(self.local.lane, now))
                .collect(),
        }
    }

    /// Sets the health of this cluster's nodes, which PONGs report to the peers.
    pub(crate) fn set_nodes(&mut self, nodes: Nodes) {
        self.nodes = Some(nodes);
    }

    /// Sets the node on which this replica runs.
    pub(crate) fn set_place(&mut self, place: Option<Place>) {
        self.place = place;
    }

    /// Sets whether some nodes of this cluster still drop packets from this replica. A node drops
    /// the packets of a new replica until the node has discovered the replica. Meanwhile this
    /// replica advertises itself as leaving, so that peers prefer other replicas.
    pub(crate) fn set_standby(&mut self, standby: bool, now: Instant) {
        if self.standby != standby {
            self.standby = standby;
            self.ping_all(now);
        }
    }

    /// Starts a graceful stop. PINGs announce the stop, so that the peers move their flows to other
    /// replicas. When all flows have moved, the engine emits [`Event::Drained`].
    pub(crate) fn leave(&mut self, now: Instant) {
        if self.leaving.is_some() {
            return;
        }

        self.leaving = Some(now);
        for session in self.sessions.iter_mut() {
            session.traffic.quiet_ticks = 0;
        }
        self.ping_all(now);
    }

    /// Makes a PING due now on every session, to advertise a change of this replica's state.
    fn ping_all(&mut self, now: Instant) {
        for session in self.sessions.iter_mut() {
            session.liveness.ping_now(now);
        }
        self.next_timeout = self.next_timeout.min(now);
    }

    /// Returns a random slot that no session of this lane uses and that `is_suitable` accepts. The
    /// function draws slots until one is accepted, so it is slow if `is_suitable` accepts less than
    /// one in 256 slots.
    fn slot(&mut self, is_suitable: impl Fn(u32) -> bool) -> u32 {
        loop {
            let slot = self.rng.next_index();
            if is_suitable(slot) && self.sessions.is_slot_free(slot) {
                return slot;
            }
        }
    }

    /// Returns a random free slot for an initiation to the public key `remote`. The slot carries
    /// the hint of that key (`engine/index.rs`), unless [`index::SLOT_TRIES`] draws find no free
    /// slot with the hint.
    fn hinted_slot(&mut self, remote: &[u8; 32], is_suitable: impl Fn(u32) -> bool) -> u32 {
        let hint = index::hint(remote);
        for _ in 0..index::SLOT_TRIES {
            let drawn = self.slot(&is_suitable);
            let slot = index::with_hint(drawn, hint);
            if self.sessions.is_slot_free(slot) {
                return slot;
            }
        }

        self.slot(is_suitable)
    }
}

#[cfg(test)]
mod tests;
