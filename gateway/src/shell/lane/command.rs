//! How control and loop talk: commands in, notices out.

use super::stats::Stats;
use crate::engine::snapshot::Snapshot;
use crate::engine::{ConnectionState, Kind, Nodes, PeerConfig, Signs};
use ipnet::Ipv4Net;
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Commands that may wait, as the answers to all notices at once; the loop takes
/// all of them at each wake-up.
const COMMANDS_MAX: usize = NOTICES_MAX;

/// Notices that may wait: two of each peer, and as many again.
pub(super) const NOTICES_MAX: usize = 4096;

/// How long [`Handle::report`] waits.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// What control asks of the loop.
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
    /// Whether this cluster's nodes do not know this replica yet.
    Standby(bool),
    /// Tell peers and nodes to move their flows away.
    Leave,
    /// Tell what there is to see.
    Report(mpsc::SyncSender<Report>),
    /// End the loop.
    Stop,
}

/// What the loop tells control.
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
    /// All peers have moved away.
    Drained,
}

/// The loop at one moment.
#[derive(Debug)]
pub(crate) struct Report {
    /// Peers, sessions, drops.
    pub(crate) engine: Snapshot,
    /// Frames and datagrams.
    pub(crate) stats: Stats,
    /// Open UDP ports.
    pub(crate) ports: usize,
}

/// Where commands are sent.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    commands: mpsc::SyncSender<Command>,
    wake: Arc<EventFd>,
}

/// The loop hangs or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet loop does not answer")]
pub(crate) struct Hung;

/// Creates the two ends, and what wakes the loop.
pub(super) fn channel() -> Result<(Handle, mpsc::Receiver<Command>, Arc<EventFd>), Errno> {
    let (commands, received) = mpsc::sync_channel(COMMANDS_MAX);
    let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
    let wake = Arc::new(EventFd::from_flags(flags)?);
    let handle = Handle {
        commands,
        wake: Arc::clone(&wake),
    };

    Ok((handle, received, wake))
}

impl Handle {
    /// Sends a command; never waits.
    ///
    /// # Errors
    ///
    /// Returns [`Hung`] if the loop takes no more.
    pub(crate) fn send(&self, command: Command) -> Result<(), Hung> {
        self.commands.try_send(command).map_err(|_| Hung)?;
        // EAGAIN: the counter is full, so the loop is being woken already.
        match self.wake.write(1) {
            Ok(_) | Err(Errno::EAGAIN) => Ok(()),
            Err(_) => Err(Hung),
        }
    }

    /// Asks for a report and waits for it, a second at most.
    ///
    /// # Errors
    ///
    /// Returns [`Hung`] if there is no answer.
    pub(crate) fn report(&self) -> Result<Report, Hung> {
        let (to, report) = mpsc::sync_channel(1);
        self.send(Command::Report(to))?;
        report.recv_timeout(REPORT_TIMEOUT).map_err(|_| Hung)
    }
}
