//! All packet loops of a gateway as one: commands go to all, reports are joined.

mod joint;
mod report;

pub(crate) use joint::Joint;

use super::lane::{self, Command, Handle, Heart, Hung, Lane, Parts, Pulse, Report, Told, Worker};
use super::state::lock;
use super::tap::Tap;
use super::udp::UdpPort;
use crate::engine::{Engine, LANES_MAX, LaneId};
use anyhow::{Context as _, anyhow, ensure};
use ebpf::{Datapath, Steering, Turns};
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

/// How long [`Lanes::report`] waits.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Cores for each lane: what it has the kernel do is partly done on others.
const CORES_PER_LANE: usize = 2;

/// The most lanes that nobody asked for: each has sessions of its own, which ask each other how
/// they are.
const FITTING_MAX: usize = 4;

/// The most workers of a lane: each has a queue, and a socket of every port.
const WORKERS_MAX: usize = 8;

/// Where commands for the packet loops are sent.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    /// At least one.
    handles: Vec<Handle>,
}

/// What the lanes begin with.
pub(crate) struct Equipment {
    /// How many workers each lane has.
    pub(crate) workers: usize,
    /// A queue of the TAP for each worker of each lane; all lanes of the first worker come first.
    pub(crate) taps: Vec<Tap>,
    /// As many sockets of the listening port.
    pub(crate) listen: Vec<UdpPort>,
    /// The kernel programs.
    pub(crate) datapath: Arc<Mutex<Datapath>>,
    /// Spreads packets over the TAP's queues; there if there are several.
    pub(crate) steering: Option<Steering>,
    /// Spreads datagrams over the sockets; there if there are several.
    pub(crate) turns: Option<Turns>,
    /// What frames look like.
    pub(crate) settings: Settings,
}

/// Ends when one of the loops does, and tells how.
pub(crate) type Ended = oneshot::Receiver<anyhow::Result<()>>;

/// Returns how many lanes this machine, or what a container may use of it, has cores for.
pub(crate) fn fitting() -> u8 {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let lanes = (cores / CORES_PER_LANE).clamp(1, FITTING_MAX);

    u8::try_from(lanes).unwrap_or(1)
}

/// Returns how many workers each of `lanes` has CPUs for.
pub(crate) fn workers(lanes: u8) -> u8 {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let workers = (cores / usize::from(lanes.max(1))).clamp(1, WORKERS_MAX);

    u8::try_from(workers).unwrap_or(1)
}

/// Starts the lanes, each with the engine that `engine` makes for it.
///
/// # Errors
///
/// Returns what keeps one from starting.
pub(crate) fn start(
    equipment: Equipment,
    engine: impl Fn(LaneId) -> anyhow::Result<Engine>,
) -> anyhow::Result<(Lanes, notices::Receiver<Told>, Ended)> {
    let Equipment {
        workers,
        taps,
        listen,
        datapath,
        steering,
        turns,
        settings,
    } = equipment;
    ensure!(
        taps.len() == listen.len() && workers > 0 && !taps.is_empty(),
        "{} queues and {} sockets for {workers} workers a lane",
        taps.len(),
        listen.len()
    );
    let of = u8::try_from(taps.len() / workers).context("too many lanes")?;
    let homes = lane::cpus(workers);
    let turns = turns
        .map(|turns| Choice::new(turns, &listen, &homes))
        .transpose()
        .context("failed to share the work of a lane")?;
    let (tell, notices) = notices::channel(lane::NOTICES_MAX);
    let (end, ended) = oneshot::channel();
    let end = Arc::new(Mutex::new(Some(end)));
    let mut handles = Vec::new();
    let mut inboxes = Vec::new();
    for _ in 0..of {
        let (handle, inbox) = lane::channel().context("failed to prepare a packet loop")?;
        handles.push(handle);
        inboxes.push(inbox);
    }
    let pulses = Pulse::all(&handles);
    let mut heart = pulses
        .first()
        .map(|first| Heart::new(datapath, steering.filter(|_| of > 1), first));

    let queues = deal(taps, of).into_iter().zip(deal(listen, of));
    let ends = inboxes.into_iter().zip(pulses);
    for ((id, (taps, listen)), (inbox, pulse)) in LaneId::all(of).zip(queues).zip(ends) {
        let choose = turns.as_ref().filter(|_| workers > 1);
        let choose = choose.map(|turns| turns.reply.try_clone()).transpose();
        let parts = Parts {
            engine: engine(id)?,
            taps,
            listen,
            choose: choose.context("no descriptor is left")?,
            pulse,
            heart: heart.take(),
            inbox,
            notices: tell.clone(),
        };
        let lane = Lane::new(parts, settings).context("failed to prepare a packet loop")?;
        let turn = |worker| turns.as_ref().and_then(|it| it.shared.turn(id, worker));
        let turns = (0..workers).map(|it| turn(it).filter(|_| workers > 1));
        for worker in Worker::all(lane, homes.clone(), turns.collect()) {
            let tell = Arc::clone(&end);
            spawn(worker, End { tell, lane: id })?;
        }
    }

    Ok((Lanes { handles }, notices, ended))
}

/// How the workers of a lane share what comes.
struct Choice {
    shared: Arc<lane::Turns>,
    /// Chooses among the sockets of a port of one lane.
    reply: OwnedFd,
}

impl Choice {
    fn new(mut turns: Turns, listen: &[UdpPort], homes: &[Vec<usize>]) -> anyhow::Result<Self> {
        for cpu in 0..CPUS_MAX {
            turns.set_worker(cpu, NO_WORKER)?;
        }
        for (worker, home) in (0..).zip(homes) {
            for cpu in home {
                // Of those beyond, nothing begins a turn.
                if let Some(cpu) = u32::try_from(*cpu).ok().filter(|cpu| *cpu < CPUS_MAX) {
                    turns.set_worker(cpu, worker)?;
                }
            }
        }
        if let Some(first) = listen.first() {
            first.choose(turns.listen_program())?;
        }

        Ok(Self {
            shared: Arc::new(lane::Turns::map(turns.turns())?),
            reply: turns.reply_program().try_clone_to_owned()?,
        })
    }
}

/// Deals things to `of` lanes, in turn.
fn deal<T>(things: Vec<T>, of: u8) -> Vec<Vec<T>> {
    let mut dealt: Vec<Vec<T>> = (0..of).map(|_| Vec::new()).collect();
    for (place, thing) in things.into_iter().enumerate() {
        dealt[place % usize::from(of)].push(thing);
    }

    dealt
}

/// Tells how the first loop ended that did.
struct End {
    tell: Arc<Mutex<Option<oneshot::Sender<anyhow::Result<()>>>>>,
    lane: LaneId,
}

impl End {
    fn tell(&self, outcome: anyhow::Result<()>) {
        if let Some(tell) = lock(&self.tell).take() {
            let _ = tell.send(outcome); // Nobody listens any more when the process ends.
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if thread::panicking() {
            let number = self.lane.number();
            self.tell(Err(anyhow!("packet loop {number} ended in a panic")));
        }
    }
}

fn spawn(worker: Worker, end: End) -> anyhow::Result<()> {
    thread::Builder::new()
        .name(format!("lane-{}", end.lane.number()))
        .spawn(move || end.tell(worker.run().map_err(anyhow::Error::from)))
        .context("failed to start a packet loop")?;

    Ok(())
}

impl Lanes {
    /// Sends a command to all; never waits.
    ///
    /// # Errors
    ///
    /// Returns [`Hung`] if one of them takes no more.
    pub(crate) fn send(&self, command: Command) -> Result<(), Hung> {
        let others = self.send_others(&command);
        self.send_first(command).and(others)
    }

    /// Sends a command to all but the first.
    ///
    /// # Errors
    ///
    /// Returns [`Hung`] if one of them takes no more.
    pub(crate) fn send_others(&self, command: &Command) -> Result<(), Hung> {
        self.handles
            .iter()
            .skip(1)
            .map(|handle| handle.send(command.clone()))
            .fold(Ok(()), Result::and)
    }

    /// Sends a command to the first alone.
    ///
    /// # Errors
    ///
    /// Returns [`Hung`] if it takes no more.
    pub(crate) fn send_first(&self, command: Command) -> Result<(), Hung> {
        self.handles
            .first()
            .map_or(Err(Hung), |it| it.send(command))
    }

    /// Asks all for a report, waits a second at most, and joins what they say.
    ///
    /// # Errors
    ///
    /// Returns [`Hung`] if one does not answer.
    pub(crate) fn report(&self) -> Result<Report, Hung> {
        let (to, answers) = sync_channel(self.handles.len());
        self.send(Command::Report(to))?;
        let until = Instant::now() + REPORT_TIMEOUT;
        let mut reports = Vec::new();
        for _ in &self.handles {
            let left = until.saturating_duration_since(Instant::now());
            reports.push(answers.recv_timeout(left).map_err(|_| Hung)?);
        }

        report::join(reports).ok_or(Hung)
    }
}
