//! The messages between `control` and the lanes: a lane receives commands and sends notices.

use super::stats::Stats;
use crate::engine::snapshot::Snapshot;
use crate::engine::{ConnectionState, HandshakeEvidence, Kind, LaneId, Nodes, Place};
use crate::planned::PeerChanges;
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Maximum number of commands in the queue of a lane.
const COMMANDS_MAX: usize = 4096;

/// Maximum number of notices in the queue of `control`. All lanes share the queue, which has space
/// for several notices of each peer.
pub(crate) const NOTICES_MAX: usize = 8192;

/// A command from `control` to a lane.
#[derive(Clone)]
pub(crate) enum Command {
    /// Changes the peers.
    Peers(PeerChanges),
    /// Replaces the names of this cluster's live gateway replicas.
    Replicas(Vec<String>),
    /// Sets the health of this cluster's nodes, which the lane advertises to the peers.
    Nodes(Nodes),
    /// Sets the node on which this replica runs.
    Place(Option<Place>),
    /// Provides the addresses of a peer's endpoint, which [`Notice::Resolve`] requested by name.
    Resolved {
        /// Index of the peer.
        peer: u16,
        host: String,
        addresses: Vec<SocketAddr>,
    },
    /// Sets the kinds of peers (upstream Liqo or this project), which only the first lane detects.
    Kinds(Vec<(u16, Kind)>),
    /// Forwards a handshake initiation, which another lane received, to the first lane.
    Initiation {
        /// The local public key to which the initiation is addressed.
        local: [u8; 32],
        from: SocketAddr,
        /// The UDP payload.
        datagram: Vec<u8>,
    },
    /// Sets whether the lane advertises to the peers that they should prefer other replicas.
    Standby(bool),
    /// Advertises to peers and nodes that this replica stops.
    Leave,
    /// Requests a report, which the lane sends to this channel.
    Report(mpsc::SyncSender<Report>),
    /// Ends the packet loop.
    Stop,
}

/// A notice and the lane that sent it.
pub(crate) type LaneNotice = (LaneId, Notice);

/// A notice from a lane to `control`.
#[derive(Debug)]
pub(crate) enum Notice {
    /// The engine needs the addresses of a peer's endpoint, which is given by name.
    Resolve {
        /// Index of the peer.
        peer: u16,
        host: String,
        /// UDP port of the endpoint. The lookup adds the port to each address.
        port: u16,
    },
    /// A peer's connection state changed, or its latency was measured.
    Connection {
        /// Index of the peer.
        peer: u16,
        state: ConnectionState,
        /// Round-trip time of the last probe; `None` if it is unknown.
        latency: Option<Duration>,
    },
    /// The kind of a peer (upstream Liqo or this project), or the health of its nodes, changed.
    Remote {
        /// Index of the peer.
        peer: u16,
        kind: Kind,
        /// The health of the peer's nodes; `None` if the peer does not advertise it.
        nodes: Option<Nodes>,
    },
    /// The evidence from handshake messages of a peer that is not connected has changed. The path
    /// check uses the evidence to find the cause.
    HandshakeEvidence {
        /// Index of the peer.
        peer: u16,
        evidence: HandshakeEvidence,
    },
    /// The lane received a handshake initiation that the first lane must handle.
    Initiation {
        /// The local public key to which the initiation is addressed.
        local: [u8; 32],
        from: SocketAddr,
        /// The UDP payload.
        datagram: Vec<u8>,
    },
    /// All peers use other replicas. The lane sends this notice after [`Command::Leave`].
    Drained,
}

/// The state of a lane, or the aggregated state of all lanes.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) lane: LaneId,
    /// The peers, sessions and drop counters of the engine.
    pub(crate) engine: Snapshot,
    /// The counters of frames and datagrams.
    pub(crate) stats: Stats,
    /// Number of open UDP ports.
    pub(crate) ports: usize,
}

/// The sending end of a lane's command queue.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    commands: mpsc::SyncSender<Command>,
    wake: Arc<EventFd>,
}

/// The lane does not respond, or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet loop does not respond")]
pub(crate) struct Hung;

/// The receiving end of a lane's command queue.
pub(crate) struct Inbox {
    pub(super) commands: mpsc::Receiver<Command>,
    /// Becomes readable when commands are sent.
    pub(super) wake: Arc<EventFd>,
}

/// Creates the two ends of a lane's command queue.
///
/// # Errors
///
/// Returns the kernel's error if the process has no free descriptors.
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

#[cfg(test)]
impl Inbox {
    /// Returns the next command, if there is one.
    pub(in crate::shell) fn poll(&self) -> Option<Command> {
        self.commands.try_recv().ok()
    }
}

impl Handle {
    /// Sends a command without waiting.
    ///
    /// # Errors
    ///
    /// Returns [`Hung`] if the queue is full or the lane has ended.
    pub(crate) fn send(&self, command: Command) -> Result<(), Hung> {
        self.commands.try_send(command).map_err(|_| Hung)?;
        self.wake();
        Ok(())
    }

    /// Wakes one of the workers of the lane.
    pub(super) fn wake(&self) {
        // EAGAIN means that the counter has its maximum, so that an earlier wake-up is still
        // pending.
        let _ = self.wake.write(1);
    }
}
