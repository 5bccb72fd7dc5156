//! The values that cross the border between engine and shell.

pub(crate) use super::key::PrivateKey;
pub(crate) use super::lanes::LaneId;
pub(crate) use super::signs::Signs;
use ipnet::Ipv4Net;
use serde::Serialize;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// One UDP source port of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub(crate) struct PortId(pub(crate) u32);

impl PortId {
    /// The listening port, open as long as the process lives. All others are
    /// client ports, opened and closed by [`Event`]s.
    pub(crate) const LISTEN: Self = Self(0);
}

/// Names a session until it ends; never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionId {
    pub(super) place: u32,
    pub(super) generation: u32,
}

/// A reading of the monotonic clock together with the wall clock's at the
/// same time: the engine derives every later wall time from this pair, so that
/// a step of the wall clock never upsets a round-trip time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The monotonic reading.
    pub(crate) instant: Instant,
    /// Time since the Unix epoch at `instant`.
    pub(crate) unix: Duration,
}

/// What a replica tells its peers about itself.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    /// This cluster's id.
    pub(crate) cluster_id: String,
    /// This replica's name, unique among the cluster's gateways.
    pub(crate) replica: String,
    /// Which of the replica's lanes this engine is in.
    pub(crate) lane: LaneId,
    /// This program's version.
    pub(crate) version: String,
}

/// Who opens the sessions of a peering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The peer does, towards the listening port.
    Server,
    /// We do, towards one of `addresses` (host names or literals).
    Client {
        /// The peer's end points, in order of preference.
        addresses: Vec<String>,
        /// The peer's UDP port.
        port: u16,
    },
}

/// One remote cluster, as the desired state has it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PeerConfig {
    /// The peer's number in MAC addresses and tables.
    pub(crate) index: u16,
    /// The remote cluster's id.
    pub(crate) cluster_id: String,
    /// Our static key for this peering; several peerings may share one.
    pub(crate) local_private_key: PrivateKey,
    /// The remote cluster's static key.
    pub(crate) public_key: [u8; 32],
    /// Who opens the sessions.
    pub(crate) role: Role,
    /// Upper bound of the inner MTU, in bytes.
    pub(crate) mtu: u16,
    /// The original prefixes that the peer may send from.
    pub(crate) allowed: Vec<Ipv4Net>,
}

/// What became of a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// The first `len` bytes of `out` are an IPv4 packet that `peer` may send.
    Packet {
        /// Index of the peer.
        peer: u16,
        /// Length of the packet in bytes.
        len: usize,
    },
    /// It was the engine's own business, or a counted drop.
    Nothing,
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transmit {
    /// Where it leaves.
    pub(crate) port: PortId,
    /// Where it goes.
    pub(crate) to: SocketAddr,
    /// The UDP payload.
    pub(crate) datagram: Vec<u8>,
    /// It measures the path: it must arrive whole or not at all.
    pub(crate) dont_fragment: bool,
}

/// A packet that waited for a session, sealed by [`super::Engine::poll_queued`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    /// Where it leaves.
    pub(crate) port: PortId,
    /// Where it goes.
    pub(crate) to: SocketAddr,
    /// Length of the datagram in bytes.
    pub(crate) len: usize,
}

/// Something the shell must act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Open a UDP socket on any free port, then call
    /// [`super::Engine::handle_port_opened`]. A port that cannot be opened
    /// needs no answer: the engine asks for another one later.
    OpenPort(PortId),
    /// Close the port's socket; nothing is sent from it any more.
    ClosePort(PortId),
    /// Look `host` up, then call [`super::Engine::handle_resolved`]. A failed
    /// lookup needs no answer: the engine asks again.
    Resolve {
        /// Index of the peer.
        peer: u16,
        /// The name to look up.
        host: String,
        /// The port that belongs into the addresses.
        port: u16,
    },
    /// The state that the peer's `Connection` object should show. Comes at every
    /// change, and with a fresh latency every 10 s while connected.
    Connection {
        /// Index of the peer.
        peer: u16,
        /// The new state.
        state: ConnectionState,
        /// Round-trip time of the last answered probe.
        latency: Option<Duration>,
    },
    /// What the peer runs, and how its nodes fare by what its replicas tell. Comes at every change.
    Remote {
        /// Index of the peer.
        peer: u16,
        /// What it runs.
        kind: Kind,
        /// The worst of what its replicas tell; `None` if one tells nothing.
        nodes: Option<Nodes>,
    },
    /// What came of the peer's handshakes while there is no connection. Comes at every change.
    Signs {
        /// Index of the peer.
        peer: u16,
        /// What came.
        signs: Signs,
    },
    /// An initiation of a peer that has one session only, for the first lane: this is another.
    Initiation {
        /// The public half of our key that it is for, which was looked for already; a proof of
        /// address was asked for where that was due.
        local: [u8; 32],
        /// Who sent it.
        from: SocketAddr,
        /// The UDP payload.
        datagram: Vec<u8>,
    },
    /// Whether this lane can carry packets to the peer: what the overlay's
    /// heartbeat tells the nodes.
    Reachable {
        /// Index of the peer.
        peer: u16,
        /// There is a session to send on.
        reachable: bool,
    },
    /// After [`super::Engine::leave`]: the peers that could move their flows
    /// have done so.
    Drained,
}

/// How a replica's nodes fare, as its probes tell the peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Nodes {
    /// The cluster's ready nodes.
    pub(crate) all: u32,
    /// Those of them that the replica and the overlay do not connect.
    pub(crate) cut: u32,
    /// Those of them whose route agent was asked to stop, and may come back.
    pub(crate) resting: u32,
    /// Whether all of them answer the checks of the peers' nodes.
    pub(crate) reflect: bool,
}

/// State of the connection to a remote cluster, by its liveness probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum ConnectionState {
    /// No probe was answered yet.
    Connecting,
    /// Probes are answered.
    Connected,
    /// Probes were answered once, and are no longer.
    Error,
}

/// Which implementation a peer runs, as its probes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// No probe seen yet; plain WireGuard perhaps.
    Unknown,
    /// This project: sessions are per slot, one for each pair of replicas.
    Ours,
    /// Upstream Liqo: one session.
    Upstream,
}
