//! Types of the values that engine and shell exchange.

pub(crate) use super::handshake_evidence::HandshakeEvidence;
pub(crate) use super::key::PrivateKey;
pub(crate) use super::lanes::LaneId;
use ipnet::Ipv4Net;
use serde::Serialize;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Identifies a UDP socket of this process. It is not the port number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub(crate) struct PortId(pub(crate) u32);

impl PortId {
    /// The listening port, which is open as long as the process runs. All other ports are client
    /// ports. The shell opens and closes them when the engine emits [`Event::OpenPort`] and
    /// [`Event::ClosePort`].
    pub(crate) const LISTEN: Self = Self(0);
}

/// Identifies a session. The id of a removed session is not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionId {
    pub(super) place: u32,
    pub(super) generation: u32,
}

/// Readings of the monotonic and the wall clock at the same time. The engine derives every later
/// wall time from this pair, so that a step of the wall clock changes no round-trip time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) instant: Instant,
    /// Time since the Unix epoch.
    pub(crate) unix: Duration,
}

/// Identity of this replica, which its probes advertise.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    pub(crate) cluster_id: String,
    /// Name of this replica, unique among the gateways of the cluster.
    pub(crate) replica: String,
    pub(crate) lane: LaneId,
    pub(crate) version: String,
    /// Interval of liveness probes on a session without traffic.
    pub(crate) idle_probe_interval: Duration,
}

/// The role of this cluster in a peering. The client opens the sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The peer opens the sessions, to the listening port of this gateway.
    Server,
    /// This gateway opens the sessions.
    Client {
        /// Host names or IP literals of the peer, in order of preference.
        addresses: Vec<String>,
        port: u16,
    },
}

/// Desired configuration of one remote cluster.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PeerConfig {
    /// Identifies the peer in the tables of the eBPF programs, and in the MAC addresses of the
    /// frames on the TAP.
    pub(crate) index: u16,
    pub(crate) cluster_id: String,
    /// The private key of this cluster for the peering. Several peerings may share one key.
    pub(crate) local_private_key: PrivateKey,
    pub(crate) public_key: [u8; 32],
    pub(crate) role: Role,
    /// Upper bound of the inner MTU, in bytes.
    pub(crate) mtu: u16,
    /// Original prefixes of the remote cluster, before remapping. The source addresses of the
    /// peer's packets must be in these prefixes.
    pub(crate) allowed: Vec<Ipv4Net>,
}

/// Result of [`super::Engine::handle_datagram`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// The first `len` bytes of `out` are an IPv4 packet that `peer` is allowed to send.
    Packet { peer: u16, len: usize },
    /// The engine has handled the message itself, or has dropped and counted it.
    Nothing,
}

/// A datagram for the shell to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transmit {
    pub(crate) port: PortId,
    pub(crate) to: SocketAddr,
    /// The UDP payload.
    pub(crate) datagram: Vec<u8>,
    /// Whether to set the DF bit, because the datagram measures the path MTU.
    pub(crate) dont_fragment: bool,
}

/// A packet that waited for a session, encrypted by [`super::Engine::poll_queued`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) port: PortId,
    pub(crate) to: SocketAddr,
    /// Length of the datagram in bytes.
    pub(crate) len: usize,
}

/// A request or a report to the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Open a UDP socket on any free port, then call [`super::Engine::handle_port_opened`]. A
    /// failure needs no call: the engine requests another port later.
    OpenPort(PortId),
    /// Close the socket of the port. The engine no longer sends from it.
    ClosePort(PortId),
    /// Resolve `host`, then call [`super::Engine::handle_resolved`]. A failure needs no call: the
    /// engine requests another lookup later.
    Resolve {
        peer: u16,
        host: String,
        /// UDP port to combine with the resolved addresses.
        port: u16,
    },
    /// Reports the state for the peer's `Connection` object. The engine emits this event at every
    /// change, and every 10 s while connected.
    Connection {
        peer: u16,
        state: ConnectionState,
        /// Smoothed round-trip time of probes.
        latency: Option<Duration>,
    },
    /// Reports a change of the peer's kind, or of the health of its nodes.
    Remote {
        peer: u16,
        kind: Kind,
        /// Worst health that the peer's replicas report; `None` if a replica does not report it.
        nodes: Option<Nodes>,
    },
    /// Reports a change of the evidence from handshake messages of a peer that is not connected.
    HandshakeEvidence {
        peer: u16,
        evidence: HandshakeEvidence,
    },
    /// An initiation of a single-session peer (upstream Liqo or plain WireGuard). The shell
    /// forwards it to the first lane, which has the sessions of these peers.
    Initiation {
        /// Public key of the local key that the initiation is for. The lane has already checked
        /// mac1, cookie and limits.
        local: [u8; 32],
        from: SocketAddr,
        /// The UDP payload.
        datagram: Vec<u8>,
    },
    /// Reports whether this lane can send packets to the peer. The gateway advertises this to the
    /// nodes in its replies to overlay probes.
    Reachable {
        peer: u16,
        /// Whether at least one session is usable.
        reachable: bool,
    },
    /// Reports that the peers have moved their flows after [`super::Engine::leave`]. The engine
    /// also emits this event when the time limit for leaving has passed.
    Drained,
}

/// Health of a cluster's nodes, as a replica's PONGs report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Nodes {
    /// Number of ready nodes.
    pub(crate) all: u32,
    /// Number of ready nodes that cannot exchange overlay packets with the replica.
    pub(crate) cut: u32,
    /// Number of ready nodes whose route agent was stopped or has not sent a probe yet.
    pub(crate) resting: u32,
    /// Whether the echo responders of all ready nodes reply to end-to-end checks of remote nodes.
    /// Nodes that have not sent an overlay probe yet are ignored.
    // The serialized key is `reflect` for compatibility with earlier versions.
    #[serde(rename = "reflect")]
    pub(crate) echo_responder: bool,
}

/// State of the connection to a remote cluster, derived from liveness probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum ConnectionState {
    /// No PONG has arrived yet.
    Connecting,
    /// PONGs arrive.
    Connected,
    /// PONGs arrived earlier, but no longer arrive.
    Error,
}

/// Implementation that a peer runs, derived from its probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// No probe has arrived yet. The peer may be plain WireGuard.
    Unknown,
    /// A gateway of this project, with a session for each pair of replicas and lanes.
    Ours,
    /// A gateway of upstream Liqo, with one session.
    Upstream,
}
