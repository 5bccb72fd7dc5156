//! Values that engine and shell exchange.

pub(crate) use super::handshake_evidence::HandshakeEvidence;
pub(crate) use super::key::PrivateKey;
pub(crate) use super::lanes::LaneId;
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

/// Identifies a session; never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionId {
    pub(super) place: u32,
    pub(super) generation: u32,
}

/// Readings of the monotonic and the wall clock at the same time. The engine derives every later wall time from this
/// pair, so that a step of the wall clock changes no round-trip time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) instant: Instant,
    /// Time since the Unix epoch.
    pub(crate) unix: Duration,
}

/// Identity of this replica, which its probes advertise.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    /// This cluster's id.
    pub(crate) cluster_id: String,
    /// Unique among the cluster's gateways.
    pub(crate) replica: String,
    /// The lane of this engine.
    pub(crate) lane: LaneId,
    pub(crate) version: String,
}

/// The side that opens the sessions of a peering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The peer opens them, towards our listening port.
    Server,
    /// We open them.
    Client {
        /// Host names or IP literals of the peer, in order of preference.
        addresses: Vec<String>,
        port: u16,
    },
}

/// One remote cluster, as the desired state has it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PeerConfig {
    /// Index in MAC addresses and tables.
    pub(crate) index: u16,
    /// The remote cluster's id.
    pub(crate) cluster_id: String,
    /// Several peerings may share one.
    pub(crate) local_private_key: PrivateKey,
    pub(crate) public_key: [u8; 32],
    pub(crate) role: Role,
    /// Upper bound of the inner MTU, in bytes.
    pub(crate) mtu: u16,
    /// The original prefixes of the remote cluster: inner source addresses of the peer.
    pub(crate) allowed: Vec<Ipv4Net>,
}

/// Result of a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// The first `len` bytes of `out` are an IPv4 packet that `peer` may send.
    Packet {
        /// Index of the peer.
        peer: u16,
        /// In bytes.
        len: usize,
    },
    /// A message for the engine, or a counted drop.
    Nothing,
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transmit {
    pub(crate) port: PortId,
    pub(crate) to: SocketAddr,
    /// The UDP payload.
    pub(crate) datagram: Vec<u8>,
    /// Set the DF bit: the datagram measures the path MTU.
    pub(crate) dont_fragment: bool,
}

/// A packet that waited for a session, sealed by [`super::Engine::poll_queued`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) port: PortId,
    pub(crate) to: SocketAddr,
    /// Length of the datagram in bytes.
    pub(crate) len: usize,
}

/// Something the shell must act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Open a UDP socket on any free port, then call [`super::Engine::handle_port_opened`]. A failure needs no call:
    /// the engine requests another port later.
    OpenPort(PortId),
    /// Close the port's socket; nothing is sent from it any more.
    ClosePort(PortId),
    /// Resolve `host`, then call [`super::Engine::handle_resolved`]. A failure needs no call: the engine requests
    /// another lookup later.
    Resolve {
        /// Index of the peer.
        peer: u16,
        host: String,
        /// Port of the resulting addresses.
        port: u16,
    },
    /// The state for the peer's `Connection` object. Emitted at every change, and every 10 s while connected.
    Connection {
        /// Index of the peer.
        peer: u16,
        state: ConnectionState,
        /// Smoothed round-trip time of probes.
        latency: Option<Duration>,
    },
    /// The peer's kind, and the health of its nodes as its replicas report it. Emitted at every change.
    Remote {
        /// Index of the peer.
        peer: u16,
        kind: Kind,
        /// The worst report of its replicas; `None` if one reports nothing.
        nodes: Option<Nodes>,
    },
    /// Handshake messages received from the peer while there is no connection. Emitted at every change.
    HandshakeEvidence {
        /// Index of the peer.
        peer: u16,
        evidence: HandshakeEvidence,
    },
    /// An initiation of a single-session peer, for the first lane: this lane is another.
    Initiation {
        /// The public half of our key, for which mac1, cookie and limits were checked.
        local: [u8; 32],
        from: SocketAddr,
        /// The UDP payload.
        datagram: Vec<u8>,
    },
    /// Whether this lane can send packets to the peer, for the overlay's heartbeat to the nodes.
    Reachable {
        /// Index of the peer.
        peer: u16,
        /// At least one session is usable.
        reachable: bool,
    },
    /// After [`super::Engine::leave`]: all peers that can move their flows have moved them.
    Drained,
}

/// Health of a cluster's nodes, as a replica's PONGs report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Nodes {
    /// Ready nodes.
    pub(crate) all: u32,
    /// Ready nodes that the overlay does not connect with the replica.
    pub(crate) cut: u32,
    /// Ready nodes whose route agent was stopped and may restart.
    pub(crate) resting: u32,
    /// Whether all of them reply to the checks of the peers' nodes.
    pub(crate) reflect: bool,
}

/// State of the connection to a remote cluster, derived from liveness probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum ConnectionState {
    /// No PONG has arrived yet.
    Connecting,
    /// PONGs arrive.
    Connected,
    /// PONGs arrived once, and no longer do.
    Error,
}

/// Implementation that a peer runs, derived from its probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// No probe has arrived; perhaps plain WireGuard.
    Unknown,
    /// This project: a session per slot, and one for each pair of replicas.
    Ours,
    /// Upstream Liqo: one session.
    Upstream,
}
