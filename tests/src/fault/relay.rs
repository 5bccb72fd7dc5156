//! A link that loses, delays, reorders or duplicates frames.
//!
//! Test machines may lack the kernel module `netem`. Instead, threads copy every frame from one
//! device to another device, and apply the faults.

use crate::lab::Identity;
use crate::lab::link::{End, ip, veth, without_offloads};
use crate::lab::netns::Netns;
use crate::packet::{Direction, FRAME_MAX, PacketSocket};
use anyhow::Result;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The faults that a relay applies to frames. The default is a link without faults.
///
/// Probabilities are between 0 and 1, and apply to each frame independently.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame is duplicated.
    pub duplicate: f64,
    /// Probability that a frame is delayed by [`REORDER_DELAY`], so that later frames overtake it.
    pub reorder: f64,
    /// Delay of each frame.
    pub delay: Duration,
    /// Whether the relay drops all frames while the link stays up.
    pub blocked: bool,
}

/// A relay between two devices. Dropping the value stops the relay.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<Result<()>>>,
    /// The namespace with the relay's devices, if [`Relay::between`] has created them.
    netns: Option<Netns>,
}

/// Function that returns whether faults apply to a frame.
type Concerns = dyn Fn(&[u8]) -> bool + Send + Sync;

/// Counters of a relay since its start, over both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames that the filter selected and the relay forwarded. A duplicated frame counts once.
    pub passed: u64,
    /// Frames that the relay dropped.
    pub dropped: u64,
    /// Frames that the relay forwarded twice.
    pub duplicated: u64,
    /// Frames that the relay delayed by [`REORDER_DELAY`].
    pub reordered: u64,
}

#[derive(Debug, Default)]
struct Shared {
    faults: Mutex<Faults>,
    stop: AtomicBool,
    passed: AtomicU64,
    dropped: AtomicU64,
    duplicated: AtomicU64,
    reordered: AtomicU64,
}

impl Relay {
    /// Connects two namespaces through a relay.
    ///
    /// The two ends get devices with the given names, as with
    /// [`connect`](crate::lab::link::connect).
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses a device.
    pub fn between(
        identity: &Arc<Identity>,
        name: &str,
        near: End<'_>,
        far: End<'_>,
        mtu: u32,
    ) -> Result<Self> {
        let netns = Netns::create(identity, name)?;
        for (end, device) in [(near, "near"), (far, "far")] {
            let own = End {
                netns: &netns,
                device,
            };
            let commands = [veth(own, end, mtu), format!("link set dev {device} up")];
            ip(&netns, &commands)?;
            without_offloads(own)?;
            without_offloads(end)?;
        }

        let open = |device| PacketSocket::open(&netns, device);
        let lanes = [[open("near")?, open("far")?], [open("far")?, open("near")?]];

        let mut relay = Self::join(lanes, |_| true);
        relay.netns = Some(netns);

        Ok(relay)
    }

    /// Starts a relay between two open devices.
    ///
    /// Each of the two lanes copies frames in one direction, from its first to its second socket.
    /// Faults apply only to frames for which `concerns` returns `true`.
    pub fn join(
        lanes: [[PacketSocket; 2]; 2],
        concerns: impl Fn(&[u8]) -> bool + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let concerns: Arc<Concerns> = Arc::new(concerns);
        let mut workers = Vec::new();
        for (seed, [from, to]) in (1..).zip(lanes) {
            let mut lane = Lane {
                from,
                to,
                shared: Arc::clone(&shared),
                concerns: Arc::clone(&concerns),
                random: Random(seed),
                waiting: BinaryHeap::new(),
                count: 0,
            };
            workers.push(std::thread::spawn(move || lane.run()));
        }

        Self {
            shared,
            workers,
            netns: None,
        }
    }

    /// Sets the faults for all frames that the relay reads from now on.
    pub fn set(&self, faults: Faults) {
        *lock(&self.shared.faults) = faults;
    }

    /// Returns the current values of the counters.
    pub fn tally(&self) -> Tally {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Tally {
            passed: load(&self.shared.passed),
            dropped: load(&self.shared.dropped),
            duplicated: load(&self.shared.duplicated),
            reordered: load(&self.shared.reordered),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for worker in self.workers.drain(..) {
            match worker.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "a relay failed"),
                Err(_) => tracing::warn!("a relay panicked"),
            }
        }
    }
}

/// One direction of a relay, which a thread runs.
struct Lane {
    from: PacketSocket,
    to: PacketSocket,
    shared: Arc<Shared>,
    concerns: Arc<Concerns>,
    random: Random,
    /// Delayed frames, ordered by the time at which they are due, then by arrival.
    waiting: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    count: u64,
}

impl Lane {
    fn run(&mut self) -> Result<()> {
        let mut buffer = vec![0; FRAME_MAX];
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.send_due(Instant::now())?;
            let pause = self
                .waiting
                .peek()
                .map_or(IDLE, |Reverse((due, ..))| {
                    due.saturating_duration_since(Instant::now())
                })
                .min(IDLE);
            if !self.from.wait(pause)? {
                continue;
            }
            while let Some((length, direction)) = self.from.receive(&mut buffer)? {
                if direction == Direction::In {
                    self.judge(&buffer[..length])?;
                }
            }
        }

        Ok(())
    }

    fn judge(&mut self, frame: &[u8]) -> Result<()> {
        if !(self.concerns)(frame) {
            return self.forward(frame, Duration::ZERO);
        }
        let faults = *lock(&self.shared.faults);
        if faults.blocked || self.random.happens(faults.loss) {
            count(&self.shared.dropped);
            return Ok(());
        }

        count(&self.shared.passed);
        let mut delay = faults.delay;
        if self.random.happens(faults.reorder) {
            count(&self.shared.reordered);
            delay += REORDER_DELAY;
        }
        if self.random.happens(faults.duplicate) {
            count(&self.shared.duplicated);
            self.forward(frame, delay)?;
        }
        self.forward(frame, delay)
    }

    fn forward(&mut self, frame: &[u8], delay: Duration) -> Result<()> {
        if delay.is_zero() {
            self.to.send(frame)?;
            return Ok(());
        }
        if self.waiting.len() >= WAITING_MAX {
            count(&self.shared.dropped);
            return Ok(());
        }

        self.count += 1;
        let due = Instant::now() + delay;
        self.waiting
            .push(Reverse((due, self.count, frame.to_owned())));
        self.send_due(Instant::now())
    }

    fn send_due(&mut self, now: Instant) -> Result<()> {
        while let Some(Reverse((due, ..))) = self.waiting.peek()
            && *due <= now
        {
            if let Some(Reverse((_, _, frame))) = self.waiting.pop() {
                self.to.send(&frame)?;
            }
        }

        Ok(())
    }
}

/// The random number generator `xorshift64*`. Its seed is fixed, so that each run has the same
/// faults.
struct Random(u64);

impl Random {
    fn happens(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11;

        (bits as f64) / ((1_u64 << 53) as f64) < probability
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Delay of a reordered frame.
pub const REORDER_DELAY: Duration = Duration::from_millis(5);

/// Interval at which an idle lane checks whether the relay must stop.
const IDLE: Duration = Duration::from_millis(20);

/// Maximum number of delayed frames per lane: about one second of full-sized frames at 1 Gb/s.
const WAITING_MAX: usize = 100_000;
