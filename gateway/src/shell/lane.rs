//! A lane is a packet loop: it forwards packets between the TAP and the UDP sockets of its engine.
//!
//! A gateway has one or more lanes, and each lane has sessions of its own. The threads of a lane
//! are its *workers*. A mutex ensures that only one worker of a lane runs at a time.
//!
//! ```text
//!             +-----------------------------------------------+
//!   TAP  ---> | backlog -> split -> engine.seal -> outbox ----|---> UDP
//!        <--- | <- coalescer <- engine.handle_datagram <------|<---
//!             |        commands, timeouts, heartbeat          |
//!             +-----------------------------------------------+
//! ```
//!
//! The code does not log or allocate memory per packet. A wake-up reads from each descriptor up to
//! a limit, so that one direction cannot starve the other direction or the timers. Only the first
//! lane writes the heartbeat, and only while no lane hangs. Without heartbeats, the nodes stop
//! using this replica.

mod active_worker;
mod alarm;
mod backlog;
mod batching;
mod command;
mod cpu_affinity;
mod heartbeat;
mod inward;
mod outward;
mod ports;
mod stats;
mod worker;

pub(crate) use active_worker::ActiveWorkers;
pub(crate) use command::{
    Command, Handle, Hung, Inbox, LaneNotice, NOTICES_MAX, Notice, Report, channel,
};
pub(crate) use heartbeat::{HeartbeatWriter, LaneHeartbeat};
pub(crate) use stats::{Histogram, Stats};
pub(crate) use worker::{Worker, cpus};

use super::outbox::Outbox;
use super::tap::Tap;
use super::udp::{RECEIVE_MAX, UdpPort};
use crate::engine::{Engine, Event, PortId};
use crate::offload::coalesce::Coalescer;
use crate::offload::frame::FRAME_MAX;
use crate::planned::PeerChanges;
use alarm::Alarm;
use backlog::Backlog;
use batching::Batching;
use cpu_affinity::Work;
use ebpf_common::settings::Settings;
use nix::errno::Errno;
use nix::sys::epoll::EpollTimeout;
use outward::Scratch;
use ports::Ports;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc as notices;

/// Maximum number of handshake initiations from other lanes that a wake-up handles, which takes a
/// few milliseconds.
const HANDSHAKES_MAX: u32 = 16;

/// Offset of the data in the buffers, in bytes.
///
/// The allocator places large buffers at the start of a page. The kernel copies slowly to the first
/// bytes of a page, so the data starts after these bytes.
const OFFSET: usize = 64;

/// An error that ends the packet loop.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The TAP was deleted while the gateway runs.
    #[error("the TAP is gone: was the gateway's namespace removed?")]
    TapGone(#[source] Errno),

    /// epoll failed, or the process has no free descriptors.
    #[error("failed to wait for packets")]
    Wait(#[source] Errno),
}

/// The state that the workers of a lane share.
pub(crate) struct Lane {
    engine: Engine,
    /// Each worker's queue of the TAP.
    taps: Vec<Tap>,
    ports: Ports,
    /// Number of the worker that holds the lane's lock.
    worker: usize,
    alarm: Alarm,
    lane_heartbeat: LaneHeartbeat,
    /// `None` in all lanes except the first.
    heartbeat_writer: Option<HeartbeatWriter>,
    settings: Settings,
    outbox: Outbox,
    coalescer: Coalescer,
    stats: Stats,
    scratch: Scratch,
    /// Frames from the TAP.
    backlog: Backlog,
    /// Buffer for the datagrams of one receive call.
    datagrams: Box<[u8]>,
    frame_batching: Batching,
    datagram_batching: Batching,
    commands: mpsc::Receiver<Command>,
    notices: notices::Sender<LaneNotice>,
    /// Time of the current wake-up.
    now: Instant,
    /// False after [`Command::Stop`].
    running: bool,
}

/// The arguments of [`Lane::new`].
pub(crate) struct Parts {
    pub(crate) engine: Engine,
    /// Each worker's queue of the TAP.
    pub(crate) taps: Vec<Tap>,
    /// Each worker's socket of the listening port.
    pub(crate) listen: Vec<UdpPort>,
    /// The program that chooses a worker's socket for each datagram to a port that the lane opens;
    /// `None` for a single worker.
    pub(crate) reuseport_program: Option<OwnedFd>,
    pub(crate) lane_heartbeat: LaneHeartbeat,
    /// `None` for all lanes except the first.
    pub(crate) heartbeat_writer: Option<HeartbeatWriter>,
    pub(crate) inbox: Inbox,
    pub(crate) notices: notices::Sender<LaneNotice>,
}

impl Lane {
    /// Creates a lane; discards the frames that an earlier process left on the TAP.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the process has no free descriptors, or if the TAP was deleted.
    pub(crate) fn new(parts: Parts, settings: Settings) -> Result<Self, Error> {
        let Parts {
            engine,
            taps,
            listen,
            reuseport_program,
            lane_heartbeat,
            heartbeat_writer,
            inbox,
            notices,
        } = parts;
        let now = Instant::now();
        let uso = taps.iter().all(Tap::uso);
        let mut lane = Self {
            coalescer: Coalescer::new(settings, uso),
            ports: Ports::new(&taps, inbox.wake, listen, reuseport_program).map_err(Error::Wait)?,
            engine,
            taps,
            worker: 0,
            alarm: Alarm::default(),
            lane_heartbeat,
            heartbeat_writer,
            settings,
            outbox: Outbox::new(),
            stats: Stats::default(),
            scratch: Scratch::new(),
            backlog: Backlog::new(OFFSET + FRAME_MAX),
            datagrams: vec![0; OFFSET + RECEIVE_MAX].into_boxed_slice(),
            frame_batching: Batching::new(now),
            datagram_batching: Batching::new(now),
            commands: inbox.commands,
            notices,
            now,
            running: true,
        };
        lane.discard_old_frames()?;

        Ok(lane)
    }

    /// Handles timeouts, processes the output of the engine, and writes the heartbeat.
    fn advance(&mut self) {
        // Timeouts precede all IO, so that a flood of packets cannot delay them.
        if self.engine.poll_timeout() <= self.now {
            self.engine.handle_timeout(self.now);
        }
        self.drain();
        self.lane_heartbeat.note_awake(self.now);
        if let Some(writer) = &mut self.heartbeat_writer {
            writer.write_if_due(self.now);
        }
    }

    /// Returns the packets and bytes that the lane has read from and written to the TAP since it
    /// started.
    fn work(&self) -> Work {
        let (read, written) = (&self.stats.read, &self.stats.written);
        Work {
            packets: read.count + written.count,
            bytes: read.bytes + written.bytes,
        }
    }

    /// Sends the datagrams and queued packets of the engine, and handles its events, until none is
    /// left.
    fn drain(&mut self) {
        loop {
            while let Some(transmit) = self.engine.poll_transmit() {
                self.ports.send(&transmit, &mut self.stats);
            }
            let mut send = self.ports.sender(&mut self.stats);
            while let Some(sealed) = self.engine.poll_queued(self.outbox.room()) {
                self.outbox
                    .push((sealed.port, sealed.to), sealed.len, &mut send);
            }
            self.outbox.flush(&mut send);
            drop(send);
            let Some(event) = self.engine.poll_event() else {
                return;
            };
            self.handle_event(event);
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::OpenPort(id) => match self.ports.open(id) {
                Ok(()) => self.engine.handle_port_opened(id, self.now),
                Err(error) => tracing::warn!(%error, "failed to open a client port"),
            },
            Event::ClosePort(id) => self.ports.close(id),
            Event::Reachable { peer, reachable } => {
                self.lane_heartbeat.set_reachable(peer, reachable);
            }
            Event::Initiation {
                local,
                from,
                datagram,
            } => {
                self.notify(Notice::Initiation {
                    local,
                    from,
                    datagram,
                });
            }
            Event::Resolve { peer, host, port } => {
                self.notify(Notice::Resolve { peer, host, port });
            }
            Event::Connection {
                peer,
                state,
                latency,
            } => {
                self.notify(Notice::Connection {
                    peer,
                    state,
                    latency,
                });
            }
            Event::Remote { peer, kind, nodes } => {
                if !self.notify(Notice::Remote { peer, kind, nodes }) {
                    self.engine.forget_report(peer);
                }
            }
            Event::HandshakeEvidence { peer, evidence } => {
                self.notify(Notice::HandshakeEvidence { peer, evidence });
            }
            Event::Drained => {
                self.notify(Notice::Drained);
            }
        }
    }

    fn handle_commands(&mut self) {
        self.ports.clear_wake();
        let mut handshakes = 0;
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Peers(changes) => self.change_peers(changes),
                Command::Replicas(names) => self.engine.set_replicas(names, self.now),
                Command::Nodes(nodes) => self.engine.set_nodes(nodes),
                Command::Place(place) => self.engine.set_place(place),
                Command::Resolved {
                    peer,
                    host,
                    addresses,
                } => self
                    .engine
                    .handle_resolved(peer, &host, addresses, self.now),
                Command::Kinds(kinds) => {
                    for (peer, kind) in kinds {
                        self.engine.set_kind(peer, kind, self.now);
                    }
                }
                Command::Initiation {
                    local,
                    from,
                    datagram,
                } => {
                    self.engine
                        .handle_forwarded_initiation(local, from, &datagram, self.now);
                    handshakes += 1;
                    if handshakes == HANDSHAKES_MAX {
                        return self.ports.wake(); // The next wake-up handles further commands.
                    }
                }
                Command::Standby(standby) => self.engine.set_standby(standby, self.now),
                Command::Leave => {
                    self.engine.leave(self.now);
                    if let Some(writer) = &mut self.heartbeat_writer {
                        writer.leave(self.now);
                    }
                }
                Command::Report(to) => {
                    let report = Report {
                        lane: self.engine.lane(),
                        engine: self.engine.snapshot(self.now),
                        stats: self.stats.clone(),
                        ports: self.ports.len(),
                    };
                    let _ = to.try_send(report); // Fails if the receiver has timed out.
                }
                Command::Stop => self.running = false,
            }
        }
    }

    fn change_peers(&mut self, changes: PeerChanges) {
        if let Some(tunnelled) = changes.tunnelled {
            self.engine.set_tunnelled(&tunnelled);
        }
        match changes.removed {
            Some(removed) => self.engine.change_peers(changes.peers, &removed, self.now),
            None => self.engine.set_peers(changes.peers, self.now),
        }
        if let Some((writer, ranks)) = self.heartbeat_writer.as_mut().zip(changes.ranks) {
            writer.set_ranks(ranks, self.now);
        }
    }

    /// Sends a notice to `control`; returns false if the queue of notices is full.
    fn notify(&mut self, notice: Notice) -> bool {
        let notice = (self.engine.lane(), notice);
        let is_sent = self.notices.try_send(notice).is_ok();
        if !is_sent {
            self.stats.count(stats::Drop::NoticeQueueFull);
        }

        is_sent
    }

    /// Returns the timeout of the worker's next wait.
    ///
    /// The wait ends at the engine's timeout or at the next heartbeat, whichever is first. If
    /// another worker wakes up by then, returns [`EpollTimeout::NONE`]. While frames wait, there is
    /// no wait.
    fn timeout(&mut self) -> EpollTimeout {
        if !self.backlog.is_empty() {
            return EpollTimeout::ZERO;
        }
        let heartbeat = self.heartbeat_writer.as_ref().map(HeartbeatWriter::due);
        let due = heartbeat
            .into_iter()
            .fold(self.engine.poll_timeout(), Instant::min);
        if !self.alarm.set(self.worker, due) {
            return EpollTimeout::NONE;
        }
        let wait = due.saturating_duration_since(self.now);
        // Rounds up, because a worker that wakes up too early would have to wait again.
        let millis = wait
            .as_micros()
            .div_ceil(1000)
            .min(Duration::from_secs(60).as_millis());
        EpollTimeout::try_from(millis).unwrap_or(EpollTimeout::ZERO)
    }
}

impl From<PortId> for u64 {
    fn from(id: PortId) -> Self {
        id.0.into()
    }
}
