//! The interface between control and the packet loops: commands in, notices out.

use super::stats::Stats;
use crate::engine::snapshot::Snapshot;
use crate::engine::{ConnectionState, HandshakeEvidence, Kind, LaneId, Nodes, PeerConfig};
use ipnet::Ipv4Net;
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Commands that may wait for a lane: a reply to each of its notices at once.
const COMMANDS_MAX: usize = 4096;

/// Notices of all lanes that may wait: several of each peer.
pub(crate) const NOTICES_MAX: usize = 8192;

/// A command for a packet loop.
#[derive(Clone)]
pub(crate) enum Command {
    /// Replace the peers.
    Peers {
        peers: Vec<PeerConfig>,
        /// Cluster ids and indices, sorted by id: the order in which the heartbeat lists peers.
        ranks: Vec<(String, u16)>,
        /// The remapped prefixes of the peers.
        tunnelled: Vec<Ipv4Net>,
    },
    /// Replace the live replicas of this cluster.
    Replicas(Vec<String>),
    /// Advertise the health of this cluster's nodes to the peers.
    Nodes(Nodes),
    /// The addresses of an endpoint's name.
    Resolved {
        /// Index of the peer.
        peer: u16,
        host: String,
        addresses: Vec<SocketAddr>,
    },
    /// The kinds of peers, by index, that the first lane has detected.
    Kinds(Vec<(u16, Kind)>),
    /// A handshake initiation that another lane received, for the first lane.
    Initiation {
        /// The local public key to which it is addressed.
        local: [u8; 32],
        from: SocketAddr,
        /// The UDP payload.
        datagram: Vec<u8>,
    },
    /// Advertise, or stop advertising, that peers should prefer other replicas.
    Standby(bool),
    /// Advertise to peers and nodes that this replica stops.
    Leave,
    /// Send a report.
    Report(mpsc::SyncSender<Report>),
    /// End the loop.
    Stop,
}

/// A notice and the lane that sent it.
pub(crate) type LaneNotice = (LaneId, Notice);

/// A notice of a packet loop to control.
#[derive(Debug)]
pub(crate) enum Notice {
    /// Look up a name.
    Resolve {
        /// Index of the peer.
        peer: u16,
        host: String,
        /// The port for the resulting addresses.
        port: u16,
    },
    /// A peer's connection changed, or its latency was measured.
    Connection {
        /// Index of the peer.
        peer: u16,
        state: ConnectionState,
        /// Round-trip time of a probe.
        latency: Option<Duration>,
    },
    /// A peer's kind, or the health of its nodes, changed.
    Remote {
        /// Index of the peer.
        peer: u16,
        kind: Kind,
        /// The health of its nodes, if it advertises that.
        nodes: Option<Nodes>,
    },
    /// The evidence from a peer's handshakes, while there is no connection, changed.
    HandshakeEvidence {
        /// Index of the peer.
        peer: u16,
        evidence: HandshakeEvidence,
    },
    /// A handshake initiation that only the first lane handles.
    Initiation {
        /// The local public key to which it is addressed.
        local: [u8; 32],
        from: SocketAddr,
        /// The UDP payload.
        datagram: Vec<u8>,
    },
    /// No peer uses this replica any more.
    Drained,
}

/// The state of a loop.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) lane: LaneId,
    /// Peers, sessions, drops.
    pub(crate) engine: Snapshot,
    /// Counters of frames and datagrams.
    pub(crate) stats: Stats,
    /// Open UDP ports.
    pub(crate) ports: usize,
}

/// Sends commands to one loop.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    commands: mpsc::SyncSender<Command>,
    wake: Arc<EventFd>,
}

/// The loop hangs or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet loop does not respond")]
pub(crate) struct Hung;

/// Receives the commands of one loop.
pub(crate) struct Inbox {
    pub(super) commands: mpsc::Receiver<Command>,
    /// Readable when there may be commands.
    pub(super) wake: Arc<EventFd>,
}

/// Creates the two ends of a loop's command queue.
///
/// # Errors
///
/// Returns the kernel's error if there are no descriptors left.
pub(crate) fn channel() -> Result<(Handle, Inbox), Errno> {
    let (commands, received) = mpsc::sync_channel(COMMANDS_MAX);
    let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
    let wake = Arc::new(EventFd::from_flags(flags)?);
    let handle = Handle {
        commands,
        wake: Arc::clone(&wake),
    };

    let inbox = Inbox {
        commands: received,
        wake,
    };

    Ok((handle, inbox))
}

impl Handle {
    /// Sends a command; never waits.
    ///
    /// # Errors
    ///
    /// Returns [`Hung`] if the queue is full or the loop has ended.
    pub(crate) fn send(&self, command: Command) -> Result<(), Hung> {
        self.commands.try_send(command).map_err(|_| Hung)?;
        self.wake();
        Ok(())
    }

    /// Wakes the loop.
    pub(super) fn wake(&self) {
        // EAGAIN: the counter is full, so the loop is being woken already.
        let _ = self.wake.write(1);
    }
}
