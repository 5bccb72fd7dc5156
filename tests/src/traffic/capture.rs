//! Captures the frames of a device that match a filter.

use super::frame::Ipv4;
use crate::lab::netns::Netns;
use crate::lab::wait;
use crate::packet::{Direction, FRAME_MAX, PacketSocket};
use anyhow::{Context as _, Result, bail};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A captured frame.
#[derive(Clone, Debug)]
pub struct Frame {
    /// When the capture read it.
    pub at: Instant,
    /// Whether the device received or sent it.
    pub direction: Direction,
    /// The frame, with its Ethernet header.
    pub bytes: Vec<u8>,
}

impl Frame {
    /// The IPv4 packet in the frame.
    pub fn ipv4(&self) -> Option<Ipv4<'_>> {
        Ipv4::in_frame(&self.bytes)
    }
}

/// A running capture; it stops when it is dropped.
#[derive(Debug)]
pub struct Capture {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<Result<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    frames: Mutex<Vec<Frame>>,
    seen: AtomicU64,
    stop: AtomicBool,
}

impl Capture {
    /// Starts to capture the frames of a device that match `filter`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such device.
    pub fn start(
        netns: &Netns,
        device: &str,
        filter: impl Fn(&Frame) -> bool + Send + 'static,
    ) -> Result<Self> {
        let socket = PacketSocket::open(netns, device)?;
        let shared = Arc::new(Shared::default());
        let worker = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || capture(&socket, &shared, filter))
        };

        Ok(Self {
            shared,
            worker: Some(worker),
        })
    }

    /// Starts to capture the IPv4 packets of a device that match `filter`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such device.
    pub fn packets(
        netns: &Netns,
        device: &str,
        filter: impl Fn(&Ipv4<'_>) -> bool + Send + 'static,
    ) -> Result<Self> {
        Self::start(netns, device, move |frame| {
            frame.ipv4().is_some_and(|packet| filter(&packet))
        })
    }

    /// The frames captured so far.
    pub fn frames(&self) -> Vec<Frame> {
        let frames = self.shared.frames.lock();
        frames.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of frames that have matched so far.
    pub fn seen(&self) -> u64 {
        self.shared.seen.load(Ordering::Relaxed)
    }

    /// Waits until `count` frames have matched.
    ///
    /// # Errors
    ///
    /// Returns an error if the deadline passes first.
    pub fn wait_for(&self, count: u64, timeout: Duration) -> Result<()> {
        let what = format!("{count} frames");
        wait::until(timeout, &what, || Ok(self.seen() >= count))
    }

    /// Stops the capture, and returns the captured frames, at most [`FRAMES_MAX`].
    ///
    /// # Errors
    ///
    /// Returns an error if the socket failed during the capture.
    pub fn finish(mut self) -> Result<Vec<Frame>> {
        self.end()?;
        let mut frames = self
            .shared
            .frames
            .lock()
            .unwrap_or_else(PoisonError::into_inner);

        Ok(std::mem::take(&mut frames))
    }

    fn end(&mut self) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let Some(worker) = self.worker.take() else {
            return Ok(());
        };
        match worker.join() {
            Ok(outcome) => outcome.context("the capture failed"),
            Err(_) => bail!("the capture panicked"),
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, "a capture failed");
        }
    }
}

fn capture(socket: &PacketSocket, shared: &Shared, filter: impl Fn(&Frame) -> bool) -> Result<()> {
    let mut buffer = vec![0; FRAME_MAX];
    loop {
        // Loaded before the socket is drained, so that frames sent before the stop are captured.
        let last = shared.stop.load(Ordering::Relaxed);
        while let Some((length, direction)) = socket.receive(&mut buffer)? {
            let frame = Frame {
                at: Instant::now(),
                direction,
                bytes: buffer[..length].to_owned(),
            };
            if filter(&frame) {
                shared.seen.fetch_add(1, Ordering::Relaxed);
                let mut frames = shared.frames.lock().unwrap_or_else(PoisonError::into_inner);
                if frames.len() < FRAMES_MAX {
                    frames.push(frame);
                }
            }
        }
        if last {
            return Ok(());
        }
        socket.wait(IDLE)?;
    }
}

/// Number of frames that a capture stores; further ones are only counted.
pub const FRAMES_MAX: usize = 100_000;

/// Interval at which an idle capture checks whether it should stop.
const IDLE: Duration = Duration::from_millis(20);
