//! What moves packets, from descriptor to descriptor: a lane, at which one worker is at a time.
//!
//! ```text
//!             +-----------------------------------------------+
//!   TAP  ---> | split -> engine.seal -> outbox ---------------|---> UDP
//!        <--- | <- coalescer <- engine.handle_datagram <------|<---
//!             |        commands, timeouts, heartbeat          |
//!             +-----------------------------------------------+
//! ```
//!
//! Nothing in it logs or allocates per packet. Each wake-up serves each
//! descriptor up to a limit, so that no direction starves the other or the clock.
//! The heartbeat is written here and nowhere else: if a loop hangs, the nodes see it.

mod alarm;
mod command;
mod heart;
mod inward;
mod near;
mod outward;
mod ports;
mod singles;
mod stats;
mod turn;
mod worker;

pub(crate) use command::{
    Command, Handle, Hung, Inbox, NOTICES_MAX, Notice, Report, Told, channel,
};
pub(crate) use heart::{Heart, Pulse};
pub(crate) use stats::{Histogram, Stats};
pub(crate) use turn::Turns;
pub(crate) use worker::{Worker, cpus};

use super::outbox::Outbox;
use super::tap::Tap;
use super::udp::{RECEIVE_MAX, UdpPort};
use crate::engine::{Engine, Event, PortId};
use crate::offload::coalesce::Coalescer;
use crate::offload::frame::FRAME_MAX;
use alarm::Alarm;
use ebpf_common::settings::Settings;
use near::Moved;
use nix::errno::Errno;
use nix::sys::epoll::EpollTimeout;
use outward::Scratch;
use ports::Ports;
use singles::Singles;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc as notices;

/// Handshakes handed over by other lanes that are answered per wake-up: some milliseconds.
const HANDSHAKES_MAX: u32 = 16;

/// Where buffers begin to be used; see `offload::coalesce`.
const OFFSET: usize = 64;

/// The loop cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The TAP was removed under the running process.
    #[error("the TAP is gone: was the gateway's namespace removed?")]
    TapGone(#[source] Errno),

    /// Waiting for descriptors failed, or there are none left.
    #[error("failed to wait for packets")]
    Wait(#[source] Errno),
}

/// All that the workers of a lane work on.
pub(crate) struct Lane {
    engine: Engine,
    /// A queue for each worker.
    taps: Vec<Tap>,
    ports: Ports,
    /// Who is at work.
    worker: usize,
    alarm: Alarm,
    pulse: Pulse,
    /// In the first lane.
    heart: Option<Heart>,
    settings: Settings,
    outbox: Outbox,
    coalescer: Coalescer,
    stats: Stats,
    scratch: Scratch,
    /// Frames from the TAP, and datagrams from the ports.
    frame: Box<[u8]>,
    datagrams: Box<[u8]>,
    /// How frames come from the TAP, and datagrams at any port.
    frames: Singles,
    arriving: Singles,
    commands: mpsc::Receiver<Command>,
    notices: notices::Sender<Told>,
    now: Instant,
    running: bool,
}

/// What a lane begins with.
pub(crate) struct Parts {
    /// Its engine.
    pub(crate) engine: Engine,
    /// Its queues of the TAP, one for each worker.
    pub(crate) taps: Vec<Tap>,
    /// As many sockets of the listening port.
    pub(crate) listen: Vec<UdpPort>,
    /// What chooses among the sockets of the ports that it opens; none for a single worker.
    pub(crate) choose: Option<OwnedFd>,
    /// Its part in the heartbeat.
    pub(crate) pulse: Pulse,
    /// The heartbeat, for the first lane.
    pub(crate) heart: Option<Heart>,
    /// Where its commands come in.
    pub(crate) inbox: Inbox,
    /// Where its notices go.
    pub(crate) notices: notices::Sender<Told>,
}

impl Lane {
    /// Puts the parts together.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if there are no descriptors left, or the TAP is gone.
    pub(crate) fn new(parts: Parts, settings: Settings) -> Result<Self, Error> {
        let Parts {
            engine,
            taps,
            listen,
            choose,
            pulse,
            heart,
            inbox,
            notices,
        } = parts;

        let now = Instant::now();

        let uso = taps.iter().all(Tap::uso);
        let mut lane = Self {
            coalescer: Coalescer::new(settings, uso),
            ports: Ports::new(&taps, inbox.wake, listen, choose).map_err(Error::Wait)?,
            engine,
            taps,
            worker: 0,
            alarm: Alarm::default(),
            pulse,
            heart,
            settings,
            outbox: Outbox::new(),
            stats: Stats::default(),
            scratch: Scratch::new(),
            frame: vec![0; OFFSET + FRAME_MAX].into_boxed_slice(),
            datagrams: vec![0; OFFSET + RECEIVE_MAX].into_boxed_slice(),
            frames: Singles::new(now),
            arriving: Singles::new(now),
            commands: inbox.commands,
            notices,
            now,
            running: true,
        };
        lane.discard_old_frames()?;

        Ok(lane)
    }

    /// Does all that is due.
    fn advance(&mut self) {
        if self.engine.poll_timeout() <= self.now {
            self.engine.handle_timeout(self.now); // Before any IO: a flood cannot starve it.
        }
        self.drain();
        self.pulse.beat(self.now);
        if let Some(heart) = &mut self.heart {
            heart.beat_if_due(self.now);
        }
    }

    fn moved(&self) -> Moved {
        let (read, written) = (&self.stats.read, &self.stats.written);
        Moved {
            packets: read.count + written.count,
            bytes: read.bytes + written.bytes,
        }
    }

    /// Does all that the engine wants done.
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
            self.act(event);
        }
    }

    fn act(&mut self, event: Event) {
        match event {
            Event::OpenPort(id) => match self.ports.open(id) {
                Ok(()) => self.engine.handle_port_opened(id, self.now),
                Err(error) => tracing::warn!(%error, "failed to open a client port"),
            },
            Event::ClosePort(id) => self.ports.close(id),
            Event::Reachable { peer, reachable } => self.pulse.set_reachable(peer, reachable),
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
                    self.engine.forget_told(peer);
                }
            }
            Event::Signs { peer, signs } => {
                self.notify(Notice::Signs { peer, signs });
            }
            Event::Drained => {
                self.notify(Notice::Drained);
            }
        }
    }

    fn obey(&mut self) {
        self.ports.clear_wake();
        let mut handshakes = 0;
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Peers {
                    peers,
                    ranks,
                    tunnelled,
                } => {
                    self.engine.set_tunnelled(&tunnelled);
                    self.engine.set_peers(peers, self.now);
                    if let Some(heart) = &mut self.heart {
                        heart.set_ranks(ranks, self.now);
                    }
                }
                Command::Replicas(names) => self.engine.set_replicas(names, self.now),
                Command::Nodes(nodes) => self.engine.set_nodes(nodes),
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
                    self.engine.handle_handed(local, from, &datagram, self.now);
                    handshakes += 1;
                    if handshakes == HANDSHAKES_MAX {
                        return self.ports.wake(); // The rest after all else had its turn.
                    }
                }
                Command::Standby(standby) => self.engine.set_standby(standby, self.now),
                Command::Leave => {
                    self.engine.leave(self.now);
                    if let Some(heart) = &mut self.heart {
                        heart.leave(self.now);
                    }
                }
                Command::Report(to) => {
                    let report = Report {
                        lane: self.engine.lane(),
                        engine: self.engine.snapshot(self.now),
                        stats: self.stats.clone(),
                        ports: self.ports.len(),
                    };
                    let _ = to.try_send(report); // Who asked may have given up.
                }
                Command::Stop => self.running = false,
            }
        }
    }

    /// Tells control; returns whether it can take that in time.
    fn notify(&mut self, notice: Notice) -> bool {
        let told = (self.engine.lane(), notice);
        let is_told = self.notices.try_send(told).is_ok();
        if !is_told {
            self.stats.count(stats::Drop::NoticeQueueFull);
        }

        is_told
    }

    /// How long the worker may wait: until the engine or the heart is due, unless another one
    /// waits for that.
    fn timeout(&mut self) -> EpollTimeout {
        let heart = self.heart.as_ref().map(Heart::due);
        let due = heart
            .into_iter()
            .fold(self.engine.poll_timeout(), Instant::min);
        if !self.alarm.set(self.worker, due) {
            return EpollTimeout::NONE;
        }
        let wait = due.saturating_duration_since(self.now);
        // Rounded up: waking a moment early would only mean waiting again.
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
