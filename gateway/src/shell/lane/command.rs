//! How control and loop talk: commands in, notices out.

use super::stats::Stats;
use crate::engine::snapshot::Snapshot;
use crate::engine::{ConnectionState, Kind, LaneId, Nodes, PeerConfig, Signs};
use ipnet::Ipv4Net;
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Commands that may wait, as the answers to all notices of a lane at once.
const COMMANDS_MAX: usize = 4096;

/// Notices of all lanes that may wait: some of each peer.
pub(crate) const NOTICES_MAX: usize = 8192;

/// What control asks of a loop.
#[derive(Clone)]
pub(crate) enum Command {
    /// Serve these peers, and no others.
    Peers {
        /// All peers.
        peers: Vec<PeerConfig>,
        /// Cluster ids and indices, sorted by id, as the heartbeat tells them.
        ranks: Vec<(String, u16)>,
        /// The prefixes under which they are seen here.
        tunnelled: Vec<Ipv4Net>,
    },
    /// These are the live replicas of this cluster.
    Replicas(Vec<String>),
    /// How this cluster's nodes fare, for the peers.
    Nodes(Nodes),
    /// An end point's addresses.
    Resolved {
        /// Index of the peer.
        peer: u16,
        /// The name that was looked up.
        host: String,
        /// What it stands for.
        addresses: Vec<SocketAddr>,
    },
    /// What peers run, by their indices, as the first lane has found out.
    Kinds(Vec<(u16, Kind)>),
    /// An initiation that another lane has got, for the first.
    Initiation {
        /// The public half of our key that it is for.
        local: [u8; 32],
        /// Who sent it.
        from: SocketAddr,
        /// The UDP payload.
        datagram: Vec<u8>,
    },
    /// Whether this cluster's nodes do not know this replica yet.
    Standby(bool),
    /// Tell peers and nodes to move their flows away.
    Leave,
    /// Tell what there is to see.
    Report(mpsc::SyncSender<Report>),
    /// End the loop.
    Stop,
}

/// A notice, and the lane that it is of.
pub(crate) type Told = (LaneId, Notice);

/// What a loop tells control.
#[derive(Debug)]
pub(crate) enum Notice {
    /// Look up a name.
    Resolve {
        /// Index of the peer.
        peer: u16,
        /// The name.
        host: String,
        /// The port that belongs into the addresses.
        port: u16,
    },
    /// A peer's connection changed, or was measured again.
    Connection {
        /// Index of the peer.
        peer: u16,
        /// Its state.
        state: ConnectionState,
        /// Round-trip time.
        latency: Option<Duration>,
    },
    /// What a peer runs, or how its nodes fare, is another than before.
    Remote {
        /// Index of the peer.
        peer: u16,
        /// What it runs.
        kind: Kind,
        /// How its nodes fare, if it tells.
        nodes: Option<Nodes>,
    },
    /// What comes of a peer's handshakes, while there is no connection, is another than before.
    Signs {
        /// Index of the peer.
        peer: u16,
        /// What comes.
        signs: Signs,
    },
    /// An initiation for the first lane: this is another.
    Initiation {
        /// The public half of our key that it is for.
        local: [u8; 32],
        /// Who sent it.
        from: SocketAddr,
        /// The UDP payload.
        datagram: Vec<u8>,
    },
    /// All peers have moved away.
    Drained,
}

/// The loop at one moment.
#[derive(Debug)]
pub(crate) struct Report {
    /// Which it is.
    pub(crate) lane: LaneId,
    /// Peers, sessions, drops.
    pub(crate) engine: Snapshot,
    /// Frames and datagrams.
    pub(crate) stats: Stats,
    /// Open UDP ports.
    pub(crate) ports: usize,
}

/// Where the commands for one loop are sent.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    commands: mpsc::SyncSender<Command>,
    wake: Arc<EventFd>,
}

/// The loop hangs or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet loop does not answer")]
pub(crate) struct Hung;

/// Where a loop gets its commands.
pub(crate) struct Inbox {
    pub(super) commands: mpsc::Receiver<Command>,
    /// Readable when there may be some.
    pub(super) wake: Arc<EventFd>,
}

/// Creates the two ends.
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
    /// Returns [`Hung`] if the loop takes no more.
    pub(crate) fn send(&self, command: Command) -> Result<(), Hung> {
        self.commands.try_send(command).map_err(|_| Hung)?;
        self.wake();
        Ok(())
    }

    /// Has the loop look at everything.
    pub(super) fn wake(&self) {
        // EAGAIN: the counter is full, so the loop is being woken already.
        let _ = self.wake.write(1);
    }
}
