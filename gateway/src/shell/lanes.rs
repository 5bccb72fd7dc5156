//! The lanes (packet loops) of a gateway: starts them, and aggregates their notices and reports.

mod aggregate;
mod report;

pub(crate) use aggregate::Aggregate;

use super::lane::{
    self, ActiveWorkers, Command, Handle, HeartbeatWriter, Hung, Lane, LaneHeartbeat, LaneNotice,
    Parts, Report, Worker,
};
use super::state::lock;
use super::tap::Tap;
use super::udp::UdpPort;
use crate::engine::{Engine, LANES_MAX, LaneId};
use anyhow::{Context as _, anyhow, ensure};
use ebpf::{Datapath, SocketSteering, Steering};
use ebpf_common::maps::{CPUS_MAX, NO_WORKER};
use ebpf_common::settings::Settings;
use std::os::fd::OwnedFd;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc as notices;
use tokio::sync::oneshot;

const _: () = assert!(LANES_MAX as u32 <= ebpf_common::maps::LANES_MAX);

/// Maximum time until all lanes reply to [`Lanes::report`].
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Number of cores for each lane: one for the lane, one for the kernel's work on the lane's
/// packets.
const CORES_PER_LANE: usize = 2;

/// Maximum of the default number of lanes. Each lane has its own sessions, and the probes of a
/// session cost CPU time.
const DEFAULT_LANES_MAX: usize = 4;

/// Maximum number of workers per lane; each worker has a queue of the TAP and a socket of every
/// port.
const WORKERS_MAX: usize = 8;

/// Sends commands to all lanes of the gateway.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    /// A handle for each lane; there is at least one lane.
    handles: Vec<Handle>,
}

/// The descriptors and settings of all lanes.
pub(crate) struct Resources {
    /// Number of workers per lane.
    pub(crate) workers: usize,
    /// The queues of the TAP, one for each worker of each lane, ordered by worker, then by lane.
    pub(crate) taps: Vec<Tap>,
    /// The sockets of the listening port, in the order of `taps`.
    pub(crate) listen: Vec<UdpPort>,
    pub(crate) datapath: Arc<Mutex<Datapath>>,
    /// The program that chooses the queue of the TAP for each packet; `None` with a single queue.
    pub(crate) steering: Option<Steering>,
    /// The program that chooses the socket for each datagram; `None` with a single socket.
    pub(crate) socket_steering: Option<SocketSteering>,
    pub(crate) settings: Settings,
}

/// Receives the result of the first worker that ends.
pub(crate) type Ended = oneshot::Receiver<anyhow::Result<()>>;

/// Returns the default number of lanes: one for each [`CORES_PER_LANE`] cores, at most
/// [`DEFAULT_LANES_MAX`].
pub(crate) fn default_count() -> u8 {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let lanes = (cores / CORES_PER_LANE).clamp(1, DEFAULT_LANES_MAX);

    u8::try_from(lanes).unwrap_or(1)
}

/// Returns the number of workers per lane: the number of cores divided by the number of lanes, at
/// most [`WORKERS_MAX`].
pub(crate) fn workers(lanes: u8) -> u8 {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let workers = (cores / usize::from(lanes.max(1))).clamp(1, WORKERS_MAX);

    u8::try_from(workers).unwrap_or(1)
}

/// Starts all lanes; `engine` creates the engine of a lane.
///
/// # Errors
///
/// Returns an error if the process has no free descriptors, or cannot start a thread.
pub(crate) fn start(
    resources: Resources,
    engine: impl Fn(LaneId) -> anyhow::Result<Engine>,
) -> anyhow::Result<(Lanes, notices::Receiver<LaneNotice>, Ended)> {
    let Resources {
        workers,
        taps,
        listen,
        datapath,
        steering,
        socket_steering,
        settings,
    } = resources;
    ensure!(
        taps.len() == listen.len() && workers > 0 && !taps.is_empty(),
        "{} queues and {} sockets for {workers} workers per lane",
        taps.len(),
        listen.len()
    );
    let of = u8::try_from(taps.len() / workers).context("too many lanes")?;
    let cpus = lane::cpus(workers);
    let sharing = socket_steering
        .map(|socket_steering| Sharing::new(socket_steering, &listen, &cpus))
        .transpose()
        .context("failed to distribute datagrams to the workers")?;
    let (sender, notices) = notices::channel(lane::NOTICES_MAX);
    let (end, ended) = oneshot::channel();
    let end = Arc::new(Mutex::new(Some(end)));
    let mut handles = Vec::new();
    let mut inboxes = Vec::new();
    for _ in 0..of {
        let (handle, inbox) = lane::channel().context("failed to prepare a packet loop")?;
        handles.push(handle);
        inboxes.push(inbox);
    }
    let heartbeats = LaneHeartbeat::all(&handles);
    let mut heartbeat_writer = heartbeats
        .first()
        .map(|first| HeartbeatWriter::new(datapath, steering.filter(|_| of > 1), first));

    let queues = deal(taps, of).into_iter().zip(deal(listen, of));
    let ends = inboxes.into_iter().zip(heartbeats);
    for ((id, (taps, listen)), (inbox, lane_heartbeat)) in LaneId::all(of).zip(queues).zip(ends) {
        let sharing = sharing.as_ref().filter(|_| workers > 1);
        let program = sharing.map(|it| it.reply_program.try_clone()).transpose();
        let parts = Parts {
            engine: engine(id)?,
            taps,
            listen,
            reuseport_program: program.context("no descriptor is left")?,
            lane_heartbeat,
            heartbeat_writer: heartbeat_writer.take(),
            inbox,
            notices: sender.clone(),
        };
        let lane = Lane::new(parts, settings).context("failed to prepare a packet loop")?;
        let active = (0..workers).map(|worker| sharing.and_then(|it| it.active.entry(id, worker)));
        for worker in Worker::all(lane, cpus.clone(), active.collect()) {
            let end = Arc::clone(&end);
            spawn(worker, End { end, lane: id })?;
        }
    }

    Ok((Lanes { handles }, notices, ended))
}

/// The eBPF map and program that distribute datagrams to the workers of each lane.
struct Sharing {
    active: Arc<ActiveWorkers>,
    /// The program that chooses the socket for each datagram to a port that one lane has opened.
    reply_program: OwnedFd,
}

impl Sharing {
    fn new(
        mut socket_steering: SocketSteering,
        listen: &[UdpPort],
        cpus: &[Vec<usize>],
    ) -> anyhow::Result<Self> {
        for cpu in 0..CPUS_MAX {
            socket_steering.set_worker(cpu, NO_WORKER)?;
        }
        for (worker, cpus) in (0..).zip(cpus) {
            for cpu in cpus {
                // A CPU from `CPUS_MAX` on has no entry. Packets that it receives do not change the
                // active worker.
                if let Some(cpu) = u32::try_from(*cpu).ok().filter(|cpu| *cpu < CPUS_MAX) {
                    socket_steering.set_worker(cpu, worker)?;
                }
            }
        }
        if let Some(first) = listen.first() {
            first.attach(socket_steering.listen_program())?;
        }

        Ok(Self {
            active: Arc::new(ActiveWorkers::map(socket_steering.active_workers())?),
            reply_program: socket_steering.reply_program().try_clone_to_owned()?,
        })
    }
}

/// Distributes `items` to `lanes` lanes in turn (round robin).
fn deal<T>(items: Vec<T>, lanes: u8) -> Vec<Vec<T>> {
    let mut dealt: Vec<Vec<T>> = (0..lanes).map(|_| Vec::new()).collect();
    for (place, item) in items.into_iter().enumerate() {
        dealt[place % usize::from(lanes)].push(item);
    }

    dealt
}

/// Reports the end of a worker, unless another worker has ended before. A release ends at once if a
/// worker panics.
struct End {
    end: Arc<Mutex<Option<oneshot::Sender<anyhow::Result<()>>>>>,
    lane: LaneId,
}

impl End {
    fn report(&self, outcome: anyhow::Result<()>) {
        if let Some(end) = lock(&self.end).take() {
            let _ = end.send(outcome); // Fails if the main thread no longer waits.
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if thread::panicking() {
            let number = self.lane.number();
            self.report(Err(anyhow!("packet loop {number} ended in a panic")));
        }
    }
}

fn spawn(worker: Worker, end: End) -> anyhow::Result<()> {
    thread::Builder::new()
        .name(format!("lane-{}", end.lane.number()))
        .spawn(move || end.report(worker.run().map_err(anyhow::Error::from)))
        .context("failed to start a packet loop")?;

    Ok(())
}

#[cfg(test)]
impl Lanes {
    pub(super) fn of(handles: Vec<Handle>) -> Self {
        Self { handles }
    }
}

impl Lanes {
    /// Sends a command to all lanes without waiting.
    ///
    /// # Errors
    ///
    /// Returns [`Hung`] if a lane's queue is full.
    pub(crate) fn send(&self, command: Command) -> Result<(), Hung> {
        let others = self.send_others(&command);
        self.send_first(command).and(others)
    }

    /// Sends a command to all lanes except the first.
    ///
    /// # Errors
    ///
    /// Returns [`Hung`] if a lane's queue is full.
    pub(crate) fn send_others(&self, command: &Command) -> Result<(), Hung> {
        self.handles
            .iter()
            .skip(1)
            .map(|handle| handle.send(command.clone()))
            .fold(Ok(()), Result::and)
    }

    /// Sends a command to the first lane only.
    ///
    /// # Errors
    ///
    /// Returns [`Hung`] if the lane's queue is full.
    pub(crate) fn send_first(&self, command: Command) -> Result<(), Hung> {
        self.handles
            .first()
            .map_or(Err(Hung), |it| it.send(command))
    }

    /// Requests a report from each lane, and aggregates the reports.
    ///
    /// # Errors
    ///
    /// Returns [`Hung`] if a lane does not reply within [`REPORT_TIMEOUT`].
    pub(crate) fn report(&self) -> Result<Report, Hung> {
        let (to, replies) = sync_channel(self.handles.len());
        self.send(Command::Report(to))?;
        let until = Instant::now() + REPORT_TIMEOUT;
        let mut reports = Vec::new();
        for _ in &self.handles {
            let left = until.saturating_duration_since(Instant::now());
            reports.push(replies.recv_timeout(left).map_err(|_| Hung)?);
        }

        report::aggregate(reports).ok_or(Hung)
    }
}
